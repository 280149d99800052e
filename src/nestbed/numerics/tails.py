"""How likely a quantity is above zero where few draws show it: by the tail of a law with the draws' moments."""

import jax.numpy as jnp
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

STRAIGHT, BENT = 1e-3, 20.0
"""Least and largest skewness that a tail is taken to have: as good as none, and more than a thousand draws show."""
SMALLEST = 1e-12
"""Standard deviation below which draws count as equal."""


def above_zero(weights: Float[Array, " n"], values: Float[Array, "*L n"]) -> Float[Array, "*L"]:
    """Return the probability that each quantity is above zero, by weighted draws of it.

    It is what the draws show, and at least what a shifted lognormal with their mean, variance and skewness has there:
    draws that are skewed to the other side have the tail of a normal. So it is small, but never 0, where none is above.
    """
    shown = jnp.sum(jnp.where(values > 0.0, weights, 0.0), axis=-1)
    mean = jnp.sum(weights * values, axis=-1)
    centred = values - mean[..., None]
    sd = jnp.maximum(jnp.sqrt(jnp.sum(weights * centred**2, axis=-1)), SMALLEST)
    skewness = jnp.sum(weights * centred**3, axis=-1) / sd**3
    return jnp.maximum(shown, lognormal_tail(-mean / sd, skewness))


def lognormal_tail(far: Float[Array, "*L"], skewness: Float[Array, "*L"]) -> Float[Array, "*L"]:
    """Return the probability beyond so many standard deviations from the mean of a shifted lognormal."""
    square = jnp.clip(skewness, STRAIGHT, BENT) ** 2
    root = jnp.sqrt(square * (1.0 + 0.25 * square))
    w = (
        jnp.cbrt(1.0 + 0.5 * square + root) + jnp.cbrt(1.0 + 0.5 * square - root) - 1.0
    )  # exp of the variance of its log
    reached = jnp.sqrt(w) + far * jnp.sqrt(w * (w - 1.0))
    return ndtr(-jnp.log(jnp.maximum(reached, SMALLEST)) / jnp.sqrt(jnp.log(w)))
