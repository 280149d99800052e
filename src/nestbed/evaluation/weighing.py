"""How likely each simulated record is in all: draws from a proposal fitted to it, with and without its own θ₀."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from nestbed import likelihood as likelihoods
from nestbed.belief import mixture, proposal
from nestbed.belief.mixture import Mixture
from nestbed.belief.proposal import Proposal
from nestbed.likelihood import history
from nestbed.likelihood.base import Record
from nestbed.model.prior import Components
from nestbed.model.system import BaseSystem
from nestbed.model.target import Target
from nestbed.numerics import linear_algebra

STARTS = 16
"""Draws from the prior, the likeliest of which the fit of a record starts from."""
PILOT = 32
"""Draws that tell whether a fit is good; they are not used again, so that the bounds know nothing of the choice."""
MIXED = -1.0
"""What stands for the pilot's share where a mixture was used."""
HEAVY = 16.0
"""Variance of a whitened coordinate beyond which its prior is taken to have heavy tails."""
FEW = 6
"""Parameters up to which their products are controls too."""


class Weighed(NamedTuple):
    """What the draws of each record's proposal come to, in nats but for the shares; arrays of numpy when done."""

    excluding: Shaped[Any, " C"]  # log p(z), by the draws
    including: Shaped[Any, " C"]  # log p(z), by the draws and θ₀
    average: Shaped[Any, " C"]  # of log p(z | θ), over draws and θ₀ by weight
    controls: Shaped[Any, "C p"]  # of mean zero
    ess: Shaped[Any, " C"]  # effective share of the draws
    pilot: Shaped[Any, " C"]  # the same of the pilot draws
    own: Shaped[Any, " C"]  # share of the weight that θ₀ has


@eqx.filter_jit
def by_gaussian(
    key: jax.Array,
    system: BaseSystem,
    theta: Components,
    record: Record,
    count: Int[Array, ""],
    draws: int,
    free: tuple[bool, ...],
    target: Target | None = None,
) -> Weighed:
    """Weigh records by one heavy-tailed Gaussian each, over the free parameters; the others are given, as in θ₀."""
    start_key, draw_key = jax.random.split(key)
    own = own_of(system, theta)
    start = likeliest(start_key, system, own, record, count, free)
    fitted = proposal.fit(likelihoods.of(system), record, count, start, free=free)
    fitted = fitted if all(free) else fitted.restricted(free)
    return _weigh(draw_key, system, fitted, own, record, count, draws, free, target, pilot=PILOT)


def _by(fit: Callable[..., Mixture], pilot: int) -> Callable[..., Weighed]:
    """Return how records are weighed by mixtures that `fit` makes; so many `pilot` draws tell whether they are good."""

    @eqx.filter_jit
    def weigh(
        key: jax.Array,
        system: BaseSystem,
        theta: Components,
        record: Record,
        count: Int[Array, ""],
        draws: int,
        free: tuple[bool, ...],
        target: Target | None = None,
    ) -> Weighed:
        fit_key, draw_key = jax.random.split(key)
        own = own_of(system, theta)
        fitted = fit(fit_key, likelihoods.of(system), record, count, _held(own, free))
        return _weigh(draw_key, system, fitted, own, record, count, draws, free, target, pilot=pilot)

    return weigh


by_fits = _by(mixture.of_fits, PILOT)
"""By fits from several starts each, taken together: for posteriors whose modes mislead one fit."""
by_mixture = _by(mixture.fit, 0)
"""By a mixture that is led to the posterior from everywhere: slower, for any shape."""


def _held(own: Components, free: tuple[bool, ...]) -> tuple[Any, ...]:
    """Return the coordinates that are given, and None for those that are free."""
    return tuple(None if is_free else value for value, is_free in zip(own, free, strict=True))


def own_of(system: BaseSystem, theta: Components) -> Components:
    """Return the records' own parameters, whitened, (C, 1) each."""
    prior = system.parameters
    return proposal.whiten(prior, tuple(z[:, None] for z in prior.unconstrain(theta)))


def likeliest(
    key: jax.Array,
    system: BaseSystem,
    own: Components,
    record: Record,
    count: Int[Array, ""],
    free: tuple[bool, ...],
) -> Float[Array, "C d"]:
    """Return for each record the likeliest of a few draws from the prior, whitened: they know the record alone.

    And what is given, where it is.
    """
    prior, likelihood = system.parameters, likelihoods.of(system)
    w = proposal.whiten(prior, prior.sample(key, (record.designs.shape[0], STARTS)))
    w = proposal.given(prior, w, _held(own, free))
    table = history.tabulate(record)
    theta = prior.constrain(proposal.unwhiten(prior, w))
    _, log_likelihood = history.log_likelihood(likelihood, table, count, theta)
    best = jnp.argmax(jnp.where(jnp.isnan(log_likelihood), -jnp.inf, log_likelihood), axis=1)[:, None]
    return jnp.concatenate([jnp.take_along_axis(value, best, axis=1) for value in w], axis=1)


def _with_given(w: Components, own: Components, free: tuple[bool, ...]) -> Components:
    """Return free coordinates as they are, and the records' own for those that are given."""
    chosen = zip(w, own, free, strict=True)
    return tuple(value if is_free else jnp.broadcast_to(given, value.shape) for value, given, is_free in chosen)


