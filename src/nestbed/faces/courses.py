"""A picture of what a policy does on rigs that were not seen before, and where that leads."""

from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure

from nestbed.evaluation import experiments
from nestbed.faces.figures import COLOURS, GREY, labelled, plain, save, title
from nestbed.model.system import BaseSystem
from nestbed.policies.base import Policy, prepare

RIGS, DRAWN = 128, 4
"""Rigs whose 90 % band is drawn, and those that are drawn themselves."""


def course(key: jax.Array, system: BaseSystem, policy: Policy, horizon: int, file: Path) -> None:
    """Draw designs and observations of simulated rigs: the middle, 90 % of them, and a few."""
    _, rigs = experiments.simulated_rigs(key, system, prepare(policy, system, horizon), horizon, RIGS)
    designs, seen = np.asarray(rigs.record.designs), np.asarray(rigs.record.observations)
    names = (*system.design_names, *system.observation_names)
    figure = Figure(figsize=(9.0, 1.0 + 1.6 * len(names)), layout="constrained")
    panels = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    values = [*np.moveaxis(designs, -1, 0), *np.moveaxis(seen, -1, 0)]
    for i, (name, rows, axes) in enumerate(zip(names, values, panels, strict=True)):
        chosen = i < len(system.design_names)
        colour, place = COLOURS[chosen], np.arange(rows.shape[1])
        low, middle, high = np.nanquantile(rows, (0.05, 0.5, 0.95), axis=0)
        axes.fill_between(place, low, high, color=colour, alpha=0.2, linewidth=0, step="post" if chosen else None)
        axes.plot(place, rows[:DRAWN].T, color=GREY, linewidth=0.6, drawstyle="steps-post" if chosen else None)
        axes.plot(place, middle, color=colour, drawstyle="steps-post" if chosen else None)
        ends = (system.designs.low[i], system.designs.high[i]) if chosen else system.limits.get(name, ())
        for limit in (each for each in ends if each is not None):
            axes.axhline(limit, color=GREY if chosen else COLOURS[1], linewidth=0.8, linestyle="--")
        axes.set_ylabel(plain(labelled(name, system)), fontsize=8)
        axes.grid(alpha=0.3)
    panels[-1].set_xlabel("experiments done")
    title(figure, f"{system.name}: what the policy does, and what is seen ({RIGS} rigs: median, 90 %, {DRAWN} of them)")
    save(figure, file)
