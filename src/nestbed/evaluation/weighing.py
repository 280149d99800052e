"""How likely each simulated record is in all: draws from a proposal fitted to it, with and without its own θ₀."""

import math
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
    below: Shaped[Any, " C"]  # log p(z | θ): averaged over draws and θ₀ by weight; for a target, from below
    above: Shaped[Any, " C"]  # the same; for a target, from above
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
    free: tuple[bool, ...] | None,
) -> Weighed:
    """Weigh records by one heavy-tailed Gaussian each."""
    start_key, pilot_key, draw_key = jax.random.split(key, 3)
    start = _likeliest(start_key, system, record, count)
    fitted = proposal.fit(likelihoods.of(system), record, count, start)
    _, _, log_weights, _ = _draw(pilot_key, system, fitted, None, record, count, PILOT)
    weighed = _weigh(draw_key, system, fitted, theta, record, count, draws, free)
    return weighed._replace(pilot=_share(log_weights))


@eqx.filter_jit
def by_mixture(
    key: jax.Array,
    system: BaseSystem,
    theta: Components,
    record: Record,
    count: Int[Array, ""],
    draws: int,
    free: tuple[bool, ...] | None,
) -> Weighed:
    """Weigh records by a mixture that is led to the posterior from everywhere: slower, for any shape."""
    fit_key, draw_key = jax.random.split(key)
    fitted = mixture.fit(fit_key, likelihoods.of(system), record, count)
    weighed = _weigh(draw_key, system, fitted, theta, record, count, draws, free)
    return weighed._replace(pilot=jnp.full_like(weighed.ess, MIXED))


def _likeliest(key: jax.Array, system: BaseSystem, record: Record, count: Int[Array, ""]) -> Float[Array, "C d"]:
    """Return for each record the likeliest of a few draws from the prior, whitened: it knows the record alone."""
    prior, likelihood = system.parameters, likelihoods.of(system)
    position = prior.sample(key, (record.designs.shape[0], STARTS))
    table = history.tabulate(record)
    _, log_likelihood = history.log_likelihood(likelihood, table, count, prior.constrain(position))
    best = jnp.argmax(jnp.where(jnp.isnan(log_likelihood), -jnp.inf, log_likelihood), axis=1)[:, None]
    return jnp.concatenate([jnp.take_along_axis(w, best, axis=1) for w in proposal.whiten(prior, position)], axis=1)


def _draw(
    key: jax.Array,
    system: BaseSystem,
    fitted: Proposal | Mixture,
    own: Components | None,
    record: Record,
    count: Int[Array, ""],
    draws: int,
) -> tuple[Components, Any, Any, Any]:
    """Return draws (whitened), and their log-likelihoods, log-weights and log-priors; `own` parameters come last."""
    likelihood, prior = likelihoods.of(system), system.parameters
    w, log_proposal = fitted.draw(fitted.random_numbers(key, (len(system.prior), record.designs.shape[0], draws)))
    if own is not None:
        log_proposal = jnp.concatenate([log_proposal, fitted.log_density(own)], axis=1)
        w = tuple(jnp.concatenate(pair, axis=1) for pair in zip(w, own, strict=True))
    position = proposal.unwhiten(prior, w)
    table = history.tabulate(record)
    _, log_likelihood = history.log_likelihood(likelihood, table, count, prior.constrain(position))
    log_prior = proposal.log_prior(prior, position)
    return w, log_likelihood, log_prior + log_likelihood - log_proposal, log_prior


