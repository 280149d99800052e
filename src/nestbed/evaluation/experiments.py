"""Simulated experiments on rigs whose parameters are drawn from the prior, refused where they cannot be judged."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestbed import likelihood as likelihoods
from nestbed.belief import faults
from nestbed.likelihood.base import Record
from nestbed.likelihood.simulation import Simulated, chosen_unseen, play, simulate
from nestbed.model.prior import Components
from nestbed.model.system import BaseSystem
from nestbed.policies.base import looks_at_nothing


def simulated(key: jax.Array, system: BaseSystem, policy: Any, horizon: int, count: int) -> tuple[Components, Record]:
    """Return parameters drawn from the prior and a record for each; raise if one is not finite or left the box."""
    theta, found = simulated_rigs(key, system, policy, horizon, count)
    return theta, found.record


def simulated_rigs(
    key: jax.Array, system: BaseSystem, policy: Any, horizon: int, count: int
) -> tuple[Components, Simulated]:
    """Return the same with the states that were not seen."""
    if looks_at_nothing(policy):
        theta, found = _played(key, system, _unseen(key, system, policy, horizon, count))
    else:
        theta, found = _simulated(key, system, policy, horizon, count)
    _check(system, theta, found.record)
    return theta, found


@eqx.filter_jit
def _simulated(
    key: jax.Array, system: BaseSystem, policy: Any, horizon: int, count: int
) -> tuple[Components, Simulated]:
    """Draw parameters from the prior and a record for each."""
    theta_key, record_key = jax.random.split(key)
    theta = system.parameters.draw(theta_key, (count,))
    return theta, simulate(record_key, system, policy, theta, horizon)


@eqx.filter_jit
def _unseen(key: jax.Array, system: BaseSystem, policy: Any, horizon: int, count: int) -> Float[Array, "N T du"]:
    """Return what `_simulated` would try."""
    return chosen_unseen(jax.random.split(key)[1], system, policy, count, horizon)


@eqx.filter_jit
def _played(key: jax.Array, system: BaseSystem, designs: Float[Array, "N T du"]) -> tuple[Components, Simulated]:
    """Draw parameters from the prior, the same as `_simulated` does, and play designs that are known beforehand."""
    theta_key, record_key = jax.random.split(key)
    theta = system.parameters.draw(theta_key, (designs.shape[0],))
    return theta, play(record_key, system, designs, theta)


def _check(system: BaseSystem, theta: Components, record: Record) -> None:
    """Raise if a design left the box or an observation is not finite."""
    likelihood = likelihoods.of(system)
    if np.isfinite(record.designs).all():
        faults.check_box(system, record.designs)
    bad = np.argwhere(~np.isfinite(record.observations).all(axis=-1))
    if len(bad):
        row, t = (int(i) for i in bad[np.argmin(bad[:, 1])])
        likelihood.check_record(Record(record.observations[:, : t + 1], record.designs))
        blame(system, record, theta, row, t - 1)
    likelihood.check_record(record)
    faults.check_box(system, record.designs)


def blame(system: BaseSystem, record: Record, theta: Components, row: int, step: int) -> None:
    """Raise for one record, whose parameters are in the same row."""
    blamed = jnp.stack([value[row] for value in theta])
    faults.check(system, faults.Fault(jnp.array(step), record.observations[row], record.designs[row], blamed))