def _draw(
    key: jax.Array,
    system: BaseSystem,
    fitted: Proposal | Mixture,
    own: Components,
    record: Record,
    count: Int[Array, ""],
    draws: int,
    free: tuple[bool, ...],
) -> tuple[Components, Any, Any, Any]:
    """Return draws (whitened), and their log-likelihoods, log-weights and log-priors; `own` parameters come last."""
    likelihood, prior = likelihoods.of(system), system.parameters
    drawn, log_proposal = fitted.draw(fitted.random_numbers(key, (sum(free), record.designs.shape[0], draws)))
    mine = tuple(value for value, is_free in zip(own, free, strict=True) if is_free)
    log_proposal = jnp.concatenate([log_proposal, fitted.log_density(mine)], axis=1)
    varied = iter(jnp.concatenate(pair, axis=1) for pair in zip(drawn, mine, strict=True))
    whole = tuple(next(varied) if is_free else jnp.zeros_like(log_proposal) for is_free in free)
    w = _with_given(whole, own, free)
    position = proposal.unwhiten(prior, w)
    table = history.tabulate(record)
    _, log_likelihood = history.log_likelihood(likelihood, table, count, prior.constrain(position))
    log_prior = proposal.log_prior(prior, position, free)
    return w, log_likelihood, log_prior + log_likelihood - log_proposal, log_prior


def _weigh(
    key: jax.Array,
    system: BaseSystem,
    fitted: Proposal | Mixture,
    own: Components,
    record: Record,
    count: Int[Array, ""],
    draws: int,
    free: tuple[bool, ...],
    target: Target | None,
    *,
    pilot: int,
) -> Weighed:
    """Weigh draws of the proposals, and each record's own parameters among them; the first `pilot` ones apart."""
    rows = record.designs.shape[0]
    drawn = _draw(key, system, fitted, own, record, count, pilot + draws, free)
    pilot_share = share(drawn[2][:, :pilot]) if pilot else jnp.full(rows, MIXED)
    w, log_likelihood, log_weights, log_prior = jax.tree.map(lambda leaf: leaf[:, pilot:], drawn)
    excluding = jax.nn.logsumexp(log_weights[:, :-1], axis=1)
    including = jnp.logaddexp(excluding, log_weights[:, -1])
    weights = jnp.exp(log_weights - including[:, None])

    def average(values: Float[Array, "C L1"]) -> Float[Array, " C"]:
        return jnp.sum(jnp.where(weights > 0.0, weights * values, 0.0), axis=1)

    return Weighed(
        excluding - math.log(draws),
        including - math.log(draws + 1),
        average(log_likelihood),
        _controls(system, average, w, log_prior, target) if all(free) else jnp.zeros((rows, 1)),
        share(log_weights[:, :-1]),
        pilot_share,
        weights[:, -1],
    )


def share(log_weights: Float[Array, "C L"]) -> Float[Array, " C"]:
    """Return the effective share of draws."""
    scaled = jnp.exp(log_weights - jnp.max(log_weights, axis=1, keepdims=True))
    return jnp.sum(scaled, axis=1) ** 2 / jnp.sum(scaled**2, axis=1) / log_weights.shape[1]


def _controls(
    system: BaseSystem, average: Any, w: Components, log_prior: Any, target: Target | None
) -> Float[Array, "C p"]:
    """Return averages over posteriors less those over the prior, of mean zero over records.

    The first, −log p(θ), turns the divergence of the posterior from the prior into the entropy that was lost. For a
    target, of which each record tells only what θ₀ has, also what θ₀ has less the average over its posterior.
    """
    prior = system.parameters
    mean, covariance, entropy = prior.moments
    scales = np.array(prior.scales)
    mean, variance = (mean - np.array(prior.centre)) / scales, np.diagonal(covariance) / scales**2
    shared = covariance / (scales[:, None] * scales)
    known = math.isfinite(entropy)
    found = [average(-log_prior) - (entropy - float(np.log(scales).sum())) if known else jnp.zeros(w[0].shape[0])]
    light = [i for i in range(len(w)) if variance[i] < HEAVY]  # heavy tails would bring variance in; NaN is not less
    off = {i: w[i] - mean[i] for i in light}
    found += [average(off[i]) for i in light]
    found += [average(off[i] ** 2) - variance[i] for i in light]
    if len(light) <= FEW:
        pairs = [(i, j) for i in light for j in light if j < i]
        products = [(average(off[i] * off[j]), shared[i, j]) for i, j in pairs]
        found += [product - known if known else product for product, known in products]
    if target is not None:
        told = [-0.5 * _square(system, average, w, target)]  # nearly the log-density that θ₀ has of the target
        told += [value for i in light for value in (off[i], off[i] ** 2)]
        found = [*(value[:, -1] - average(value) for value in told), *found]
    return jnp.stack(found, axis=-1)


def _square(system: BaseSystem, average: Any, w: Components, target: Target) -> Float[Array, "C L1"]:
    """Return how far the target is from its posterior mean, squared, in posterior deviations."""
    values = jnp.stack(target.values(system, system.parameters.constrain(proposal.unwhiten(system.parameters, w))))
    off = values - jnp.stack([average(value) for value in values])[:, :, None]
    covariance = jnp.stack([jnp.stack([average(a * b) for b in off], axis=-1) for a in off], axis=-2)
    own = jnp.diagonal(covariance, axis1=1, axis2=2)
    covariance += (1e-6 * own + jnp.finfo(float).tiny)[:, :, None] * jnp.eye(len(values))
    whitened = jnp.einsum("cij,jcl->icl", linear_algebra.inverse(linear_algebra.cholesky(covariance)), off)
    return jnp.sum(whitened**2, axis=0)
