"""Every picture, drawn with colours that colour-blind eyes can tell apart."""

import io
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from nestbed.numerics import storage
from nestbed.numerics.intervals import quantile
from nestbed.numerics.text import visible
from nestbed.runs.folder import CURVE

if TYPE_CHECKING:
    from nestbed.evaluation.comparison import Comparison
    from nestbed.model.system import BaseSystem
    from nestbed.planning.plan import Plan
    from nestbed.runs.run import Log

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES = ("-", "--", ":")
GREY = "#666666"
HANDLE = 0.65
"""Inches that a legend needs beside the words of an entry."""


def information_gain(estimates: "Comparison", system: "BaseSystem", file: Path, name: str | None = None) -> None:
    """Draw information gained against experiments done, with its 95 % interval."""
    figure = Figure(figsize=(7.0, 4.4), layout="constrained")
    axes = figure.subplots()
    for i, estimate in enumerate(estimates):
        mean, low, high = (np.insert(values, 0, 0.0) for values in estimate.curve)
        done = np.arange(len(mean))
        look = style(i)
        axes.plot(done, mean, **look, label=plain(f"{estimate.policy}: {estimate.mean:.2f} nats"))
        axes.fill_between(done, low, high, color=look["color"], alpha=0.2, linewidth=0)
    learned = "what each policy learns" if len(estimates) > 1 else f"what {estimates[0].policy} learns"
    title(figure, f"{name or system.name}: {learned} about {', '.join(system.parameter_names)}")
    axes.set(xlabel="experiments done", ylabel="information gained (nats)", xlim=(0, done[-1]))
    axes.grid(alpha=0.3)
    legend(figure, axes.get_legend_handles_labels()[0], "bands: 95 % intervals")
    save(figure, file)


def plan(found: "Plan", bands: "Sequence[tuple[str, Any]]", file: Path) -> None:
    """Draw the inputs, where they lead (median and 90 % of rigs), and what is gained beside the baselines."""
    system = found.system
    rows = len(system.design_names) + len(bands)
    figure = Figure(figsize=(11.0, 1.2 + 1.5 * max(rows, 3)), layout="constrained")
    grid = figure.add_gridspec(rows, 2, width_ratios=(1.3, 1.0))
    first = None
    for i, name in enumerate(system.design_names):
        axes = first = figure.add_subplot(grid[i, 0], sharex=first)
        held = np.append(found.inputs[:, i], found.inputs[-1, i])
        axes.step(np.arange(found.horizon + 1), held, where="post", color=COLOURS[1])
        axes.axhline(system.designs.low[i], color=GREY, linewidth=0.6)
        axes.axhline(system.designs.high[i], color=GREY, linewidth=0.6)
        axes.set_ylabel(plain(labelled(name, system)), fontsize=8)
    for i, (name, (low, middle, high)) in enumerate(bands):
        axes = figure.add_subplot(grid[len(system.design_names) + i, 0], sharex=first)
        after = np.arange(len(middle))
        axes.fill_between(after, low, high, color=COLOURS[0], alpha=0.25, linewidth=0)
        axes.plot(after, middle, color=COLOURS[0])
        for limit in system.limits.get(name, ()):
            if limit is not None:
                axes.axhline(limit, color=COLOURS[1], linewidth=0.8, linestyle="--")
        axes.set_ylabel(plain(labelled(name, system)), fontsize=8)
    axes.set_xlabel("experiments done")
    gains = figure.add_subplot(grid[:, 1])
    for i, estimate in enumerate(sorted(found.comparison, key=lambda each: -each.mean)):
        low, high = estimate.interval
        gains.barh(i, estimate.mean, color=COLOURS[1] if estimate.policy == "plan" else COLOURS[0], height=0.6)
        gains.plot((low, high), (i, i), color="black", linewidth=1.5)
        gains.text(estimate.mean, i, f" {estimate.mean:.2f}", va="center", fontsize=9)
    names = [each.policy for each in sorted(found.comparison, key=lambda each: -each.mean)]
    gains.set_yticks(range(len(names)), [plain(name) for name in names])
    gains.invert_yaxis()
    gains.set_xlim(0, 1.15 * max(each.mean for each in found.comparison))
    gains.set_xlabel("certified gain (nats)")
    for axes in figure.axes:
        axes.grid(alpha=0.3)
    title(figure, f"{system.name}: the inputs that tell most about {', '.join(found.target or system.parameter_names)}")
    save(figure, file)


def labelled(name: str, system: "BaseSystem", what: str = "") -> str:
    """Return a name, and perhaps what of it, with its unit, where it has one."""
    return f"{name}{what} ({system.units[name]})" if name in system.units else f"{name}{what}"


class Behind(NamedTuple):
    """A curve from elsewhere to draw behind one's own: rows of iteration, mean and sd, and a word on what it is."""

    name: str
    points: Float[np.ndarray, "K 3"]


