"""The expected information gain of a policy (`eq:eig-estimator`)."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from nestbed import belief as beliefs
from nestbed import checks, interrupts, noise
from nestbed.belief.base import Belief
from nestbed.errors import at_least_one
from nestbed.evaluation.intervals import Interval, of_mean
from nestbed.policies.base import prepare
from nestbed.smc import faults
from nestbed.smc.potential import Potential
from nestbed.smc.sweep import check_gain_form, compiled_sweep
from nestbed.system import BaseSystem

BLOCK = 8
"""Trajectories run together. They are independent here, so blocks of them share the cores better than one large
program does; the size never depends on the machine, so neither do the numbers."""


@dataclass(frozen=True)
class Estimate:
    """An average over independent trajectories, in nats."""

    mean: float
    standard_error: float  # NaN for a single trajectory
    gains: Float[np.ndarray, " N"] = field(repr=False)  # information gained by each trajectory
    steps: Float[np.ndarray, "N T"] = field(repr=False)  # the same, by each of its experiments

    @property
    def interval(self) -> Interval:
        """Where the expected gain lies, with 95 % confidence: by Student's t, corrected for skewness."""
        return of_mean(self.gains)


def eig(
    key: jax.Array,
    system: BaseSystem,
    policy: Any,
    *,
    horizon: int | None = None,
    trajectories: int = 16,
    particles: int = 1024,
    moves: int = 3,
    belief: str | Belief = "ibis",
    gain: str = "general",
    progress: Callable[[int], None] | None = None,
) -> Estimate:
    """Estimate the expected information gain from independent trajectories of the marginal (a sweep with η = 0).

    `progress` is called with the number of trajectories just finished, from any thread.
    """
    checks.instance(system)
    horizon = system.horizon if horizon is None else horizon
    at_least_one(horizon=horizon, trajectories=trajectories)
    made = beliefs.make(belief, system, particles, moves)
    check_gain_form(made, gain)
    ready = prepare(policy, system, horizon)
    return estimate(noise.as_key(key), made, ready, horizon, trajectories, gain, BLOCK, progress)


def estimate(
    key: jax.Array,
    belief: Belief,
    policy: Any,
    horizon: int,
    trajectories: int,
    gain: str,
    block: int,
    progress: Callable[[int], None] | None = None,
) -> Estimate:
    """Do the same with everything made and checked, `block` trajectories in one program."""
    size = -(-trajectories // max(1, round(trajectories / block)))
    blocks = -(-trajectories // size)
    keys = jax.random.split(key, blocks)
    neutral = Potential(*jnp.zeros(3))

    def run_block(index: int) -> np.ndarray:
        interrupts.check()
        result, fault = compiled_sweep(keys[index], belief, policy, neutral, horizon, size, gain, None, False)
        faults.check_all(belief.system, fault, result.states, result.designs)
        if progress is not None:
            progress(min(size, trajectories - index * size))
        return np.asarray(result.gains)

    with ThreadPoolExecutor(min(blocks, cores())) as pool:
        steps = np.concatenate(list(pool.map(run_block, range(blocks))))[:trajectories]
    gains = steps.sum(axis=1)
    error = gains.std(ddof=1) / np.sqrt(trajectories) if trajectories > 1 else np.nan
    return Estimate(float(gains.mean()), float(error), gains, steps)


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
