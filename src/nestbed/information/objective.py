"""What a sequence of inputs tells: the expected Gauss–Newton gain ½ log det(I + Σ₀F), over prior and noise.

F is the Fisher information that a simulated record has about the parameters that made it, in coordinates where the
prior has unit covariance. It needs the likelihood's interface alone. Searches take rough gradients, which compile in a
fraction of the time: whatever they lead to is scored. In the middle of a record, prior and start give
way to a `Situation`: what the belief says by then, and where the rig is.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nestbed import likelihood as likelihoods
from nestbed.belief import proposal
from nestbed.likelihood import sensitivity
from nestbed.likelihood.base import Record, Truth
from nestbed.likelihood.sensitivity import Past
from nestbed.likelihood.simulation import Simulated
from nestbed.model import integration, limits
from nestbed.model.prior import Components
from nestbed.model.system import BaseSystem
from nestbed.model.target import Target
from nestbed.numerics import linear_algebra, noise


class Situation(NamedTuple):
    """What is known of the parameters, where the rig is, and how much is left to be done."""

    w: Components  # (M,) each: whitened parameters, equally likely
    precision: Float[Array, "d d"]  # of what is known about them, in whitened coordinates
    previous: Float[Array, " du"]  # the design before
    left: Int[Array, ""]  # experiments that count, of those that a sequence has
    first: Float[Array, " dy"] | None = None  # what was seen last; None: the rig is yet to be started
    past: Past | None = None  # what filters of hidden states say by then, for each of the parameters


def of_one_rig(system: BaseSystem, w: Components, horizon: int) -> Situation:
    """Return the start of a record on a rig whose parameters are told to the search, though not to the belief."""
    known = precision(system)
    rest, left = jnp.array(system.rest_design), jnp.asarray(horizon)
    return Situation(tuple(jnp.reshape(jnp.asarray(value), (1,)) for value in w), known, rest, left)


class Rigs(NamedTuple):
    """R rigs to try sequences on: the same parameters, starts and noise for all."""

    theta: Components  # (R,) each
    w: Components  # the same, whitened
    truth: Truth  # what they are before the first design
    first: Float[Array, "R dy"]  # what was seen of that
    normals: Float[Array, "T n R"]
    past: Past | None = None  # what filters of hidden states say before the first design


def draw(key: jax.Array, system: BaseSystem, horizon: int, count: int, situation: Situation | None = None) -> Rigs:
    """Draw rigs from the prior, or from what is known in a situation."""
    theta_key, start_key, noise_key = jax.random.split(key, 3)
    prior, past = system.parameters, None
    if situation is None:
        position = prior.sample(theta_key, (count,))
        w = proposal.whiten(prior, position)
    else:
        chosen = _spread(theta_key, situation.w[0].shape[0], count)
        w = tuple(value[chosen] for value in situation.w)
        position = proposal.unwhiten(prior, w)
    likelihood, theta = likelihoods.of(system), prior.constrain(position)
    if situation is None or situation.first is None:
        truth, first = likelihood.begin(start_key, count, theta)
    else:
        first = jnp.broadcast_to(situation.first, (count, situation.first.shape[0]))
        truth = tuple(first.T)
        if situation.past is not None:
            past = Past(
                jax.tree.map(lambda leaf: leaf[chosen], situation.past.carry),
                jax.tree.map(lambda leaf: leaf[:, chosen], situation.past.tangents),
            )
            carry = jax.tree.map(lambda leaf: leaf[:, 0], past.carry)
            truth = likelihood.imagine(tuple(noise.normals(start_key, (len(system.state), count))), carry)
    normals = noise.normals(noise_key, (horizon, likelihood.normals, count))
    return Rigs(theta, w, truth, first, normals, past)


def _spread(key: jax.Array, size: int, count: int) -> Int[Array, " R"]:
    """Return numbers of particles spread evenly over all of them, from a random one on."""
    start = jax.random.randint(key, (), 0, size)
    return (start + (jnp.arange(count) * size) // count) % size


def simulate(system: BaseSystem, rigs: Rigs, inputs: Float[Array, "K T du"]) -> Simulated:
    """Return the records of K sequences on all rigs, K · R rows."""
    likelihood = likelihoods.of(system, rough=True)
    count = inputs.shape[0]
    size = rigs.first.shape[0]
    theta = _rows(rigs.theta, count)
    first = jnp.tile(rigs.first, (count, 1))

    def experiment(truth: Truth, now: Any) -> Any:
        u, normals = now
        design = tuple(jnp.repeat(value, size)[:, None] for value in u.T)
        e = tuple(jnp.tile(value, count)[:, None] for value in normals)
        truth, y = likelihood.experiment(e, truth, design, theta)
        return truth, (jnp.concatenate(y, axis=1), states(truth))

    def states(truth: Truth) -> Any:
        return () if likelihood.markov else jnp.concatenate(likelihood.states(truth), axis=1)

    start = jax.tree.map(lambda leaf: jnp.tile(leaf, count)[:, None], rigs.truth)
    inside = jnp.moveaxis(inputs, 1, 0), rigs.normals
    _, (seen, hidden) = jax.lax.scan(jax.checkpoint(experiment), start, inside)
    observations = jnp.moveaxis(jnp.concatenate([first[None], seen]), 0, 1)
    record = Record(observations, jnp.repeat(inputs, size, axis=0))
    if likelihood.markov:
        return Simulated(record, observations)
    return Simulated(record, jnp.moveaxis(jnp.concatenate([states(start)[None], hidden]), 0, 1))


def information(
    system: BaseSystem,
    w: Components,
    record: Record,
    count: Int[Array, ""] | None = None,
    *,
    rough: bool = False,
    past: Past | None = None,
) -> Float[Array, "C d d"]:
    """Return the Fisher information of records about the parameters that made them, (C,) each, in whitened coordinates.

    Of the first `count` experiments, or of all; with gradients that are `rough` or not; from a `past` on.
    """
    steps = jnp.asarray(record.designs.shape[1]) if count is None else count
    likelihood = likelihoods.of(system, rough=rough)

    def found(w: Components, record: Record) -> Float[Array, "C d d"]:
        theta, per = proposal.parameters(system.parameters, tuple(value[:, None] for value in w))
        return sensitivity.of_histories(likelihood, record, steps, theta, per, past=past, reversible=True).information

    rows = w[0].shape[0]
    if not likelihood.markov or integration.scheme(system).substeps == 1 or rows <= GROUP or rows % GROUP:
        return found(w, record)
    groups = jax.tree.map(lambda leaf: leaf.reshape(-1, GROUP, *leaf.shape[1:]), (w, record))
    each = jax.lax.map(jax.checkpoint(lambda group: found(*group)), groups)
    return each.reshape(rows, *each.shape[2:])


GROUP = 32
"""Records that are looked at together where a step is made in parts: all that gradients remember of more is far away
in memory."""


def applied(
    system: BaseSystem, unit: Float[Array, "K T du"], previous: Float[Array, " du"] | None = None
) -> Float[Array, "K T du"]:
    """Return the inputs that sequences in the unit box stand for: in units of their own, no faster than the slew."""
    return limits.playable(system, system.designs.scale(unit), previous)


def worth(
    system: BaseSystem,
    rigs: Rigs,
    unit: Float[Array, "K T du"],
    target: Target | None,
    margin: Float[Array, ""],
    situation: Situation | None = None,
) -> tuple[Float[Array, "K R"], Float[Array, " K"], Float[Array, "C d d"]]:
    """Return what sequences in the unit box gain on each rig about the target, None for all parameters, in nats.

    And what they are fined for nearing limits, from which what rigs reach at their worst time must keep `margin`
    standard deviations; and the information of each sequence and rig.
    """
    count = unit.shape[0]
    previous, left, known = (
        (None, None, precision(system))
        if situation is None
        else (situation.previous, situation.left, situation.precision)
    )
    played = simulate(system, rigs, applied(system, unit, previous))
    w, past = tuple(jnp.tile(value, count) for value in rigs.w), _repeated(rigs.past, count)
    found = information(system, w, played.record, left, rough=True, past=past)
    gains = about(found, known, slopes(system, w, target))
    return gains.reshape(count, -1), fine(system, played, rigs.first.shape[0], margin, left), found


def expected(
    key: jax.Array, system: BaseSystem, unit: Float[Any, "K T du"], target: Target | None, rigs: int
) -> Float[np.ndarray, " K"]:
    """Return what sequences in the unit box gain on average over as many rigs, the same for all; without a search."""
    return np.asarray(_expected(key, system, jnp.asarray(unit), target, rigs))


@eqx.filter_jit
def _expected(
    key: jax.Array, system: BaseSystem, unit: Float[Array, "K T du"], target: Target | None, rigs: int
) -> Float[Array, " K"]:
    drawn = draw(key, system, unit.shape[1], rigs)
    return jax.lax.map(lambda one: jnp.mean(worth(system, drawn, one[None], target, jnp.zeros(()))[0]), unit)


def slopes(system: BaseSystem, w: Components, target: Target | None) -> Float[Array, "C k d"] | None:
    """Return how the target changes with the whitened coordinates of parameters, (C,) each; None for all parameters."""
    return None if target is None else target.slopes(system, *proposal.parameters(system.parameters, w))


FINE = 20.0
"""Nats that a sequence is fined for each scale of a limit by which it is beyond its margin."""


def fine(
    system: BaseSystem, played: Simulated, size: int, margin: Float[Array, ""], left: Int[Array, ""] | None = None
) -> Float[Array, " K"]:
    """Return what sequences are fined for nearing limits, by what each group of `size` rigs does at its worst time."""
    total = jnp.zeros(played.states.shape[0] // size)
    for worst in _worst(system, played, size, left):
        total += jnp.maximum(jnp.mean(worst, axis=1) + margin * _spread_of(worst), 0.0)
    return FINE * total


def fines_of_rigs(system: BaseSystem, played: Simulated, margin: Float[Array, ""]) -> Float[Array, " C"]:
    """Return what each rig of one group does to its fine, but for a constant: how the fine changes with its share."""
    total = jnp.zeros(played.states.shape[0])
    for worst in _worst(system, played, played.states.shape[0]):
        middle, spread = jnp.mean(worst), _spread_of(worst)[0]
        own = worst[0] + margin * (worst[0] - middle) ** 2 / (2.0 * spread)
        total += jnp.where(middle + margin * spread > 0.0, own, 0.0)
    return FINE * total


def _worst(
    system: BaseSystem, played: Simulated, size: int, left: Int[Array, ""] | None = None
) -> Iterator[Float[Array, "K R"]]:
    """Return by how much each limit is exceeded by each rig at its worst time."""
    for parts in limits.excesses(system, played.states, played.record.designs).values():
        excess = jnp.stack(parts)
        if left is not None:
            excess = jnp.where(jnp.arange(excess.shape[-1]) < left, excess, -jnp.inf)
        yield jnp.max(excess, axis=(0, -1)).reshape(-1, size)


def _spread_of(worst: Float[Array, "K R"]) -> Float[Array, " K"]:
    middle = jnp.mean(worst, axis=1, keepdims=True)
    return jnp.sqrt(jnp.mean((worst - middle) ** 2, axis=1) + 1e-12)


def precision(system: BaseSystem) -> Float[Array, "d d"]:
    """Return the prior's precision in whitened coordinates, that of parameters known together as a whole."""
    known, alone = system.parameters.curvature, jnp.diag(jnp.asarray(own_precision(system)))
    return alone if system.parameters.independent else jnp.where(np.diagonal(known)[:, None] > 0.0, known, alone)


