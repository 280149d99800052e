"""Ancestors drawn from normalised log-weights by given uniform numbers. The last axis is the one resampled."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

CATEGORICAL_BLOCK = 32


def systematic(uniforms: Float[Array, "*n 1"], log_weights: Float[Array, "*n M"]) -> Int[Array, "*n M"]:
    """Return M ancestors from one uniform number a row: a particle has ⌊M W⌋ or ⌈M W⌉ offspring."""
    *rows, count = log_weights.shape
    cdf = jnp.cumsum(jnp.exp(log_weights), axis=-1)
    cdf = cdf / cdf[..., -1:]  # the last is exactly 1, whatever the rounding
    offspring = jnp.ceil(count * cdf - uniforms).astype(jnp.int32)  # of particles 0 to m together
    marks = jnp.zeros((*rows, count + 1), jnp.int32)
    mark = jnp.vectorize(lambda row, at: row.at[at].add(1), signature="(k),(m)->(k)")
    ancestors = jnp.cumsum(mark(marks, offspring)[..., :-1], axis=-1)
    return jnp.minimum(ancestors, count - 1)  # rounding may leave the last position without an ancestor


def multinomial(uniforms: Float[Array, " N"], log_weights: Float[Array, " N"]) -> Int[Array, " N"]:
    """Return N independent ancestors."""
    cdf = jnp.cumsum(jnp.exp(log_weights))
    index = jnp.searchsorted(cdf / cdf[-1], uniforms, side="right", method="scan")
    return jnp.minimum(index, log_weights.shape[0] - 1).astype(jnp.int32)


def conditional(uniforms: Float[Array, " N"], log_weights: Float[Array, " N"]) -> Int[Array, " N"]:
    """Return independent ancestors, but the first slot keeps its own: there the reference lives."""
    return multinomial(uniforms, log_weights).at[0].set(0)


def categorical(uniforms: Float[Array, "N 1"], log_weights: Float[Array, "N M"]) -> Int[Array, " N"]:
    """Return one index a row, drawn from that row's weights: first a block of them, then one within the block."""
    rows, count = log_weights.shape
    weights = jnp.pad(jnp.exp(log_weights), ((0, 0), (0, -count % CATEGORICAL_BLOCK))).reshape(
        rows, -1, CATEGORICAL_BLOCK
    )
    blocks = jnp.cumsum(jnp.sum(weights, axis=-1), axis=-1)
    target = uniforms * blocks[:, -1:]
    block = jnp.minimum(jnp.sum(blocks <= target, axis=-1, keepdims=True), blocks.shape[1] - 1)
    before = jnp.where(block > 0, jnp.take_along_axis(blocks, jnp.maximum(block - 1, 0), axis=-1), 0.0)
    members = jnp.cumsum(jnp.take_along_axis(weights, block[:, :, None], axis=1)[:, 0], axis=-1)
    member = jnp.sum(before + members <= target, axis=-1, keepdims=True)
    return jnp.minimum(block * CATEGORICAL_BLOCK + jnp.minimum(member, CATEGORICAL_BLOCK - 1), count - 1)[:, 0]
