"""Proposals for posteriors that are no Gaussian: several modes, a banana, a ridge.

Where fits may end in modes that hold little (`of_fits`), several of them are taken together, from starts all over the
prior. For any shape (`fit`), particles are led from the prior to the posterior of a record through tempered
likelihoods, and a Student's t with the local Gauss–Newton curvature is laid around some of them. Fits and particles
only say where the proposal is; draws from it are weighted exactly, so that nothing hangs on how well they have moved.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from nestbed.belief import proposal
from nestbed.belief.proposal import Proposal
from nestbed.likelihood import history
from nestbed.likelihood.base import Likelihood, Record
from nestbed.model.prior import Components, Prior
from nestbed.numerics import noise, resampling, weights

PARTICLES, MANY = 512, 2048
"""Particles that are led to each posterior; and to that of a record that was measured, lest narrow modes are lost."""
PARTS, MORE = 48, 192
"""Of these, how many a component is laid around; and for a record that was measured, which takes few mixtures."""
MOVES = 6
"""Metropolis moves at each temperature."""
KEPT = 0.5
"""Effective share of the particles that a rise of the temperature leaves."""
LEVELS = 100
"""Most temperatures."""
LANES = 2 + 3 * MOVES
"""Streams of random numbers that each temperature takes."""
LOOKED, FITS, LEFT = 512, 16, 0.5
"""Draws of the prior that starts are chosen from, how many fits start there, and the share of the draws that is left to
choose from."""
STEPS, BOLD = 24, 6
"""Gauss–Newton steps of each fit, and how many of them are whole ones."""
SOFTENED = 0.5
"""Power of the fits' masses by which they share the draws: Laplace's approximation may be far off."""
ANYWHERE = 1 / 16
"""Share of the draws that the prior has beside fits."""


class Mixture(NamedTuple):
    """K Student's t distributions and the prior, for each of C records.

    The prior bounds what a place that no other part reaches can weigh.
    """

    parts: Proposal  # of C × K rows
    log_shares: Float[Array, "C K1"]  # of each part and, last, of the prior
    prior: Prior
    free: tuple[bool, ...]  # the coordinates that it is of

    def draw(self, numbers: tuple[Any, ...]) -> tuple[Components, Float[Array, "C M"]]:
        """Return whitened draws that random numbers lead to, and their log-densities."""
        normals, gammas, choice, anywhere = numbers
        _, rows, _ = normals.shape
        count = self.parts.location.shape[0] // rows
        below = jnp.cumsum(jnp.exp(self.log_shares), axis=1)[:, :-1]
        chosen = jnp.sum(choice[:, :, None] >= below[:, None, :], axis=-1, dtype=jnp.int32)
        index = jnp.arange(rows)[:, None] * count + jnp.minimum(chosen, count - 1)
        steps = proposal.heavy(normals, gammas)
        location, spread = self.parts.location, self.parts.spread
        size = location.shape[1]
        near = [location[index, i] + sum(spread[index, i, j] * steps[j] for j in range(i, size)) for i in range(size)]
        w = tuple(jnp.where(chosen < count, a, b) for a, b in zip(near, anywhere, strict=True))
        return w, self.log_density(w)

    def log_density(self, w: Components) -> Float[Array, "C M"]:
        """Return the log-density of whitened parameters."""
        rows, size = w[0].shape
        count = self.parts.location.shape[0] // rows
        each = self.parts.log_density(tuple(jnp.repeat(value, count, axis=0) for value in w))
        parts = jax.nn.logsumexp(each.reshape(rows, count, size) + self.log_shares[:, :-1, None], axis=1)
        anywhere = proposal.log_marginal(self.prior, self._position(w), self.free)
        return jnp.logaddexp(parts, anywhere + self.log_shares[:, -1:])

    def random_numbers(self, key: jax.Array, shape: tuple[int, int, int], lane: Any = 0) -> tuple[Any, ...]:
        """Return what `draw` takes, for shape (d, C, M), from three lanes of a key."""
        everywhere = proposal.whiten(self.prior, self.prior.sample(jax.random.fold_in(key, lane + 2), shape[1:]))
        anywhere = tuple(value for value, is_free in zip(everywhere, self.free, strict=True) if is_free)
        return (*Proposal.random_numbers(key, shape, lane), noise.uniforms(key, shape[1:], lane + 2), anywhere)

    def _position(self, w: Components) -> Components:
        """Return all unconstrained coordinates; those that are given stand in the middle: nothing hangs on them."""
        varied = iter(w)
        return proposal.unwhiten(
            self.prior, tuple(next(varied) if is_free else jnp.zeros_like(w[0]) for is_free in self.free)
        )


def fit(
    key: jax.Array,
    likelihood: Likelihood,
    record: Record,
    count: Int[Array, ""],
    held: tuple[Any, ...] | None = None,
    parts: int = PARTS,
    led: int = PARTICLES,
) -> Mixture:
    """Return a mixture of `parts` for the posterior of each record's first `count` experiments.

    Coordinates that are `held`, whitened (C, 1), and not None, are given; the mixture is of the others. It takes
    `led` particles there.
    """
    free = tuple(value is None for value in held or (None,) * len(likelihood.system.parameter_names))
    w = _led(key, likelihood, record, count, held or (None,) * len(free), led)
    stride = led // parts
    centres = jnp.stack([value[:, : parts * stride : stride] for value in w], axis=-1)
    repeated = jax.tree.map(lambda leaf: jnp.repeat(leaf, parts, axis=0), record)
    each = proposal.around(likelihood, repeated, count, centres.reshape(-1, len(w)), free)
    evenly = jnp.full((record.designs.shape[0], parts + 1), -math.log(parts + 1))
    return Mixture(each if all(free) else each.restricted(free), evenly, likelihood.system.parameters, free)


def of_fits(
    key: jax.Array,
    likelihood: Likelihood,
    record: Record,
    count: Int[Array, ""],
    held: tuple[Any, ...] | None = None,
) -> Mixture:
    """Return a mixture of fits to each record from starts all over the prior; arguments are those of `fit`."""
    prior, rows = likelihood.system.parameters, record.designs.shape[0]
    held = held or (None,) * len(prior.names)
    free = tuple(value is None for value in held)
    w = proposal.given(prior, proposal.whiten(prior, prior.sample(key, (rows, LOOKED))), held)
    theta = prior.constrain(proposal.unwhiten(prior, w))
    _, log_likelihood = history.log_likelihood(likelihood, history.tabulate(record), count, theta)
    likely = jnp.where(jnp.isnan(log_likelihood), -jnp.inf, log_likelihood)
    softened = tempered(jnp.zeros((rows, LOOKED)), likely, LEFT)
    chosen = resampling.systematic(noise.uniforms(key, (rows, 1), 1), softened)[:, :: LOOKED // FITS]
    chosen = chosen.at[:, 0].set(jnp.argmax(likely, axis=1).astype(chosen.dtype))
    starts = jnp.stack([jnp.take_along_axis(value, chosen, axis=1) for value in w], axis=-1)
    repeated = jax.tree.map(lambda leaf: jnp.repeat(leaf, FITS, axis=0), record)
    found = proposal.fit(likelihood, repeated, count, starts.reshape(-1, len(w)), steps=STEPS, bold=BOLD, free=free)
    mass = SOFTENED * jnp.where(jnp.isnan(found.log_mass), -jnp.inf, found.log_mass).reshape(rows, FITS)
    shares = jax.nn.log_softmax(mass, axis=1) + math.log1p(-ANYWHERE)
    log_shares = jnp.concatenate([shares, jnp.full((rows, 1), math.log(ANYWHERE))], axis=1)
    return Mixture(found if all(free) else found.restricted(free), log_shares, prior, free)


class _Particles(NamedTuple):
    """Equally weighted particles at one temperature of each record."""

    w: Components  # whitened
    log_prior: Float[Array, "C M"]
    log_likelihood: Float[Array, "C M"]
    temperature: Float[Array, " C"]  # the power of the likelihood
    level: Int[Array, ""]


def _led(
    key: jax.Array, likelihood: Likelihood, record: Record, count: Int[Array, ""], held: tuple[Any, ...], led: int
) -> Components:
    """Lead particles from the prior to each record's posterior; return them whitened."""
    prior, rows = likelihood.system.parameters, record.designs.shape[0]
    table = history.tabulate(record)

    def measured(w: Components) -> tuple[Any, Any]:
        position = proposal.unwhiten(prior, w)
        _, log_likelihood = history.log_likelihood(likelihood, table, count, prior.constrain(position))
        return proposal.log_prior(prior, position), jnp.where(jnp.isnan(log_likelihood), -jnp.inf, log_likelihood)

    jitter = jnp.array([1e-4 if given is None else 0.0 for given in held])[:, None, None]

    def rise(state: _Particles) -> _Particles:
        lane = LANES * state.level
        step = _increment(state.log_likelihood, 1.0 - state.temperature, KEPT)
        log_weights, _ = weights.normalise(step[:, None] * state.log_likelihood)
        ancestors = resampling.systematic(noise.uniforms(key, (rows, 1), lane), log_weights)
        w, log_prior, log_likelihood = jax.tree.map(
            lambda leaf: jnp.take_along_axis(leaf, ancestors, axis=1), (state.w, state.log_prior, state.log_likelihood)
        )
        temperature = jnp.minimum(state.temperature + step, 1.0)
        moved = jax.lax.fori_loop(
            0,
            MOVES,
            lambda k, moved: _move(key, lane + 2 + 3 * k, measured, moved, temperature, k % 2 == 0, jitter),
            (w, log_prior, log_likelihood),
        )
        return _Particles(moved[0], moved[1], moved[2], temperature, state.level + 1)

    w = proposal.whiten(prior, prior.sample(key, (rows, led)))
    w = proposal.given(prior, w, held)
    start = _Particles(w, *measured(w), jnp.zeros(rows), jnp.zeros((), jnp.int32))
    unfinished = lambda state: jnp.any(state.temperature < 1.0) & (state.level < LEVELS)  # noqa: E731
    return jax.lax.while_loop(unfinished, rise, start).w


