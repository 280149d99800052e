"""Draws of ancestors from normalised log-weights. The last axis is the one resampled."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def systematic(key: jax.Array, log_weights: Float[Array, "*n M"]) -> Int[Array, "*n M"]:
    """Return M ancestors from one uniform a row: each particle has ⌊M W⌋ or ⌈M W⌉ offspring."""
    *rows, count = log_weights.shape
    offset = jax.random.uniform(key, (*rows, 1))
    upto = jnp.cumsum(jnp.exp(log_weights), axis=-1)
    upto = upto / upto[..., -1:]  # the last is exactly 1, whatever the rounding
    before = jnp.ceil(count * upto - offset).astype(jnp.int32)  # offspring of particles 0..m
    before = jnp.clip(before, 0, count)
    starts = jnp.zeros((*rows, count + 1), jnp.int32)
    starts = jnp.vectorize(lambda s, b: s.at[b].add(1), signature="(k),(m)->(k)")(starts, before)
    return jnp.cumsum(starts[..., :-1], axis=-1)


def multinomial(key: jax.Array, log_weights: Float[Array, " N"]) -> Int[Array, " N"]:
    """Return N independent ancestors."""
    return jax.random.categorical(key, log_weights, shape=log_weights.shape)


def conditional(key: jax.Array, log_weights: Float[Array, " N"]) -> Int[Array, " N"]:
    """Return independent ancestors, but the first slot keeps its own: there the reference lives."""
    return multinomial(key, log_weights).at[0].set(0)


def pick(key: jax.Array, log_weights: Float[Array, "N M"]) -> Int[Array, " N"]:
    """Return one index per row, drawn from that row's weights."""
    upto = jnp.cumsum(jnp.exp(log_weights), axis=-1)
    threshold = jax.random.uniform(key, (log_weights.shape[0], 1)) * upto[:, -1:]
    index = jnp.sum(upto <= threshold, axis=-1)
    return jnp.minimum(index, log_weights.shape[1] - 1)