def own_precision(system: BaseSystem) -> Float[np.ndarray, " d"]:
    """Return each coordinate's precision by itself: about 1, and 1 where its variance is not known well."""
    _, covariance, _ = system.parameters.moments
    found = np.array(system.parameters.scales) ** 2 / np.diagonal(covariance)
    return np.where(np.isfinite(found) & (found > 1.0 / HEAVY), found, 1.0)


HEAVY = 4.0
"""Variance in whitened coordinates beyond which a prior has heavy tails, so that the middle of it counts."""


def about(
    information: Float[Array, "C d d"], known: Float[Array, "d d"], slopes: Float[Array, "C k d"] | None = None
) -> Float[Array, " C"]:
    """Return by how much ½ log det of the covariance falls, of what has these slopes; NaN where it is not finite.

    `known` is the precision before, whose inverse the covariance was.
    """
    before, after = (linear_algebra.cholesky(part) for part in (known[None], known + information))
    if slopes is None:
        return _log_det(after) - _log_det(before)
    spreads = [
        jnp.einsum("ckd,ced->cke", slopes, _every(linear_algebra.inverse(root), slopes)) for root in (before, after)
    ]
    squares = [linear_algebra.cholesky(jnp.einsum("ckd,cjd->ckj", each, each)) for each in spreads]
    return _log_det(squares[0]) - _log_det(squares[1])


def _every(matrix: Float[Array, "... d d"], slopes: Float[Array, "C k d"]) -> Float[Array, "C d d"]:
    return jnp.broadcast_to(matrix, (slopes.shape[0], *matrix.shape[1:]))


def _log_det(factor: Float[Array, "C k k"]) -> Float[Array, " C"]:
    return jnp.sum(jnp.log(jnp.diagonal(factor, axis1=1, axis2=2)), axis=-1)


def _repeated(past: Past | None, count: int) -> Past | None:
    """Return the same past for `count` sequences on the same rigs."""
    if past is None:
        return None
    carry = jax.tree.map(lambda leaf: jnp.tile(leaf, (count, 1)), past.carry)
    return Past(carry, jax.tree.map(lambda leaf: jnp.tile(leaf, (1, count, 1)), past.tangents))


def _rows(values: Components, count: int) -> Components:
    """Return one number per row for `count` sequences on the same rigs."""
    return tuple(jnp.tile(value, count)[:, None] for value in values)
