"""Which results of a function hang on which of its arguments, by its equations: what need not be computed."""

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import Literal

ZERO, ONE = 0.0, 1.0
"""Slopes that need no computing: of a result that does not hang on an argument, and of the argument itself."""


def slopes(function: Callable[[tuple[Any, ...]], tuple[Any, ...]], count: int) -> tuple[tuple[float | None, ...], ...]:
    """Return for each result and each of `count` scalar arguments the slope where it is 0 or 1 throughout, else None.

    The function takes a tuple of arrays that broadcast, as systems' functions do, and so is looked at with numbers.
    """
    jaxpr = jax.make_jaxpr(function)(tuple(jax.ShapeDtypeStruct((), float) for _ in range(count))).jaxpr
    hangs: dict[Any, set[int]] = {variable: {j} for j, variable in enumerate(jaxpr.invars)}
    for equation in jaxpr.eqns:
        found = set().union(*(hangs.get(v, set()) for v in equation.invars if not isinstance(v, Literal)))
        hangs.update(dict.fromkeys(equation.outvars, found))
    arguments = {variable: j for j, variable in enumerate(jaxpr.invars)}

    def slope(result: Any, j: int) -> float | None:
        if isinstance(result, Literal) or j not in hangs.get(result, set()):
            return ZERO
        return ONE if arguments.get(result) == j else None

    return tuple(tuple(slope(result, j) for j in range(count)) for result in jaxpr.outvars)


def times(a: Any, b: Any) -> Any:
    """Return a · b, nothing computed where one of them is known to be 0 or 1."""
    if _is(a, ZERO) or _is(b, ZERO):
        return ZERO
    return b if _is(a, ONE) else a if _is(b, ONE) else a * b


def plus(*terms: Any) -> Any:
    """Return the sum of what is not known to be 0."""
    kept = [term for term in terms if not _is(term, ZERO)]
    return sum(kept[1:], start=kept[0]) if kept else ZERO


def minus(a: Any, b: Any) -> Any:
    """Return a − b, nothing computed where b is known to be 0."""
    return a if _is(b, ZERO) else a - b


def _is(value: Any, known: float) -> bool:
    return isinstance(value, float) and value == known
