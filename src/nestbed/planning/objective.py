"""What a sequence of inputs tells: the expected Gauss–Newton gain ½ log det(I + Σ₀F), over prior and noise.

F is the Fisher information that a simulated record has about the parameters that made it, in coordinates where the
prior has unit covariance. It needs the likelihood's interface alone.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestbed import likelihood as likelihoods
from nestbed.belief import proposal
from nestbed.likelihood import sensitivity
from nestbed.likelihood.base import Record
from nestbed.model import limits
from nestbed.model.prior import Components
from nestbed.model.system import BaseSystem
from nestbed.model.target import Target
from nestbed.numerics import linear_algebra, noise


class Rigs(NamedTuple):
    """R rigs to try sequences on: the same parameters, starts and noise for all."""

    theta: Components  # (R,) each
    w: Components  # the same, whitened
    first: Float[Array, "R dy"]
    normals: Float[Array, "T dy R"]


def draw(key: jax.Array, system: BaseSystem, horizon: int, count: int) -> Rigs:
    """Draw rigs from the prior."""
    theta_key, start_key, noise_key = jax.random.split(key, 3)
    prior = system.parameters
    position = prior.sample(theta_key, (count,))
    first = likelihoods.of(system).sample_start(start_key, count)
    normals = noise.normals(noise_key, (horizon, len(system.observation_names), count))
    return Rigs(prior.constrain(position), proposal.whiten(prior, position), first, normals)


def simulate(system: BaseSystem, rigs: Rigs, inputs: Float[Array, "K T du"]) -> Record:
    """Return the records of K sequences on all rigs, K · R rows."""
    likelihood = likelihoods.of(system)
    count = inputs.shape[0]
    size = rigs.first.shape[0]
    theta = _rows(rigs.theta, count)
    first = jnp.tile(rigs.first, (count, 1))

    def experiment(carry: Any, now: Any) -> Any:
        u, normals = now
        design = tuple(jnp.repeat(value, size)[:, None] for value in u.T)
        e = tuple(jnp.tile(value, count)[:, None] for value in normals)
        y = likelihood.sample(e, carry, design, theta)
        carry = likelihood.condition(carry, design, y, theta)
        return carry, jnp.concatenate(y, axis=1)

    start = likelihood.start(tuple(first[:, i, None] for i in range(first.shape[1])), theta)
    _, seen = jax.lax.scan(jax.checkpoint(experiment), start, (jnp.moveaxis(inputs, 1, 0), rigs.normals))
    observations = jnp.moveaxis(jnp.concatenate([first[None], seen]), 0, 1)
    return Record(observations, jnp.repeat(inputs, size, axis=0))


def information(system: BaseSystem, rigs: Rigs, record: Record) -> Float[Array, "C d d"]:
    """Return the Fisher information of records of `simulate`, in whitened coordinates."""
    theta, per = proposal.parameters(system.parameters, _rows(rigs.w, record.designs.shape[0] // rigs.first.shape[0]))
    count = jnp.asarray(record.designs.shape[1])
    return sensitivity.of_histories(likelihoods.of(system), record, count, theta, per).information


def applied(system: BaseSystem, unit: Float[Array, "K T du"]) -> Float[Array, "K T du"]:
    """Return the inputs that sequences in the unit box stand for: in units of their own, no faster than the slew."""
    return limits.playable(system, system.designs.scale(unit))


def worth(
    system: BaseSystem,
    rigs: Rigs,
    unit: Float[Array, "K T du"],
    target: Target | None,
    margin: Float[Array, ""],
) -> tuple[Float[Array, "K R"], Float[Array, " K"], Float[Array, "C d d"]]:
    """Return what sequences in the unit box gain on each rig about the target, None for all parameters, in nats.

    And what they are fined for nearing limits, from which what rigs reach at their worst time must keep `margin`
    standard deviations; and the information of each sequence and rig.
    """
    record = simulate(system, rigs, applied(system, unit))
    found = information(system, rigs, record)
    slopes = None
    if target is not None:
        slopes = target.slopes(system, *proposal.parameters(system.parameters, rigs.w))
        slopes = jnp.tile(slopes, (unit.shape[0], 1, 1))
    gains = about(found, precision(system), slopes).reshape(unit.shape[0], -1)
    return gains, FINE * _beyond(system, rigs, record, margin), found


FINE = 20.0
"""Nats that a sequence is fined for each scale of a limit by which it is beyond its margin."""


def _beyond(system: BaseSystem, rigs: Rigs, record: Record, margin: Float[Array, ""]) -> Float[Array, " K"]:
    """Return by how much limits are neared too much: by what rigs do at their worst time, over all rigs."""
    size = rigs.first.shape[0]
    total = jnp.zeros(record.designs.shape[0] // size)
    for parts in limits.excesses(system, record.observations, record.designs).values():
        worst = jnp.max(jnp.stack(parts), axis=(0, -1)).reshape(-1, size)
        middle = jnp.mean(worst, axis=1)
        spread = jnp.sqrt(jnp.mean((worst - middle[:, None]) ** 2, axis=1) + 1e-12)
        total += jnp.maximum(middle + margin * spread, 0.0)
    return total


def precision(system: BaseSystem) -> Float[np.ndarray, " d"]:
    """Return the prior's precision in whitened coordinates: about 1, and 1 where its variance is not known well."""
    _, variance, _ = system.parameters.moments
    found = np.array(system.parameters.scales) ** 2 / variance
    return np.where(np.isfinite(found) & (found > 1.0 / HEAVY), found, 1.0)


HEAVY = 4.0
"""Variance in whitened coordinates beyond which a prior has heavy tails, so that the middle of it counts."""


def about(
    information: Float[Array, "C d d"], precision: Float[np.ndarray, " d"], slopes: Float[Array, "C k d"] | None = None
) -> Float[Array, " C"]:
    """Return by how much ½ log det of the covariance falls, of what has these slopes; NaN where it is not finite."""
    root = linear_algebra.cholesky(information + jnp.diag(jnp.asarray(precision)))
    if slopes is None:
        return _log_det(root) - 0.5 * float(np.log(precision).sum())
    before = slopes / np.sqrt(precision)
    after = jnp.einsum("ckd,ced->cke", slopes, linear_algebra.inverse(root))
    squares = [linear_algebra.cholesky(jnp.einsum("ckd,cjd->ckj", each, each)) for each in (before, after)]
    return _log_det(squares[0]) - _log_det(squares[1])


def _log_det(factor: Float[Array, "C k k"]) -> Float[Array, " C"]:
    return jnp.sum(jnp.log(jnp.diagonal(factor, axis1=1, axis2=2)), axis=-1)


def _rows(values: Components, count: int) -> Components:
    """Return one number per row for `count` sequences on the same rigs."""
    return tuple(jnp.tile(value, count)[:, None] for value in values)
