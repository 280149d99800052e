"""The paper's figures, ours beside the published points; the paper is always grey."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from nestbed.faces.figures import COLOURS, GREY, LINES, legend, plain, save, title, wrapped
from nestbed.model.system import BaseSystem
from nestbed.numerics.intervals import quantile
from nestbed.runs.run import Log
from paper.tables import PAPER_SEEDS, Gain, Particles, Row, learning_curve


def policies(rows: Sequence[Row], names: Mapping[str, str], file: Path, name: str) -> None:
    """Draw a line per policy: estimate and lower bound with 95 % intervals, and what the paper has for both."""
    order = list(dict.fromkeys(row.policy for row in rows))
    shown = {"eig": ("EIG", COLOURS[0], "o", -0.16), "spce": ("sPCE (lower bound)", COLOURS[1], "s", 0.16)}
    figure = Figure(figsize=(7.5, 1.2 + 0.42 * len(order)), layout="constrained")
    axes = figure.subplots()
    for row in rows:
        if row.metric not in shown:
            continue
        _, colour, marker, shift = shown[row.metric]
        y = order.index(row.policy) + shift
        if row.paper_mean is not None and row.paper_sd is not None:
            reach = quantile(PAPER_SEEDS - 1) * row.paper_sd / PAPER_SEEDS**0.5
            axes.errorbar(row.paper_mean, y, xerr=reach, color=GREY, marker=marker, mfc="white", capsize=2, lw=1)
        reach = quantile(row.values - 1) * row.standard_error
        axes.errorbar(row.mean, y, xerr=reach, color=colour, marker=marker, ms=5, capsize=2, lw=1.2)
        if row.policies > 1:
            axes.plot([row.lowest, row.highest], [y, y], color=colour, lw=5, alpha=0.25, solid_capstyle="butt")
    axes.set_yticks(range(len(order)), [plain(wrapped(names[policy], 2.6, 10.0, 2)) for policy in order])
    title(figure, f"{name}: what each policy gains")
    axes.set(xlabel="information gain (nats)", ylim=(len(order) - 0.4, -0.6))
    axes.grid(alpha=0.3)
    keys = [Line2D([], [], color=colour, marker=marker, label=label) for label, colour, marker, _ in shown.values()]
    keys.append(Line2D([], [], color=GREY, marker="o", mfc="white", label="paper, alike"))
    if any(row.policies > 1 for row in rows):
        keys.append(Line2D([], [], color=COLOURS[0], lw=5, alpha=0.25, label="lowest to highest trained policy"))
    legend(figure, keys, "bars: 95 % intervals")
    save(figure, file)


def learning_curves(groups: Mapping[str, Sequence[Log]], file: Path, name: str) -> None:
    """Draw the gain of the mean policy against iterations, for each method its trainings beside the paper's."""
    figure = Figure(figsize=(7.0, 4.4), layout="constrained")
    axes = figure.subplots()
    longest = 1.0
    for i, (method, runs) in enumerate(groups.items()):
        colour, line = COLOURS[i % len(COLOURS)], LINES[i % len(LINES)]
        theirs = learning_curve(runs[0])
        if theirs is not None:
            iteration, mean, sd = theirs.T
            label = f"paper, {method}, {PAPER_SEEDS} trainings: {mean[-1]:.2f} ± {sd[-1]:.2f}"
            axes.plot(iteration, mean, color=GREY, linestyle=line, label=label)
            axes.fill_between(iteration, mean - sd, mean + sd, color=GREY, alpha=0.2, linewidth=0)
            longest = max(longest, iteration[-1])
        curves = np.array([[row["eig"] for row in run.metrics] for run in runs])
        done, mean = np.arange(curves.shape[1]), curves.mean(axis=0)
        spread = curves.std(axis=0, ddof=1) if len(runs) > 1 else np.zeros_like(mean)
        trainings = f"{len(runs)} training{'s' * (len(runs) > 1)}"
        end = f"{mean[-1]:.2f}" + (f" ± {spread[-1]:.2f}" if len(runs) > 1 else "")
        axes.plot(done, mean, color=colour, linestyle=line, label=f"{method}, {trainings}: {end}")
        axes.fill_between(done, mean - spread, mean + spread, color=colour, alpha=0.2, linewidth=0)
        longest = max(longest, done[-1])
    title(figure, name)
    axes.set(xlabel="iterations done", ylabel="EIG of the mean policy (nats)", xlim=(0, longest))
    axes.grid(alpha=0.3)
    bands = "bands: ± sd over trainings" if any(len(runs) > 1 for runs in groups.values()) else None
    legend(figure, axes.get_legend_handles_labels()[0], bands)
    save(figure, file)