def _move(
    key: jax.Array,
    lane: Any,
    measured: Any,
    state: Any,
    temperature: Float[Array, " C"],
    bold: Any,
    jitter: Float[Array, "d 1 1"],
) -> Any:
    """Propose the difference of two other particles as a step: it has the shape of the posterior, whatever that is."""
    w, log_prior, log_likelihood = state
    size, shape = len(w), log_prior.shape
    offsets = noise.uniforms(key, (2,), lane)
    one, other = (1 + (offset * (shape[1] - 1)).astype(jnp.int32) for offset in offsets)
    scale = jnp.where(bold, 2.38 / (2.0 * size) ** 0.5, 0.3)
    shaken = jitter * noise.normals(key, (size, *shape), lane + 1)
    proposed = tuple(
        value + scale * (jnp.roll(value, one, axis=1) - jnp.roll(value, other, axis=1)) + shaken[i]
        for i, value in enumerate(w)
    )
    new_prior, new_likelihood = measured(proposed)
    change = (
        new_prior
        - log_prior
        + jnp.where(jnp.isneginf(new_likelihood), -jnp.inf, temperature[:, None] * (new_likelihood - log_likelihood))
    )
    accept = jnp.log(noise.uniforms(key, shape, lane + 2)) < change
    return jax.tree.map(
        lambda new, old: jnp.where(accept, new, old),
        (proposed, new_prior, new_likelihood),
        (w, log_prior, log_likelihood),
    )


