"""Roots at the edge of where they are: √x and xᵖ have no slope at 0, where an empty tank stands.

Gradients, filters and implicit steps ask for slopes everywhere, and one that is infinite makes all of them no numbers.
There it is taken to be 0: the one on the side where `sqrt(maximum(x, 0))` stays what it is.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.extend.core import jaxprs_in_params

from nestbed.numerics import rewriting

T = TypeVar("T")


def _sqrt(x: Any) -> Any:
    return jnp.where(x == 0.0, 0.0, jnp.sqrt(jnp.where(x == 0.0, 1.0, x)))


def _pow(x: Any, power: Any) -> Any:
    at_edge = jax.lax.stop_gradient(jnp.power(jnp.zeros_like(x), power))
    return jnp.where(x == 0.0, at_edge, jnp.power(jnp.where(x == 0.0, 1.0, x), power))


ROOTS: dict[str, Callable[..., Any]] = {"sqrt": jax.jit(_sqrt), "pow": jax.jit(_pow)}
"""What stands for functions of doubles: the same values, and slopes everywhere."""


def sloped(function: Callable[..., T]) -> Callable[..., T]:
    """Return a function of the same values whose roots have slopes at 0 too."""
    return rewriting.rewritten(function, ROOTS)


def has_roots(function: Callable[..., Any], *shapes: Any) -> bool:
    """Return whether there are roots among a function's equations."""
    return _has_roots(jax.make_jaxpr(function)(*shapes).jaxpr)


def _has_roots(jaxpr: Any) -> bool:
    return any(
        equation.primitive.name in ROOTS or any(_has_roots(inner) for inner in jaxprs_in_params(equation.params))
        for equation in jaxpr.eqns
    )
