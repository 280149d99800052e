"""A proposal for a posterior that bends: a fit, and Student's t around each of the particles that an outcome has left.

The particles only say where the proposal is; draws from it are weighted exactly. It takes no further look at the
record, so it costs next to nothing, and serves as long as the particles are enough to tell the posterior's shape.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nestbed.belief import particles, proposal
from nestbed.belief.proposal import Proposal
from nestbed.model.prior import Components
from nestbed.numerics import linear_algebra, noise, resampling

SHARE = 4
"""One in so many draws is of the fit: it bounds what a place that no particle reaches can weigh."""
LEAST = 1e-12
"""Least variance of a coordinate, in the prior's units: of particles that are all the same."""


class Kernels(NamedTuple):
    """A share of a fit, the rest of Student's t around K weighted places, for each of C records."""

    fitted: Proposal
    places: Components  # whitened, (C, K)
    log_weights: Float[Array, "C K"]
    around: Proposal  # its factor and spread are those of every place; it is located at 0

    def draw(self, numbers: tuple[Any, ...]) -> tuple[Components, Float[Array, "C M"]]:
        """Return whitened draws that random numbers lead to, and their log-densities."""
        rough, uniforms = numbers
        near, far = self.fitted.draw(rough)[0], self.around.draw(rough)[0]
        chosen = resampling.systematic(uniforms, self.log_weights)
        centres = particles.take(self.places, chosen[:, : near[0].shape[1]])
        own = jnp.arange(near[0].shape[1]) % SHARE == 0
        w = tuple(jnp.where(own, a, b + c) for a, b, c in zip(near, far, centres, strict=True))
        return w, self.log_density(w)

    def log_density(self, w: Components) -> Float[Array, "C M"]:
        """Return the log-density of whitened parameters."""
        off = tuple(value[:, :, None] - place[:, None, :] for value, place in zip(w, self.places, strict=True))
        rows, draws, places = off[0].shape
        each = self.around.log_density(tuple(value.reshape(rows, -1) for value in off)).reshape(rows, draws, places)
        kernels = jax.nn.logsumexp(each + self.log_weights[:, None, :], axis=-1)
        return jnp.logaddexp(kernels + math.log(1.0 - 1.0 / SHARE), self.fitted.log_density(w) - math.log(SHARE))

    @staticmethod
    def random_numbers(key: jax.Array, shape: tuple[int, int, int], lane: Any = 0) -> tuple[Any, ...]:
        """Return what `draw` takes, for shape (d, C, M), from three lanes of a key."""
        return Proposal.random_numbers(key, shape, lane), noise.uniforms(key, (shape[1], 1), lane + 2)


def beside(fitted: Proposal, places: Components, log_weights: Float[Array, "C K"]) -> Kernels:
    """Return kernels around weighted places, as wide as suits their effective number (Silverman's rule)."""
    size = len(places)
    number = 1.0 / jnp.sum(jnp.exp(2.0 * log_weights), axis=-1)
    width = (4.0 / ((size + 2.0) * number)) ** (1.0 / (size + 4.0))
    _, covariance = particles.weighted(log_weights, places)
    spread, factor = _roots(width[:, None, None] ** 2 * covariance + LEAST * jnp.eye(size))
    sound = jnp.isfinite(spread).all((-1, -2)) & jnp.isfinite(factor).all((-1, -2))
    nowhere = Proposal.nowhere(jnp.zeros((number.shape[0], size)))
    own = nowhere._replace(factor=factor, spread=spread)
    wide = nowhere._replace(factor=fitted.factor, spread=fitted.spread)
    return Kernels(fitted, places, log_weights, proposal.where(sound, own, wide))


def _roots(covariance: Float[Array, "C d d"]) -> tuple[Float[Array, "C d d"], Float[Array, "C d d"]]:
    """Return the upper triangular U with U Uᵀ = Σ, and U⁻ᵀ."""
    root = linear_algebra.cholesky(covariance[:, ::-1, ::-1])
    upper, inverse = root[:, ::-1, ::-1], linear_algebra.inverse(root)[:, ::-1, ::-1]
    return upper, jnp.swapaxes(inverse, 1, 2)
