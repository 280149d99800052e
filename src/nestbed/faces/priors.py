"""A picture of where a prior leads: rigs drawn from it, under random designs."""

from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure

from nestbed.evaluation import experiments
from nestbed.faces.figures import COLOURS, GREY, labelled, plain, save, title
from nestbed.model.system import BaseSystem
from nestbed.policies.base import prepare
from nestbed.policies.random import Random

RIGS, DRAWN = 128, 6
"""Rigs whose 90 % band is drawn, and those that are drawn themselves."""


def prior_predictive(key: jax.Array, system: BaseSystem, file: Path) -> None:
    """Draw every state of rigs over time, with their limits: what to expect before any experiment."""
    policy = prepare(Random(system), system, system.horizon)
    _, rigs = experiments.simulated_rigs(key, system, policy, system.horizon, RIGS)
    states = np.asarray(rigs.states)
    figure = Figure(figsize=(8.0, 1.0 + 1.7 * len(system.state)), layout="constrained")
    panels = figure.subplots(len(system.state), 1, sharex=True, squeeze=False)[:, 0]
    times = system.step * np.arange(states.shape[1])
    for i, (name, axes) in enumerate(zip(system.state, panels, strict=True)):
        low, middle, high = np.nanquantile(states[:, :, i], (0.05, 0.5, 0.95), axis=0)
        axes.fill_between(times, low, high, color=COLOURS[0], alpha=0.2, linewidth=0)
        axes.plot(times, middle, color=COLOURS[0])
        axes.plot(times, states[:DRAWN, :, i].T, color=GREY, linewidth=0.6)
        for limit in system.limits.get(name, ()):
            if limit is not None:
                axes.axhline(limit, color=COLOURS[1], linewidth=0.8, linestyle="--")
        axes.set_ylabel(plain(labelled(name, system)), fontsize=8)
        axes.grid(alpha=0.3)
    panels[-1].set_xlabel(plain(labelled("time", system)))
    title(figure, f"{system.name}: {RIGS} rigs of the prior under random designs (median, 90 %, {DRAWN} of them)")
    save(figure, file)
