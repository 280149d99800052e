"""Random numbers for the hot loop: jax's own Threefry generator, unrolled so that it fuses into one kernel.

`jax.random` runs Threefry as a loop of small kernels, which on a CPU costs more than the Metropolis move it feeds.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32

from nestbed.numerics.errors import NestbedError

LOG_2PI = math.log(2.0 * math.pi)
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def as_key(key: Any) -> jax.Array:
    """Return a Threefry key: the given one, or one derived from it if it is of another kind."""
    try:
        typed = key if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(key)
        if typed.shape != ():
            raise TypeError
    except (AttributeError, TypeError, ValueError):
        raise NestbedError(f"the key is {key!r}, but it must be one jax key, such as jax.random.key(0).") from None
    if str(jax.random.key_impl(typed)) == "threefry2x32":
        return typed
    return jax.random.wrap_key_data(jax.random.bits(typed, (2,), jnp.uint32), impl="threefry2x32")


def bits(key: jax.Array, shape: tuple[int, ...], lane: Any = 0) -> tuple[UInt32[Array, "..."], UInt32[Array, "..."]]:
    """Return two independent arrays of random words; each lane of a key is a stream of its own."""
    words = jax.random.key_data(key)
    schedule = (words[0], words[1], words[0] ^ words[1] ^ jnp.uint32(0x1BD11BDA))
    count = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    high = jnp.full(shape, schedule[0] + jnp.asarray(lane, jnp.uint32))
    low = count + schedule[1]
    for group in range(5):
        for distance in _ROTATIONS[group % 2]:
            high = high + low
            low = high ^ ((low << distance) | (low >> (32 - distance)))
        high = high + schedule[(group + 1) % 3]
        low = low + schedule[(group + 2) % 3] + jnp.uint32(group + 1)
    return high, low


def uniforms(key: jax.Array, shape: tuple[int, ...], lane: Any = 0) -> Float[Array, "..."]:
    """Return numbers in (0, 1) of double precision."""
    high, low = bits(key, shape, lane)
    mantissa = (high.astype(jnp.uint64) << 20) | (low.astype(jnp.uint64) >> 12)
    between = jax.lax.bitcast_convert_type(mantissa | jnp.uint64(0x3FF0000000000000), jnp.float64)  # in [1, 2)
    return between - (1.0 - 2.0**-53)


def normals(key: jax.Array, shape: tuple[int, ...], lane: Any = 0) -> Float[Array, "..."]:
    """Return standard normal numbers of double precision."""
    return math.sqrt(2.0) * jax.lax.erf_inv(2.0 * uniforms(key, shape, lane) - 1.0)


def rough_normals(key: jax.Array, shape: tuple[int, ...], lane: Any = 0) -> Float[Array, "..."]:
    """Return standard normal numbers of single precision: symmetric, and cheap."""
    words = _words(key, shape, lane)
    fraction = jax.lax.bitcast_convert_type((words >> 9) | jnp.uint32(0x3F800000), jnp.float32) - 1.0
    centred = 2.0 * fraction - (1.0 - 2.0**-23)  # in (−1, 1), symmetric
    return (jnp.float32(2.0**0.5) * jax.lax.erf_inv(centred)).astype(jnp.float64)


def rough_gammas(key: jax.Array, shape: tuple[int, ...], order: int, lane: Any = 0) -> Float[Array, "..."]:
    """Return Gamma(order, 1) numbers of single precision, each from as many uniform ones."""
    words = [word for pair in zip(*bits(key, (-(-order // 2), *shape), lane), strict=True) for word in pair]
    product = jnp.ones(shape, jnp.float32)
    for word in words[:order]:
        one_to_two = jax.lax.bitcast_convert_type((word >> 9) | jnp.uint32(0x3F800000), jnp.float32)
        product *= one_to_two - jnp.float32(1.0 - 2.0**-24)  # in (0, 1)
    return -jnp.log(product).astype(jnp.float64)


def rough_uniforms(key: jax.Array, shape: tuple[int, ...], lane: Any = 0) -> Float[Array, "..."]:
    """Return numbers in (0, 1) on a grid of 2⁻³²."""
    mantissa = _words(key, shape, lane).astype(jnp.uint64) << 20
    between = jax.lax.bitcast_convert_type(mantissa | jnp.uint64(0x3FF0000000000000), jnp.float64)  # in [1, 2)
    return between - (1.0 - 2.0**-33)


def _words(key: jax.Array, shape: tuple[int, ...], lane: Any) -> UInt32[Array, "..."]:
    """Return one array of random words, from both halves of what the generator makes."""
    first, *rest = shape
    return jnp.concatenate(bits(key, (-(-first // 2), *rest), lane))[:first]
