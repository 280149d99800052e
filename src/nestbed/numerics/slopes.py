"""What gradients do on their way back through a simulator."""

from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

T = TypeVar("T")


def finite(values: T) -> T:
    """Return a tree of values; on the way back, slopes that are no numbers are left out.

    One rig whose drift has none at one moment, such as the square root of an empty tank's level, would take them from
    all rigs.
    """
    return jax.tree.map(_finite, values)


@jax.custom_vjp
def _finite(values: Float[Array, "*n"]) -> Float[Array, "*n"]:
    return values


_finite.defvjp(lambda values: (values, None), lambda _, slopes: (jnp.where(jnp.isfinite(slopes), slopes, 0.0),))


@jax.custom_vjp
def within(values: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Return values moved into the unit box.

    On the way back, slopes of a loss pass as if nothing had been moved, unless they would lead further out: so what
    lies beyond a limit comes back when that pays.
    """
    return jnp.clip(values, -1.0, 1.0)


def _within_back(values: Float[Array, "*n"], slopes: Float[Array, "*n"]) -> tuple[Float[Array, "*n"]]:
    outwards = ((values > 1.0) & (slopes < 0.0)) | ((values < -1.0) & (slopes > 0.0))
    return (jnp.where(outwards, 0.0, slopes),)


within.defvjp(lambda values: (within(values), values), _within_back)
