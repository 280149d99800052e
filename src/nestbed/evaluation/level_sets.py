"""How likely each record is once quantities of its parameters are given: an average over the parameters that have them.

Around a record's fit, w = m + S (Q s + N η): along Q the quantities g change, along N not, to first order. For
any η, those s are solved for with which g is what is given, and p(z, g) is the average over η of
p(z, w) · |det S| / |det ∂g/∂s| / q(η), where η is drawn from a heavy-tailed Gaussian q. Without a record the same gives
the prior's density p(g), and the ratio of both is p(z | g).
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nestbed import likelihood as likelihoods
from nestbed.belief import proposal
from nestbed.belief.proposal import Proposal
from nestbed.evaluation import weighing
from nestbed.evaluation.weighing import Weighed
from nestbed.likelihood import history
from nestbed.likelihood.base import Record
from nestbed.model.prior import Components
from nestbed.model.system import BaseSystem
from nestbed.model.target import Target
from nestbed.numerics import linear_algebra

PRIOR = 512
"""Draws that tell the prior's density of what is given."""
STEPS = 40
"""Steps in which the equations are solved; each is a Levenberg–Marquardt step."""
REACH = 3.0
"""Most that a step moves a coordinate, in standard deviations of the fit."""
ELSEWHERE = -2.0
"""What stands for the pilot's share where the target has the same values elsewhere."""
SOLVED, SAME = 1e-8, 1e-3
"""What is left of an equation, in standard deviations of the fit, where it is solved; and distance of equal places."""


class _Evidence(NamedTuple):
    """log p(z, g) by the draws, and by θ₀ too; the draws' effective share; whether θ₀ is the place that is found."""

    excluding: Float[Array, " C"]
    including: Float[Array, " C"]
    ess: Float[Array, " C"]
    found: Bool[Array, " C"]


@eqx.filter_jit
def given(
    key: jax.Array,
    system: BaseSystem,
    theta: Components,
    record: Record,
    count: Int[Array, ""],
    draws: int,
    target: Target,
) -> Weighed:
    """Weigh records with the target given, as it is with θ₀; told where θ₀ is not the only place that has it."""
    start_key, draw_key, prior_key = jax.random.split(key, 3)
    own = weighing.own_of(system, theta)
    every = (True,) * len(own)
    start = weighing.likeliest(start_key, system, own, record, count, every)
    fitted = proposal.fit(likelihoods.of(system), record, count, start)
    middle = Proposal.of_prior(system.parameters, start.shape[0])
    both = _evidence(draw_key, system, fitted, own, record, count, draws, target)
    prior = _evidence(prior_key, system, middle, own, record, jnp.zeros_like(count), PRIOR, target)
    nothing = jnp.zeros(start.shape[0])
    return Weighed(
        both.excluding - prior.including,
        both.including - prior.excluding,
        nothing,
        nothing[:, None],
        jnp.minimum(both.ess, prior.ess),
        jnp.where(both.found & prior.found, both.ess, ELSEWHERE),
        nothing,
    )


def _evidence(
    key: jax.Array,
    system: BaseSystem,
    fitted: Proposal,
    own: Components,
    record: Record,
    count: Int[Array, ""],
    draws: int,
    target: Target,
) -> _Evidence:
    """Average over the parameters that have the target's values; θ₀, which has them, is the last of the draws."""
    likelihood, prior = likelihoods.of(system), system.parameters
    (rows, size), given = fitted.location.shape, len(target.names)
    slopes = target.slopes(system, *proposal.parameters(prior, tuple(fitted.location.T)))
    turn = _turn(slopes @ fitted.spread)
    axes = fitted.spread @ turn
    off = jnp.stack(own) - fitted.location.T[:, :, None]
    mine = _applied(jnp.swapaxes(turn, 1, 2) @ jnp.swapaxes(fitted.factor, 1, 2), off)

    plain = Proposal.nowhere(jnp.zeros((rows, size - given)))
    drawn, log_proposal = plain.draw(Proposal.random_numbers(key, (size - given, rows, draws)))
    eta = jnp.concatenate([jnp.stack(drawn), mine[given:]], axis=2)
    log_proposal = jnp.concatenate([log_proposal, plain.log_density(tuple(mine[given:]))], axis=1)

    def parameters(s: Float[Array, "k C L"]) -> Components:
        w = fitted.location.T[:, :, None] + _applied(axes, jnp.concatenate([s, eta]))
        return proposal.unwhiten(prior, tuple(w))

    def values(s: Float[Array, "k C L"]) -> Float[Array, "k C L"]:
        return jnp.stack(target.values(system, prior.constrain(parameters(s))))

    wanted = jnp.stack(target.values(system, prior.constrain(proposal.unwhiten(prior, own))))
    s, left = _solved(lambda s: values(s) - wanted, jnp.zeros((given, *log_proposal.shape)))
    found = jnp.max(jnp.abs(s[:, :, -1] - mine[:given, :, 0]), axis=0) < SAME
    s, left = s.at[:, :, -1].set(mine[:given, :, 0]), left.at[:, -1].set(0.0)
    position = parameters(s)
    _, log_likelihood = history.log_likelihood(likelihood, history.tabulate(record), count, prior.constrain(position))
    log_slopes = _log_det(_squares(_columns(values, s))).reshape(left.shape)
    log_density = log_likelihood + proposal.log_prior(prior, position) - log_slopes
    log_weights = log_density - fitted.log_det[:, None] - log_proposal
    log_weights = jnp.where((left < SOLVED) & jnp.isfinite(log_weights), log_weights, -jnp.inf)
    excluding = jax.nn.logsumexp(log_weights[:, :-1], axis=1)
    including = jnp.logaddexp(excluding, log_weights[:, -1])
    shares = weighing.share(log_weights[:, :-1])
    return _Evidence(excluding - math.log(draws), including - math.log(draws + 1), shares, found)