def learning_curve(runs: "Sequence[Log]", file: Path, name: str, behind: Behind | None = None) -> None:
    """Draw the gain of the mean policy against iterations: one run with its interval, or several with their spread."""
    figure = Figure(figsize=(7.0, 4.4), layout="constrained")
    axes = figure.subplots()
    if behind is not None:
        iteration, mean, sd = behind.points.T
        axes.plot(iteration, mean, color=GREY, linestyle="--", label=f"{behind.name}: {mean[-1]:.2f} ± {sd[-1]:.2f}")
        axes.fill_between(iteration, mean - sd, mean + sd, color=GREY, alpha=0.2, linewidth=0)
    length = min(len(run.metrics) for run in runs)
    curves = np.array([[row["eig"] for row in run.metrics[:length]] for run in runs])
    done, mean = np.arange(length), curves.mean(axis=0)
    if len(runs) == 1:
        errors = np.array([row["eig_error"] or np.nan for row in runs[0].metrics], float)
        spread = quantile(runs[0].config.judged - 1) * errors
        label, band = (
            f"nestbed: {mean[-1]:.2f}",
            "95 % interval" + ("" if behind is None else f" ({behind.name}: ± sd)"),
        )
    else:
        spread = curves.std(axis=0, ddof=1)
        label, band = f"nestbed, {len(runs)} trainings: {mean[-1]:.2f} ± {spread[-1]:.2f}", "± sd over trainings"
        axes.plot(done, curves.T, color=COLOURS[0], linewidth=0.6, alpha=0.5)
    axes.plot(done, mean, color=COLOURS[0], label=label)
    axes.fill_between(done, mean - spread, mean + spread, color=COLOURS[0], alpha=0.2, linewidth=0)
    title(figure, name)
    axes.set(
        xlabel="iterations done",
        ylabel="EIG of the mean policy (nats)",
        xlim=(0, max(length - 1, 1 if behind is None else behind.points[-1, 0])),
    )
    axes.grid(alpha=0.3)
    legend(figure, axes.get_legend_handles_labels()[0], f"bands: {band}")
    save(figure, file)


def save_curve(runs: "Sequence[Log]", folder: Path) -> Path:
    """Draw the learning curve of a folder's runs in it, and return the file."""
    with storage.saving(folder):
        learning_curve(runs, folder / CURVE, runs[0].title)
    return folder / CURVE


def save(figure: Figure, file: Path) -> None:
    """Write a picture, whole or not at all."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=150)
    storage.write(file, stream.getvalue())


def style(index: int) -> dict[str, Any]:
    """Return the colour and the line of the curve of that number."""
    return {"color": COLOURS[index % len(COLOURS)], "linestyle": LINES[index // len(COLOURS) % len(LINES)]}


def plain(text: str) -> str:
    """Return text that matplotlib draws as it is: no formula, no label left out for its `_`, nothing invisible."""
    return visible(f" {text}" if text.startswith("_") else text).replace("$", r"\$")


def title(figure: Figure, text: str) -> None:
    """Write a title over the figure, in as many lines as its width asks for."""
    size = 12.0 if _width(text, 12.0) < figure.get_figwidth() - 0.2 else 10.0
    figure.suptitle(plain(wrapped(text, figure.get_figwidth() - 0.2, size)), fontsize=size)


def legend(figure: Figure, handles: Sequence[Any], heading: str | None = None) -> None:
    """Write the legend below the axes, where it covers no curve, and make the figure as much higher."""
    room, size = figure.get_figwidth() - 0.2, 9.0
    labels = [str(handle.get_label()).replace(r"\$", "$") for handle in handles]
    widest = max(_width(label, size) for label in labels) + HANDLE
    columns = max(1, min(len(labels), 3, int(room / widest)))
    labels = [plain(wrapped(label, room / columns - HANDLE, size)) for label in labels]
    look = {"frameon": False, "title": heading, "title_fontsize": size, "alignment": "left", "fontsize": size}
    drawn = figure.legend(handles, labels, loc="outside lower left", ncols=columns, **look)
    figure.set_figheight(figure.get_figheight() + drawn.get_window_extent().height / figure.dpi)


def wrapped(text: str, inches: float, size: float, lines: int = 4) -> str:
    """Return text broken into lines of so many inches; what does not go into so many lines is cut off with a mark."""
    return "\n".join(_broken(line, inches, size, lines) for line in text.splitlines())


def _broken(text: str, inches: float, size: float, lines: int) -> str:
    """Return one paragraph in lines that are narrow enough."""
    whole = _width(text, size)
    if whole <= inches:
        return text
    most = math.ceil(1.5 * len(text) * inches / whole)  # of narrow letters more go into a line than on average
    for count in range(most, 1, -1):
        broken = textwrap.wrap(text, count, max_lines=lines, placeholder=" …")
        if max(_width(line, size) for line in broken) <= inches:
            return "\n".join(broken)
    return text


def _width(text: str, size: float) -> float:
    """Return the width of the longest line in inches."""
    font = FontProperties(size=size)
    lines = visible(text).splitlines()
    sizes = [text_to_path.get_text_width_height_descent(line, font, False)[0] for line in lines]
    return float(max(sizes, default=0.0)) / 72.0
