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
    hangs = _hangs(jaxpr, [{j} for j in range(count)])
    arguments = {variable: j for j, variable in enumerate(jaxpr.invars)}

    def slope(result: Any, on: set[int], j: int) -> float | None:
        if j not in on:
            return ZERO
        return ONE if not isinstance(result, Literal) and arguments.get(result) == j else None

    rows = zip(jaxpr.outvars, hangs, strict=True)
    return tuple(tuple(slope(result, on, j) for j in range(count)) for result, on in rows)


def _hangs(jaxpr: Any, given: list[set[int]]) -> list[set[int]]:
    """Return what each result of equations hangs on, by what each of their arguments does."""
    known: dict[Any, set[int]] = dict(zip(jaxpr.invars, given, strict=True))

    def of(value: Any) -> set[int]:
        return set() if isinstance(value, Literal) else known.get(value, set())

    for equation in jaxpr.eqns:
        on = [of(value) for value in equation.invars]
        called = equation.params.get("jaxpr") if equation.primitive.name in ("jit", "pjit") else None
        alike = [set().union(*on)] * len(equation.outvars)
        known.update(zip(equation.outvars, alike if called is None else _hangs(called.jaxpr, on), strict=True))
    return [of(value) for value in jaxpr.outvars]


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
