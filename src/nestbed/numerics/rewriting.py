"""Functions with other equations in them: what stands for a primitive is put in its place wherever it is traced."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, jaxpr_as_fun

T = TypeVar("T")

Substitutes = Mapping[str, Callable[..., Any]]
"""By the name of a primitive, a jitted function of the same arguments."""


def rewritten(function: Callable[..., T], substitutes: Substitutes) -> Callable[..., T]:
    """Return a function whose primitives of doubles are replaced by others, also within calls and loops."""

    @functools.wraps(function)
    def run(*arguments: Any) -> T:
        traced, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
        changed = traced.replace(jaxpr=_rewritten(traced.jaxpr, substitutes))
        found = jaxpr_as_fun(changed)(*jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(shapes), found)

    return run


def _rewritten(jaxpr: Jaxpr, substitutes: Substitutes) -> Jaxpr:
    return jaxpr.replace(eqns=[_equation(equation, substitutes) for equation in jaxpr.eqns])


def _equation(equation: JaxprEqn, substitutes: Substitutes) -> JaxprEqn:
    found, value = substitutes.get(equation.primitive.name), equation.outvars[0].aval if equation.outvars else None
    if found is not None and getattr(value, "dtype", None) == jnp.float64:
        call = jax.make_jaxpr(found)(*(each.aval for each in equation.invars)).jaxpr.eqns[0]
        return call.replace(invars=equation.invars, outvars=equation.outvars)
    return equation.replace(params={name: _inside(value, substitutes) for name, value in equation.params.items()})


def _inside(value: Any, substitutes: Substitutes) -> Any:
    """Return a parameter of an equation with other equations in those that it holds, if there are any."""
    if isinstance(value, ClosedJaxpr):
        return value.replace(jaxpr=_rewritten(value.jaxpr, substitutes))
    if isinstance(value, Jaxpr):
        return _rewritten(value, substitutes)
    if not isinstance(value, tuple | list):
        return value
    parts = [_inside(part, substitutes) for part in value]
    if all(new is old for new, old in zip(parts, value, strict=True)):
        return value
    return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