def information_gain(gains: Sequence[Gain], names: Mapping[str, str], file: Path) -> None:
    """Draw the information gained on the linear pendulum, and the paper's points where they were really taken."""
    figure = Figure(figsize=(7.0, 4.4), layout="constrained")
    axes = figure.subplots()
    for i, gain in enumerate(gains):
        done = np.arange(len(gain.mean) + 1)
        mean, sd = (np.insert(values, 0, 0.0) for values in (gain.mean, gain.sd))
        many = f" ({gain.policies} policies)" if gain.policies > 1 else ""
        axes.plot(done, mean, color=COLOURS[i], label=f"{names[gain.policy]}{many}: {mean[-1]:.2f}")
        axes.fill_between(done, mean - sd, mean + sd, color=COLOURS[i], alpha=0.15, linewidth=0)
        if gain.paper is not None:
            at, theirs, spread = gain.paper.T
            axes.errorbar(
                at,
                theirs,
                yerr=spread,
                color=GREY,
                ecolor=COLOURS[i],
                mec=COLOURS[i],
                mfc="white",
                fmt="o",
                ms=4,
                lw=0.8,
            )
    axes.errorbar([], [], yerr=[], color=GREY, mec=GREY, mfc="white", fmt="o", ms=4, label="paper, ± sd")
    title(figure, "Linear pendulum: information gained in closed form")
    axes.set(
        xlabel="experiments done",
        ylabel="information gained (nats)",
        xlim=(0, done[-1]),
        ylim=(0, None),
    )
    axes.grid(alpha=0.3)
    legend(figure, axes.get_legend_handles_labels()[0], "bands: ± sd over realisations")
    save(figure, file)


def trajectory(
    system: BaseSystem,
    observations: Sequence[Sequence[float]],
    designs: Sequence[Sequence[float]],
    file: Path,
    name: str,
) -> None:
    """Draw one record against time: observations above, designs below, held between experiments."""
    x, u = np.array(observations), np.array(designs)
    time = system.step * np.arange(len(x))
    figure = Figure(figsize=(7.0, 5.2), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    for i, label in enumerate(_named(system, system.state_names)):
        above.plot(time, x[:, i], color=COLOURS[i % len(COLOURS)], linestyle=LINES[i % len(LINES)], label=label)
    for i, label in enumerate(_named(system, system.design_names)):
        held = np.append(u[:, i], u[-1, i])
        colour, line = COLOURS[i % len(COLOURS)], LINES[i % len(LINES)]
        below.step(time, held, where="post", color=colour, linestyle=line, label=label)
    title(figure, f"{name}: one deployment of the trained policy")
    above.set(ylabel="state")
    below.set(xlabel="time (s)", ylabel="design", xlim=(0, time[-1]))
    for axes in (above, below):
        axes.grid(alpha=0.3)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize="small")
    save(figure, file)


def particle_study(rows: Sequence[Particles], file: Path) -> None:
    """Draw both estimates against the number of particles."""
    figure = Figure(figsize=(7.0, 4.0), layout="constrained")
    axes = figure.subplots()
    at = [row.particles for row in rows]
    for i, (metric, name) in enumerate((("eig", "EIG"), ("spce", "sPCE"))):
        own = np.array([getattr(row, metric) for row in rows])
        axes.errorbar(at, own[:, 0], yerr=own[:, 1], color=COLOURS[i], marker="o", capsize=3, label=name)
        theirs = [(r.particles, r.paper[f"{metric}_mean"], r.paper[f"{metric}_sd"]) for r in rows if r.paper]
        if theirs:
            x, mean, sd = np.array(theirs).T
            axes.errorbar(
                x * 1.06,
                mean,
                yerr=sd,
                color=GREY,
                marker="o",
                mfc="white",
                linestyle=LINES[i],
                capsize=3,
                label=f"paper, {name}",
            )
    axes.plot(
        at, [row.limit for row in rows], color="black", linestyle=":", lw=1, label="log(M + 1), the limit of sPCE"
    )
    axes.set_xscale("log", base=2)
    axes.set_xticks(at, [str(count) for count in at])
    axes.minorticks_off()
    title(figure, "Cart-pole: how many particles an estimate takes")
    axes.set(
        xlabel="parameter particles, or contrastive draws, M",
        ylabel="information gain (nats)",
        ylim=(0, None),
    )
    axes.grid(alpha=0.3)
    legend(figure, axes.get_legend_handles_labels()[0], "bars: ± sd over seeds")
    save(figure, file)


def _named(system: BaseSystem, names: Sequence[str]) -> list[str]:
    """Return names with their units, for a legend beside the axes."""
    units = [f" ({system.units[name]})" if system.units.get(name) else "" for name in names]
    return [
        plain(wrapped(f"{name.replace('_', ' ')}{unit}", 1.6, 9.0)) for name, unit in zip(names, units, strict=True)
    ]
