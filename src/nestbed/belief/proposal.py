"""A heavy-tailed Gaussian fitted to the posterior of each record: where to draw parameters from.

The fit is by damped Gauss–Newton steps (Fisher scoring) in prior-whitened coordinates: w = (z − middle) / scale of the
unconstrained z. It knows the record alone, so that draws from it, weighted by their posterior, average to the record's
evidence. Student's t has heavier tails than the posteriors it stands for, so that no weight is large where the fit is
good; where it is not, the weights tell.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from nestbed.likelihood import sensitivity
from nestbed.likelihood.base import Likelihood, Record
from nestbed.likelihood.sensitivity import Local
from nestbed.model.factors import Factor
from nestbed.model.prior import Components, Prior
from nestbed.numerics import linear_algebra, noise

DEGREES = 8
"""Degrees of freedom of Student's t: even, so that its scale follows from a product of uniform numbers."""
CLOSE = 1e-2
"""Expected rise of the log-posterior, in nats, below which a fit has arrived: its middle is then a tenth of the
posterior's standard deviation off, or less."""
STEPS = 40
"""Most Gauss–Newton steps of a fit."""
BOLD = 6
"""Steps that are taken whole."""
REACH = 2.0
"""Most that a step moves a coordinate, in standard deviations of the prior: a longer one trusts a curvature too far."""