def _weigh(
    key: jax.Array,
    system: BaseSystem,
    fitted: Proposal | Mixture,
    theta: Components,
    record: Record,
    count: Int[Array, ""],
    draws: int,
    free: tuple[bool, ...] | None,
) -> Weighed:
    """Weigh draws of the proposals, and each record's own parameters among them."""
    draw_key, target_key = jax.random.split(key)
    prior = system.parameters
    own = proposal.whiten(prior, tuple(z[:, None] for z in prior.unconstrain(theta)))
    w, log_likelihood, log_weights, log_prior = _draw(draw_key, system, fitted, own, record, count, draws)
    excluding = jax.nn.logsumexp(log_weights[:, :-1], axis=1)
    including = jnp.logaddexp(excluding, log_weights[:, -1])
    weights = jnp.exp(log_weights - including[:, None])

    def average(values: Float[Array, "C L1"]) -> Float[Array, " C"]:
        return jnp.sum(jnp.where(weights > 0.0, weights * values, 0.0), axis=1)

    below = above = average(log_likelihood)
    if free is not None:
        below, above = _of_target(target_key, system, own, record, count, draws, free)
    ess = _share(log_weights[:, :-1])
    return Weighed(
        excluding - math.log(draws),
        including - math.log(draws + 1),
        below,
        above,
        _controls(system, average, w, log_prior),
        ess,
        ess,
        weights[:, -1],
    )


def _of_target(
    key: jax.Array,
    system: BaseSystem,
    own: Components,
    record: Record,
    count: Int[Array, ""],
    draws: int,
    free: tuple[bool, ...],
) -> tuple[Float[Array, " C"], Float[Array, " C"]]:
    """Return log p(z | θ₀ of the target) from below and above: the same over the nuisance alone, the target given.

    The fit may know the target's θ₀, which is given, but not the nuisance's: that starts from the prior's middle.
    """
    likelihood, prior = likelihoods.of(system), system.parameters
    start = jnp.concatenate(
        [jnp.zeros_like(value) if is_free else value for value, is_free in zip(own, free, strict=True)], axis=1
    )
    fitted = proposal.fit(likelihood, record, count, start, free=free).restricted(free)
    rows, nuisance = start.shape[0], sum(free)
    drawn, log_proposal = fitted.draw(fitted.random_numbers(key, (nuisance, rows, draws)))
    mine = tuple(value for value, is_free in zip(own, free, strict=True) if is_free)
    log_proposal = jnp.concatenate([log_proposal, fitted.log_density(mine)], axis=1)
    varied = iter(jnp.concatenate(pair, axis=1) for pair in zip(drawn, mine, strict=True))
    w = tuple(next(varied) if is_free else value for value, is_free in zip(own, free, strict=True))
    position = proposal.unwhiten(prior, w)
    table = history.tabulate(record)
    theta = tuple(jnp.broadcast_to(value, log_proposal.shape) for value in prior.constrain(position))
    _, log_likelihood = history.log_likelihood(likelihood, table, count, theta)
    terms = zip(prior.marginals, position, prior.scales, free, strict=True)
    log_prior = sum(m.log_density(z) + math.log(scale) for m, z, scale, is_free in terms if is_free)
    log_weights = log_prior + log_likelihood - log_proposal
    excluding = jax.nn.logsumexp(log_weights[:, :-1], axis=1)
    including = jnp.logaddexp(excluding, log_weights[:, -1])
    return excluding - math.log(draws), including - math.log(draws + 1)


def _share(log_weights: Float[Array, "C L"]) -> Float[Array, " C"]:
    """Return the effective share of draws."""
    scaled = jnp.exp(log_weights - jnp.max(log_weights, axis=1, keepdims=True))
    return jnp.sum(scaled, axis=1) ** 2 / jnp.sum(scaled**2, axis=1) / log_weights.shape[1]


def _controls(system: BaseSystem, average: Any, w: Components, log_prior: Any) -> Float[Array, "C p"]:
    """Return averages over posteriors less those over the prior, of mean zero over records.

    The first, −log p(θ), turns the divergence of the posterior from the prior into the entropy that was lost.
    """
    prior = system.parameters
    mean, variance, entropy = prior.moments
    scales = np.array(prior.scales)
    mean, variance = (mean - np.array(prior.centre)) / scales, variance / scales**2
    found = [average(-log_prior) - (entropy - float(np.log(scales).sum()))]
    light = [i for i in range(len(w)) if variance[i] < HEAVY]  # heavy tails would bring variance in
    off = {i: w[i] - mean[i] for i in light}
    found += [average(off[i]) for i in light]
    found += [average(off[i] ** 2) - variance[i] for i in light]
    if len(light) <= FEW:
        found += [average(off[i] * off[j]) for i in light for j in light if j < i]
    return jnp.stack(found, axis=-1)
