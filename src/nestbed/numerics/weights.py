"""Weights in log space."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def normalise(log_weights: Float[Array, "*n M"]) -> tuple[Float[Array, "*n M"], Float[Array, " *n"]]:
    """Return log-weights that sum to one over the last axis, and the log of what they summed to."""
    total = jax.nn.logsumexp(log_weights, axis=-1)
    return log_weights - total[..., None], total


def effective_sample_size(log_weights: Float[Array, "*n M"]) -> Float[Array, " *n"]:
    """Return 1 / Σ W² of normalised log-weights."""
    return 1.0 / jnp.sum(jnp.exp(2.0 * log_weights), axis=-1)