class Proposal(NamedTuple):
    """Student's t around each record's fit: location m, and the Cholesky factor L of its inverse scale matrix L Lᵀ."""

    location: Float[Array, "C d"]  # whitened
    factor: Float[Array, "C d d"]  # L, lower triangular
    spread: Float[Array, "C d d"]  # L⁻ᵀ
    height: Float[Array, " C"]  # the log-posterior at m, but for the evidence

    @classmethod
    def of_prior(cls, prior: Prior, rows: int) -> "Proposal":
        """Return proposals around the prior's middle, with its spread."""
        found = cls.nowhere(jnp.zeros((rows, len(prior.names))))
        if prior.independent:
            return found
        factor = jnp.broadcast_to(jnp.asarray(np.linalg.cholesky(prior.precision)), found.factor.shape)
        return found._replace(factor=factor, spread=jnp.swapaxes(linear_algebra.inverse(factor), 1, 2))

    @classmethod
    def nowhere(cls, location: Float[Array, "C d"]) -> "Proposal":
        """Return proposals for no posterior at all."""
        rows, size = location.shape
        unit = jnp.broadcast_to(jnp.eye(size), (rows, size, size))
        return cls(location, unit, unit, jnp.full(rows, -jnp.inf))

    @property
    def log_mass(self) -> Float[Array, " C"]:
        """Laplace's approximation of the log-evidence under the proposal."""
        return self.height + 0.5 * self.location.shape[1] * noise.LOG_2PI - self.log_det

    @property
    def log_det(self) -> Float[Array, " C"]:
        """The logarithm of det L."""
        return jnp.sum(jnp.log(jnp.diagonal(self.factor, axis1=1, axis2=2)), axis=-1)

    def distance(self, w: Float[Array, "C d"]) -> Float[Array, " C"]:
        """Return how far one place of each record is from its location, in standard deviations."""
        return jnp.sqrt(self.square(tuple(w[:, i, None] for i in range(w.shape[1])))[:, 0])

    def draw(self, numbers: tuple[Any, ...]) -> tuple[Components, Float[Array, "C M"]]:
        """Return whitened draws that random numbers lead to, and their log-densities."""
        size = self.location.shape[1]
        steps = heavy(*numbers)
        draws = tuple(
            self.location[:, i, None] + sum(self.spread[:, i, j, None] * steps[j] for j in range(i, size))
            for i in range(size)
        )
        return draws, self._log_density(_sum([step**2 for step in steps]))

    def restricted(self, free: tuple[bool, ...]) -> "Proposal":
        """Return the proposal of the free coordinates, which were fitted with the others held."""
        kept = jnp.array([i for i, is_free in enumerate(free) if is_free])
        factor, spread = (part[:, kept][:, :, kept] for part in (self.factor, self.spread))
        return Proposal(self.location[:, kept], factor, spread, self.height)

    @staticmethod
    def random_numbers(key: jax.Array, shape: tuple[int, int, int], lane: Any = 0) -> tuple[Any, ...]:
        """Return what `draw` takes, for shape (d, C, M), from two lanes of a key."""
        numbers = (
            noise.rough_normals(key, shape, lane),
            noise.rough_gammas(key, shape[1:], DEGREES // 2, lane + 1),
        )
        return jax.lax.optimization_barrier(numbers)  # else each use would make them again

    def log_density(self, w: Components) -> Float[Array, "C M"]:
        """Return the log-density of whitened parameters."""
        return self._log_density(self.square(w))

    def square(self, w: Components) -> Float[Array, "C M"]:
        """Return |Lᵀ (w − m)|²: how far places are from the location, in standard deviations squared."""
        size = self.location.shape[1]
        off = [value - self.location[:, i, None] for i, value in enumerate(w)]
        scaled = [_sum([self.factor[:, i, j, None] * off[i] for i in range(j, size)]) for j in range(size)]
        return _sum([value**2 for value in scaled])

    def _log_density(self, square: Float[Array, "C M"]) -> Float[Array, "C M"]:
        size = self.location.shape[1]
        whole = math.lgamma(0.5 * (DEGREES + size)) - math.lgamma(0.5 * DEGREES)
        constant = whole - 0.5 * size * math.log(DEGREES * math.pi)
        return constant + self.log_det[:, None] - 0.5 * (DEGREES + size) * jnp.log1p(square / DEGREES)


def _sum(terms: list[Any]) -> Any:
    return sum(terms[1:], start=terms[0])


def whiten(prior: Prior, position: Components) -> Components:
    """Return unconstrained coordinates in units of the prior's spread, from its middle."""
    return tuple((z - m) / s for z, m, s in zip(position, prior.centre, prior.scales, strict=True))


def unwhiten(prior: Prior, w: Components) -> Components:
    """Return the unconstrained coordinates of whitened ones."""
    return tuple(m + s * value for value, m, s in zip(w, prior.centre, prior.scales, strict=True))


def parameters(prior: Prior, w: Components) -> tuple[Components, Components]:
    """Return the parameters that whitened coordinates stand for, and how fast each changes with its own."""
    ones = tuple(jnp.ones_like(value) for value in w)
    return jax.jvp(lambda w: prior.constrain(unwhiten(prior, w)), (w,), (ones,))


def log_prior(prior: Prior, position: Components, free: tuple[bool, ...] | None = None) -> Float[Array, "..."]:
    """Return the prior's log-density in whitened coordinates, of the free ones if only some are."""
    kept = prior.by_factor(free or (True,) * len(position))
    groups = zip(prior.factors, prior.by_factor(position), prior.by_factor(prior.scales), kept, strict=True)
    return _sum([_log_conditional(f, part, free) + _volume(s, free) for f, part, s, free in groups if any(free)])


def log_marginal(prior: Prior, position: Components, chosen: tuple[bool, ...]) -> Float[Array, "..."]:
    """Return the log-density in whitened coordinates that the chosen ones have by themselves."""
    kept = prior.by_factor(chosen)
    groups = zip(prior.factors, prior.by_factor(position), prior.by_factor(prior.scales), kept, strict=True)
    return _sum([f.log_marginal(part, chosen) + _volume(s, chosen) for f, part, s, chosen in groups if any(chosen)])


def _log_conditional(factor: Factor, position: Components, free: tuple[bool, ...]) -> Any:
    """Return the log-density of the free coordinates given the others."""
    whole = factor.log_density(position)
    return whole if all(free) else whole - factor.log_marginal(position, tuple(not one for one in free))


def _volume(scales: tuple[float, ...], chosen: tuple[bool, ...]) -> float:
    return sum(math.log(scale) for scale, is_chosen in zip(scales, chosen, strict=True) if is_chosen)


def given(prior: Prior, w: Components, held: tuple[Any, ...]) -> Components:
    """Return whitened draws of the prior as they are where some coordinates are held, (C, 1), and not None.

    Those that are known together with held ones move along as those of a Gaussian do.
    """
    moved = [z if value is None else jnp.broadcast_to(value, z.shape) for z, value in zip(w, held, strict=True)]
    fixed = [i for i, value in enumerate(held) if value is not None]
    free = [i for i, value in enumerate(held) if value is None]
    follow = -np.linalg.solve(prior.precision[np.ix_(free, free)], prior.precision[np.ix_(free, fixed)])
    for i, row in zip(free, follow, strict=True):
        for j, share in zip(fixed, row, strict=True):
            if share != 0.0:
                moved[i] = moved[i] + float(share) * (moved[j] - w[j])
    return tuple(moved)


def heavy(normals: Float[Array, "d C M"], gammas: Float[Array, "C M"]) -> list[Float[Array, "C M"]]:
    """Return standard Student's t vectors, component by component; twice a gamma number is a chi-square one."""
    widening = jnp.sqrt(0.5 * DEGREES / gammas)
    return [normal * widening for normal in normals]


class _Climb(NamedTuple):
    """A fit on its way: where it is, the best it has seen, and the posterior around both."""

    w: Float[Array, "C d"]
    local: Local
    best_w: Float[Array, "C d"]
    best: Local
    damping: Float[Array, " C"]
    arrived: Bool[Array, " C"]
    steps: Int[Array, ""]


def fit(
    likelihood: Likelihood,
    record: Record,
    count: Int[Array, ""],
    start: Float[Array, "C d"],
    *,
    steps: int = STEPS,
    bold: int = BOLD,
    free: tuple[bool, ...] | None = None,
) -> Proposal:
    """Climb the posterior of each record's first `count` experiments from a whitened start that knows the record alone.

    The first `bold` steps are whole ones, wherever they lead: a curved valley is crossed rather than followed. Then
    every step must rise, or is damped. (Step 0 stays at the start, so that one program looks around there too.)
    Coordinates that are not `free` stay where they start.
    """
    around = _posterior(likelihood, record, count, None if free is None or all(free) else free)

    def step(climb: _Climb) -> _Climb:
        move, rise = _newton(climb.local, climb.damping)
        w = climb.w + move
        local = around(w)
        finite = jnp.isfinite(local.score).all(-1) & jnp.isfinite(local.information).all((-1, -2))
        better = finite & (local.log_density > climb.best.log_density)
        best_w, best = where(better, (w, local), (climb.best_w, climb.best))
        taken = finite & (climb.steps <= bold)
        w, local = where(taken, (w, local), (best_w, best))
        eased = jnp.where(climb.damping > 1e-3, 0.1 * climb.damping, 0.0)
        damping = jnp.where(taken | better, eased, 10.0 * climb.damping + 1e-2)
        close = (rise < CLOSE) & (better | (climb.damping == 0.0))
        arrived = (climb.steps > 0) & (close | (damping > 1e8))
        new = w, local, best_w, best, damping, arrived
        *kept, steps = climb
        return _Climb._make((*where(climb.arrived, tuple(kept), new), steps + 1))

    rows, size = start.shape
    nowhere = Local(
        jnp.full(rows, -jnp.inf), jnp.zeros((rows, size)), jnp.broadcast_to(jnp.eye(size), (rows, size, size))
    )
    begun = _Climb(start, nowhere, start, nowhere, jnp.zeros(rows), jnp.zeros(rows, bool), jnp.zeros((), jnp.int32))
    climb = jax.lax.while_loop(lambda climb: ~jnp.all(climb.arrived) & (climb.steps <= steps), step, begun)
    return _proposal(climb.best_w, climb.best)


def around(
    likelihood: Likelihood,
    record: Record,
    count: Int[Array, ""],
    w: Float[Array, "C d"],
    free: tuple[bool, ...] | None = None,
) -> Proposal:
    """Return the proposal with the curvature that each record's posterior has around given parameters."""
    return _proposal(w, _posterior(likelihood, record, count, free)(w))


def _proposal(w: Float[Array, "C d"], local: Local) -> Proposal:
    factor = linear_algebra.cholesky(local.information)
    return Proposal(w, factor, jnp.swapaxes(linear_algebra.inverse(factor), 1, 2), local.log_density)


def where(condition: Bool[Array, " C"], new: Any, old: Any) -> Any:
    """Choose row by row."""
    return jax.tree.map(
        lambda a, b: jnp.where(condition.reshape(condition.shape + (1,) * (a.ndim - 1)), a, b), new, old
    )


def _newton(local: Local, damping: Float[Array, " C"]) -> tuple[Float[Array, "C d"], Float[Array, " C"]]:
    """Return a damped Gauss–Newton step within reach, and the rise of the log-density that the whole one promises."""
    diagonal = jnp.diagonal(local.information, axis1=1, axis2=2)
    damped = local.information + (damping[:, None] * diagonal)[:, :, None] * jnp.eye(diagonal.shape[1])
    move = linear_algebra.solve(linear_algebra.cholesky(damped), local.score)
    within = jnp.minimum(1.0, REACH / jnp.max(jnp.abs(move), axis=-1, initial=1e-300))
    return within[:, None] * move, jnp.sum(move * local.score, axis=-1)


def _posterior(likelihood: Likelihood, record: Record, count: Int[Array, ""], free: tuple[bool, ...] | None) -> Any:
    """Return the function that gives the posterior around whitened parameters (C, d)."""
    prior = likelihood.system.parameters

    def around(w: Float[Array, "C d"]) -> Local:
        columns = tuple(w[:, i, None] for i in range(w.shape[1]))
        theta, slopes = parameters(prior, columns)
        seen = sensitivity.of_histories(likelihood, record, count, theta, slopes)
        value, slope, curvature = _prior_around(prior, columns)
        information = seen.information + curvature
        score = seen.score + slope
        if free is not None:
            mask = jnp.array(free)
            score = jnp.where(mask, score, 0.0)
            information = jnp.where(mask[:, None] & mask, information, jnp.eye(len(free)))
        return Local(seen.log_density + value, score, information)

    return around


def _prior_around(prior: Prior, w: Components) -> tuple[Any, Any, Any]:
    """Return the prior's log-density, its slope and its curvature (at least a little) in whitened coordinates.

    Slopes are taken along one coordinate of every distribution at a time. Parameters that are known together have the
    curvature of a Gaussian with their covariance.
    """
    places = [(f, i) for f, factor in enumerate(prior.factors) for i in range(len(factor.names))]

    def each(w: Components) -> Components:
        parts = prior.by_factor(unwhiten(prior, w))
        return tuple(factor.log_density(part) for factor, part in zip(prior.factors, parts, strict=True))

    def slope(w: Components, turn: int) -> tuple[Components, Components]:
        along = [jnp.ones_like(z) if i == turn else jnp.zeros_like(z) for z, (_, i) in zip(w, places, strict=True)]
        return jax.jvp(each, (w,), (tuple(along),))

    ones = tuple(jnp.ones_like(z) if i == 0 else jnp.zeros_like(z) for z, (_, i) in zip(w, places, strict=True))
    (values, slopes), (_, bends) = jax.jvp(lambda w: slope(w, 0), (w,), (ones,))
    turns = [slopes, *(slope(w, turn)[1] for turn in range(1, 1 + max(i for _, i in places)))]
    own = zip(places, np.diagonal(prior.curvature), strict=True)
    bends = tuple(jnp.full_like(bends[f], -known) if known else bends[f] for (f, _), known in own)
    curvature = jax.vmap(jnp.diag)(jnp.maximum(-jnp.concatenate(bends, axis=1), LEAST))
    if not prior.independent:
        curvature += prior.curvature - np.diag(np.diagonal(prior.curvature))
    return sum(values)[:, 0], jnp.concatenate([turns[i][f] for f, i in places], axis=1), curvature


LEAST = 1e-2
"""Least curvature that a prior counts with, in units of its own: one with heavy tails may have none, or less."""