def _applied(matrix: Float[Array, "C i j"], vectors: Float[Array, "j C L"]) -> Float[Array, "i C L"]:
    return jnp.einsum("cij,jcl->icl", matrix, vectors)


def _turn(slopes: Float[Array, "C k d"]) -> Float[Array, "C d d"]:
    """Return rotations whose first k columns span the slopes (Householder's)."""
    size = slopes.shape[-1]
    turn = jnp.broadcast_to(jnp.eye(size), (slopes.shape[0], size, size))
    for j in range(slopes.shape[1]):
        row = jnp.einsum("cd,cde->ce", slopes[:, j], turn) * (jnp.arange(size) >= j)
        length = jnp.sqrt(jnp.sum(row**2, axis=1, keepdims=True))
        reach = jnp.where(length > 0.0, length, 1.0)  # what changes nothing has any direction
        mirror = row + jnp.where(row[:, j, None] < 0.0, -reach, reach) * (jnp.arange(size) == j)
        mirror /= jnp.sqrt(jnp.sum(mirror**2, axis=1, keepdims=True))
        turn = turn - 2.0 * jnp.einsum("cde,ce->cd", turn, mirror)[:, :, None] * mirror[:, None, :]
    return turn


def _columns(function: Any, s: Float[Array, "k C L"]) -> Float[Array, "k k C L"]:
    """Return the derivative of each value (second index) with respect to each coordinate (first index)."""
    unit = jnp.eye(s.shape[0])
    return jnp.stack([jax.jvp(function, (s,), (jnp.broadcast_to(e[:, None, None], s.shape),))[1] for e in unit])


def _squares(columns: Float[Array, "k k C L"]) -> Float[Array, "CL k k"]:
    return jnp.einsum("imcl,jmcl->clij", columns, columns).reshape(-1, *columns.shape[:2])


def _log_det(squares: Float[Array, "CL k k"]) -> Float[Array, " CL"]:
    """Return the logarithm of the size of a matrix's determinant, from its square."""
    return jnp.sum(jnp.log(jnp.diagonal(linear_algebra.cholesky(squares), axis1=1, axis2=2)), axis=-1)


def _solved(function: Any, start: Float[Array, "k C L"]) -> tuple[Float[Array, "k C L"], Float[Array, "C L"]]:
    """Return where a function is 0, and how far each place is from there: by Levenberg–Marquardt steps."""
    slopes = jnp.sqrt(jnp.sum(_columns(function, start) ** 2, axis=0))
    units = jnp.where(slopes > 0.0, slopes, 1.0)  # so that equations count alike
    count = start.shape[0]

    def scaled(s: Float[Array, "k C L"]) -> Float[Array, "k C L"]:
        return function(s) / units

    def step(_: Any, so_far: Any) -> Any:
        s, rest, damping = so_far
        columns = _columns(scaled, s)
        squares = _squares(columns) + damping.reshape(-1)[:, None, None] * jnp.eye(count)
        downhill = jnp.einsum("imcl,mcl->cli", columns, rest).reshape(-1, count)
        move = linear_algebra.solve(linear_algebra.cholesky(squares), downhill).reshape(*damping.shape, count)
        trial = s - jnp.clip(jnp.moveaxis(move, -1, 0), -REACH, REACH)
        trial_rest = scaled(trial)
        better = jnp.sum(trial_rest**2, axis=0) < jnp.sum(rest**2, axis=0)
        return (
            jnp.where(better, trial, s),
            jnp.where(better, trial_rest, rest),
            jnp.where(better, 0.1 * damping, 10.0 * damping),
        )

    begun = start, scaled(start), jnp.full(start.shape[1:], 1e-4)
    s, rest, _ = jax.lax.fori_loop(0, STEPS, step, begun)
    return s, jnp.max(jnp.abs(rest), axis=0)
