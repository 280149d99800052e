"""Pictures of a posterior: parameters before and after, the fit over time, and what is left of it."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from nestbed.faces.figures import COLOURS, GREY, labelled, legend, plain, save, title
from nestbed.faces.findings import Findings

ACROSS = 3
"""Panels in a row, of parameters."""
MANY = 400
"""Samples beyond which their marks are drawn smaller."""
FAR = 3.0
"""Times the height that mostly does, beyond which a panel is logarithmic at its ends."""


def marginals(found: Findings, file: Path) -> None:
    """Draw the density of each parameter before and after, with its 95 % interval."""
    count = len(found.marginals)
    columns = 2 if count == 4 else min(ACROSS, count)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(max(3.2 * columns, 6.4), 0.9 + 2.4 * rows), layout="constrained")
    every = figure.subplots(rows, columns, squeeze=False).ravel()
    for i, (axes, each) in enumerate(zip(every, found.marginals, strict=False)):
        _density(axes, np.asarray(found.system.parameters.draws[i]), GREY, "prior")
        _density(axes, found.draws[:, i], COLOURS[0], "posterior")
        axes.axvspan(each.quantiles[0], each.quantiles[2], color=COLOURS[0], alpha=0.12, linewidth=0, label="95 %")
        axes.set_xlim(*_reach(found, i))
        axes.set_xlabel(plain(labelled(each.name, found.system)), fontsize=9)
        axes.set_yticks([])
        axes.tick_params(labelsize=8)
        axes.locator_params(axis="x", nbins=5)
    for axes in every[count:]:
        axes.set_axis_off()
    title(figure, f"{found.system.name}: parameters before and after the data (each curve to its own height)")
    legend(figure, every[0].get_legend_handles_labels()[0])
    save(figure, file)


def _density(axes: Any, values: np.ndarray, colour: str, label: str) -> None:
    """Draw a smoothed histogram as high as the panel, whatever its width: both shapes are to be seen."""
    low, high = np.quantile(values, (0.001, 0.999))
    spread = float(np.std(np.clip(values, low, high)))
    if not spread > 0.0:
        axes.axvline(values[0], color=colour, label=label)
        return
    grid = np.linspace(low - spread, high + spread, 400)
    width = 1.06 * spread * len(np.unique(values)) ** -0.2
    heights = np.exp(-0.5 * ((grid[:, None] - values[:4096]) / width) ** 2).sum(axis=1)
    axes.plot(grid, heights / heights.max(), color=colour, label=label)
    axes.fill_between(grid, 0.0, heights / heights.max(), color=colour, alpha=0.15, linewidth=0)


def _reach(found: Findings, i: int) -> tuple[float, float]:
    """Return what of the axis is shown: nearly all of the prior, and all of the posterior."""
    low, high = np.quantile(np.asarray(found.system.parameters.draws[i]), (0.005, 0.995))
    values = found.draws[:, i]
    low, high = min(low, values.min()), max(high, values.max())
    return float(low - 0.03 * (high - low)), float(high + 0.03 * (high - low))


def fit(found: Findings, file: Path) -> None:
    """Draw what was measured beside what was expected, hidden states and designs, over time; a column per record."""
    system, count = found.system, len(found.records)
    unseen = [i for i, name in enumerate(system.state_names) if name not in system.observation_names]
    seen, hidden = system.observation_names, [system.state_names[i] for i in unseen]
    off = [] if found.posterior.course is None else [labelled(name, system, "\nless expected") for name in seen]
    names = [*(labelled(name, system) for name in seen), *off, *(labelled(name, system) for name in hidden)]
    names += [labelled(name, system) for name in system.design_names]
    figure = Figure(figsize=(max(9.0, 5.0 * count), 1.4 + 1.9 * len(names)), layout="constrained")
    panels = figure.subplots(len(names), count, squeeze=False, sharex="col", sharey="row")
    for k in range(count):
        _fitted(panels[:, k], found, k, unseen)
        panels[-1, k].set_xlabel(plain(labelled("time", system)), fontsize=9)
        if count > 1:
            panels[0, k].set_title(plain(found.names[k]), fontsize=9)
    for axes, name in zip(panels[:, 0], names, strict=True):
        axes.set_ylabel(plain(name), fontsize=9)
    for i, axes in enumerate(panels[len(seen) : len(seen) + len(off), 0]):
        _near(found, axes, i)
    title(figure, f"{system.name}: what was measured, and what the model expects")
    shown = {str(h.get_label()): h for axes in panels[:, 0] for h in axes.get_legend_handles_labels()[0]}
    legend(figure, list(shown.values()), "bands: ± 2 standard deviations")
    save(figure, file)


def _fitted(panels: Any, found: Findings, k: int, unseen: list[int]) -> None:
    """Draw one record into its column of panels."""
    record, course, system = found.records[k], found.posterior.course, found.system
    times = record.times if record.times is not None else system.step * np.arange(len(record.observations))
    seen = len(system.observation_names)
    for i in range(seen):
        _measured(panels[i], times, record.observations[:, i])
    if course is not None:
        at, _ = found.rows(k)
        for i in range(seen):  # before its first reading nothing is known of a record but the prior
            mean, sd, y = (part[1:, i] for part in (course.expected[at], course.expected_sd[at], record.observations))
            _band(panels[i], times[1:], mean, sd, COLOURS[0], "expected before reading")
            _measured(panels[seen + i], times[1:], y - mean)
            _band(panels[seen + i], times[1:], np.zeros_like(sd), sd, COLOURS[0], "expected before reading")
        for axes, i in zip(panels[2 * seen :], unseen, strict=False):
            _band(axes, times, course.states[at, i], course.states_sd[at, i], COLOURS[2], "hidden state")
    for axes, values in zip(panels[-record.designs.shape[1] :], record.designs.T, strict=True):
        axes.step(times, np.append(values, values[-1]), where="post", color=COLOURS[1], label="design")
    for axes in panels:
        axes.grid(alpha=0.3)
        axes.tick_params(labelsize=8)


def _measured(axes: Any, times: np.ndarray, values: np.ndarray) -> None:
    size = 4.0 if len(times) <= MANY else 2.5
    axes.plot(times, values, ".", color="black", markersize=size, markeredgewidth=0, label="measured", zorder=5)


def _near(found: Findings, axes: Any, i: int) -> None:
    """Show all that is off; what is far beyond five deviations, as they mostly are, by its logarithm."""
    course = found.posterior.course
    assert course is not None
    rows = [found.rows(k)[0] for k in range(len(found.records))]
    sds = np.concatenate([course.expected_sd[at][1:, i] for at in rows])
    seen = np.concatenate([each.observations[1:, i] for each in found.records])
    off = seen - np.concatenate([course.expected[at][1:, i] for at in rows])
    near = 5.0 * float(np.median(sds)) or 1.0
    most = 1.05 * float(np.nanmax([near, 2.0 * sds.max(), *np.abs(off)]))
    if most > FAR * near:
        axes.set_yscale("symlog", linthresh=near)
    axes.set_ylim(-most, most)


def _band(axes: Any, times: np.ndarray, mean: np.ndarray, sd: np.ndarray, colour: str, label: str) -> None:
    axes.fill_between(times, mean - 2.0 * sd, mean + 2.0 * sd, color=colour, alpha=0.25, linewidth=0)
    axes.plot(times, mean, color=colour, linewidth=1.2, label=label, zorder=4)


def residuals(found: Findings, file: Path) -> None:
    """Draw residuals in time with ± 2, their histogram beside the standard normal, and their autocorrelation."""
    names = found.system.observation_names
    z = np.asarray(found.posterior.residuals)
    figure = Figure(figsize=(11.0, 1.2 + 2.3 * len(names)), layout="constrained")
    panels = figure.subplots(len(names), 3, squeeze=False, width_ratios=(1.8, 1.0, 1.0))
    for i, (name, (along, spread, lags)) in enumerate(zip(names, panels, strict=True)):
        along.axhspan(-2.0, 2.0, color=COLOURS[0], alpha=0.15, linewidth=0, label="± 2: 95 % of what is expected")
        along.plot(z[:, i], ".", color="black", markersize=3, alpha=0.7, label="residual")
        along.set_ylim(*(side * max(3.0, 1.1 * float(np.nanmax(np.abs(z[:, i]), initial=0.0))) for side in (-1.0, 1.0)))
        along.set_ylabel(plain(f"{name} (standard deviations)"), fontsize=9)
        for k in range(1, len(found.records)):
            along.axvline(found.rows(k)[1].start - 0.5, color=GREY, linewidth=0.8)
        _histogram(spread, z[:, i])
        _autocorrelation(lags, z[:, i])
    for axes, words in zip(panels[-1], ("experiment", "residual", "lag (samples)"), strict=True):
        axes.set_xlabel(words, fontsize=9)
    for axes in panels.ravel():
        axes.grid(alpha=0.3)
        axes.tick_params(labelsize=8)
    title(figure, f"{found.system.name}: outcomes in units of what was predicted before them")
    shown = {str(handle.get_label()): handle for axes in panels[0] for handle in axes.get_legend_handles_labels()[0]}
    legend(figure, list(shown.values()))
    save(figure, file)


def _histogram(axes: Any, z: np.ndarray) -> None:
    seen = z[np.isfinite(z)]
    edge = max(4.0, float(np.abs(seen).max()) if len(seen) else 0.0)
    axes.hist(seen, bins=np.linspace(-edge, edge, 33), density=True, color=COLOURS[0], alpha=0.5, label="found")
    grid = np.linspace(-edge, edge, 400)
    axes.plot(grid, np.exp(-0.5 * grid**2) / math.sqrt(2 * math.pi), color=COLOURS[1], label="expected: N(0, 1)")
    axes.set_ylabel("density", fontsize=9)


def _autocorrelation(axes: Any, z: np.ndarray) -> None:
    """Draw the correlation of samples so many apart, with what 95 % of white ones stay within."""
    count = int(np.isfinite(z).sum())
    most = max(1, min(30, count // 4))
    centred = z - np.nanmean(z) if count else z
    total = np.nanmean(centred**2) if count else 1.0
    lags, found = np.arange(1, most + 1), []
    for lag in lags:
        products = centred[lag:] * centred[:-lag]
        found.append(np.nanmean(products) / total if np.isfinite(products).any() and total > 0.0 else 0.0)
    bound = 1.96 / math.sqrt(max(count, 1))
    axes.axhspan(-bound, bound, color=COLOURS[2], alpha=0.2, linewidth=0, label="95 % of white residuals")
    axes.vlines(lags, 0.0, found, color=COLOURS[0], linewidth=1.5)
    axes.plot(lags, found, ".", color=COLOURS[0], markersize=4)
    axes.set_ylabel("autocorrelation", fontsize=9)
    low, high = min(-0.4, *found), max(0.4, *found)
    axes.set_ylim(1.1 * low, 1.1 * high)
