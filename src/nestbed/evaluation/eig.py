"""The expected information gain of a policy (`eq:eig-estimator`)."""

import warnings
from typing import Any

import jax
import numpy as np

from nestbed import belief as beliefs
from nestbed.belief import faults, learning
from nestbed.belief.base import Belief
from nestbed.belief.potential import Potential
from nestbed.evaluation.estimates import Estimate
from nestbed.model import checks
from nestbed.model.system import BaseSystem
from nestbed.numerics import blocks, noise
from nestbed.numerics.errors import at_least_one
from nestbed.numerics.progress import Progress, Watch
from nestbed.policies.base import Policy, prepare
from nestbed.smc.sweep import firm_sweep


def eig(
    key: jax.Array,
    system: BaseSystem,
    policy: Policy,
    *,
    horizon: int | None = None,
    trajectories: int = 16,
    particles: int | None = None,
    moves: int = 3,
    belief: str | Belief = "guided",
    gain: str = "general",
    progress: Watch[Progress] | None = None,
) -> Estimate:
    """Estimate the expected information gain from independent trajectories of the marginal (a sweep with η = 0).

    Args:
        key: a jax key; the same key gives the same numbers.
        system: the model.
        policy: what chooses the designs.
        horizon: T, experiments per trajectory; by default the system's.
        trajectories: N, simulated records.
        particles: M, parameter particles per record: by default 64 for guided beliefs and 1024 for IBIS, with which one
            experiment's estimated gain cannot exceed log M.
        moves: Metropolis steps whenever a record's particles are rejuvenated, for IBIS.
        belief: the name of a belief, "guided", "ibis" or "exact", or a belief object.
        gain: the form of the gain: "general", "constant_noise", or "closed_form" for exact beliefs.
        progress: called with how many trajectories are done, `.done` of `.total`, from any thread.

    Returns:
        The mean gain in nats with its standard error and interval, the gain of every trajectory (`.values`) and of
        every experiment (`.steps`, N × T). Where experiments gain about as much as M particles can show, a warning
        says so, and `.limit` does.
    """
    checks.instance(system)
    horizon = system.horizon if horizon is None else horizon
    at_least_one(horizon=horizon, trajectories=trajectories)
    made = beliefs.make(belief, system, particles, moves)
    learning.check_gain(made, gain)
    ready = prepare(policy, system, horizon)
    found = estimate(
        noise.as_key(key), made, ready, horizon, trajectories, gain, block=made.together, progress=progress
    )
    if found.limit:
        warnings.warn(found.limit, stacklevel=2)
    return found


def estimate(
    key: jax.Array,
    belief: Belief,
    policy: Any,
    horizon: int,
    trajectories: int,
    gain: str,
    *,
    block: int,
    progress: Watch[Progress] | None = None,
) -> Estimate:
    """Do the same with everything made and checked, `block` trajectories in one program."""
    size = min(block, 1 << (trajectories - 1).bit_length())
    if not belief.padded:
        size = -(-trajectories // max(1, round(trajectories / block)))
    keys = jax.random.split(key, -(-trajectories // size))
    neutral = Potential.of(belief.system, 0.0, 0.0, 0.0)

    def gains(index: int) -> np.ndarray:
        result, fault = firm_sweep(
            keys[index], belief, policy, neutral, horizon=horizon, count=size, gain=gain, reference=None, keep=False
        )
        faults.check_all(belief.system, fault, result.record)
        learning.warn_of_doubts(belief, result.belief, index * size)
        return np.asarray(result.gains)

    steps = np.concatenate(blocks.run(trajectories, size, gains, progress, "eig"))[:trajectories]
    return Estimate(steps.sum(axis=1), steps=steps, limit=learning.limited(belief, steps))
