"""The expected information gain of a policy (`eq:eig-estimator`)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestbed import belief as beliefs
from nestbed import noise
from nestbed.belief.base import Belief
from nestbed.errors import at_least_one
from nestbed.policies.base import prepare
from nestbed.smc import faults
from nestbed.smc.sweep import Potential, check_gain_form, compiled_sweep
from nestbed.system import BaseSystem


class Estimate(NamedTuple):
    """An average over independent trajectories, in nats."""

    mean: float
    standard_error: float  # NaN for a single trajectory
    gains: Float[Array, " N"]  # information gained by each trajectory


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
) -> Estimate:
    """Estimate the expected information gain from independent trajectories of the marginal (a sweep with η = 0)."""
    horizon = system.horizon if horizon is None else horizon
    at_least_one(horizon=horizon, trajectories=trajectories)
    check_gain_form(system, gain)
    made = beliefs.make(belief, system, particles, moves)
    neutral = Potential(*jnp.zeros(3))
    result, fault = compiled_sweep(
        noise.as_key(key), made, prepare(policy, system), neutral, horizon, trajectories, gain, None, False
    )
    faults.check(system, fault, result.designs)
    gains = np.asarray(jnp.sum(result.gains, axis=1))
    error = gains.std(ddof=1) / np.sqrt(trajectories) if trajectories > 1 else float("nan")
    return Estimate(float(gains.mean()), float(error), gains)