def tempered(before: Float[Array, "C M"], after: Float[Array, "C M"], kept: float) -> Float[Array, "C M"]:
    """Return log-weights between those before an outcome and after it, as near to the latter as leaves a share."""
    log_likelihood = jnp.where(jnp.isneginf(before), -jnp.inf, after - before)
    step = _increment(log_likelihood, jnp.ones(after.shape[0]), kept)
    powers = jnp.where(jnp.isneginf(log_likelihood), -jnp.inf, before + step[:, None] * log_likelihood)
    return weights.normalise(powers)[0]


def _increment(log_likelihood: Float[Array, "C M"], most: Float[Array, " C"], kept: float) -> Float[Array, " C"]:
    """Return the rise of the temperature, at most `most`, that leaves a share of the particles, by bisection."""
    count = log_likelihood.shape[1]

    def share(step: Float[Array, " C"]) -> Float[Array, " C"]:
        powers = jnp.where(jnp.isneginf(log_likelihood), -jnp.inf, step[:, None] * log_likelihood)
        return weights.effective_sample_size(weights.normalise(powers)[0]) / count

    def halve(_: Any, ends: tuple[Any, Any]) -> tuple[Any, Any]:
        low, high = ends
        middle = jnp.sqrt(low * high)
        enough = share(middle) >= kept
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    low, _ = jax.lax.fori_loop(0, 40, halve, (jnp.full_like(most, 1e-12), jnp.maximum(most, 1e-12)))
    return jnp.where(share(most) >= kept, most, low)
