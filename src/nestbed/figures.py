"""Every picture, drawn with colours that colour-blind eyes can tell apart."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.text import Text

from nestbed import storage
from nestbed.text import visible

if TYPE_CHECKING:
    from nestbed.evaluation.comparison import Comparison
    from nestbed.runs import Log
    from nestbed.system import BaseSystem

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES = ("-", "--", ":")
GREY = "#666666"


def information_gain(scores: "Comparison", system: "BaseSystem", file: Path, name: str | None = None) -> None:
    """Draw information gained against experiments done, with a band of two standard errors."""
    figure = Figure(figsize=(7.0, 4.4), layout="constrained")
    axes = figure.subplots()
    for i, score in enumerate(scores):
        total = np.cumsum(score.steps, axis=1)
        done = np.arange(total.shape[1] + 1)
        mean = np.insert(total.mean(axis=0), 0, 0.0)
        error = np.insert(total.std(axis=0, ddof=1) / np.sqrt(len(total)), 0, 0.0) if len(total) > 1 else 0 * mean
        colour, line = COLOURS[i % len(COLOURS)], LINES[i // len(COLOURS) % len(LINES)]
        axes.plot(done, mean, color=colour, linestyle=line, label=f"{score.policy}: {score.mean:.2f} nats")
        axes.fill_between(done, mean - 2 * error, mean + 2 * error, color=colour, alpha=0.2, linewidth=0)
    learned = "what each policy learns" if len(scores) > 1 else f"what {scores[0].policy} learns"
    axes.set(
        title=f"{name or system.name}: {learned} about {', '.join(system.parameter_names)}",
        xlabel="experiments done",
        ylabel="information gained (nats)",
        xlim=(0, done[-1]),
    )
    axes.grid(alpha=0.3)
    told = {"frameon": False, "title": "band: ± 2 standard errors", "alignment": "left"}
    if len(scores) <= 5:
        axes.legend(loc="upper left", **told)
    else:
        figure.legend(loc="outside lower left", ncols=2, fontsize="small", **told)  # it would cover the curves
    save(figure, file)


def learning_curve(runs: "Sequence[Log]", file: Path, name: str) -> None:
    """Draw the gain of the mean policy against iterations: one run with its error, or several with their spread."""
    figure = Figure(figsize=(7.0, 4.4), layout="constrained")
    axes = figure.subplots()
    theirs = runs[0].published()
    if theirs is not None:
        iteration, mean, sd = theirs.T
        axes.plot(
            iteration, mean, color=GREY, linestyle="--", label=f"paper, 25 trainings: {mean[-1]:.2f} ± {sd[-1]:.2f}"
        )
        axes.fill_between(iteration, mean - sd, mean + sd, color=GREY, alpha=0.2, linewidth=0)
    length = min(len(run.metrics) for run in runs)
    curves = np.array([[row["eig"] for row in run.metrics[:length]] for run in runs])
    done, mean = np.arange(length), curves.mean(axis=0)
    if len(runs) == 1:
        spread = 2 * np.array([row["eig_error"] or np.nan for row in runs[0].metrics], float)
        told, band = f"nestbed: {mean[-1]:.2f}", "± 2 standard errors" + ("" if theirs is None else " (paper: ± sd)")
    else:
        spread = curves.std(axis=0, ddof=1)
        told, band = f"nestbed, {len(runs)} trainings: {mean[-1]:.2f} ± {spread[-1]:.2f}", "± sd over trainings"
        axes.plot(done, curves.T, color=COLOURS[0], linewidth=0.6, alpha=0.5)
    axes.plot(done, mean, color=COLOURS[0], label=told)
    axes.fill_between(done, mean - spread, mean + spread, color=COLOURS[0], alpha=0.2, linewidth=0)
    axes.set_title(name, fontsize="small" if "\n" in name else None)
    axes.set(
        xlabel="iterations done",
        ylabel="expected information gain of the mean policy (nats)",
        xlim=(0, max(length - 1, 1 if theirs is None else theirs[-1, 0])),
    )
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", frameon=False, title=f"bands: {band}", alignment="left")
    save(figure, file)


def save(figure: Figure, file: Path) -> None:
    """Write a picture, whole or not at all; names in it are shown as they are, never read as formulas."""
    ticks = {text for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for text in axis.findobj(Text)}
    for text in figure.findobj(Text):
        if text not in ticks:
            text.set_parse_math(False)
            text.set_text(visible(text.get_text()))
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=150)
    storage.write(file, stream.getvalue())
