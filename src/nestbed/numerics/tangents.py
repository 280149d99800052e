"""How results change with each argument, nothing computed where the change is a number that the equations tell.

A linearised function takes arrays of zeros for what does not change, and multiplies them through; here what is 0, 1 or
any other number throughout stays that number. Equations that have no rule here are linearised by jax, one by one.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxpr_as_fun

from nestbed.numerics.dependence import ZERO, minus, plus, times

Values = tuple[Any, ...]


class Sloped(NamedTuple):
    """A value, and how it changes with each argument: by numbers, the same everywhere, or by arrays of its shape."""

    value: Any
    slopes: tuple[Any, ...]


def linearised(function: Callable[[Values], Values], x: Values) -> tuple[Values, list[list[Any]]]:
    """Return a function's results, and slopes[i][j], by which result i changes with argument j: numbers or arrays.

    Arguments are arrays of one shape, and results are computed element by element.
    """
    traced, nothing = jax.make_jaxpr(function)(x), (ZERO,) * len(x)
    given = [Sloped(value, tuple(float(i == j) for j in range(len(x)))) for i, value in enumerate(x)]
    found = _followed(traced.jaxpr, traced.consts, given, nothing)
    return tuple(each.value for each in found), [list(each.slopes) for each in found]


def _followed(jaxpr: Jaxpr, consts: list[Any], given: list[Sloped], nothing: tuple[float, ...]) -> list[Sloped]:
    """Return what equations make of values, and of how they change."""
    known = dict(zip(jaxpr.invars, given, strict=True))
    known.update((held, Sloped(value, nothing)) for held, value in zip(jaxpr.constvars, consts, strict=True))

    def of(each: Any) -> Sloped:
        return Sloped(each.val, nothing) if isinstance(each, Literal) else known[each]

    for equation in jaxpr.eqns:
        own = list(dict.fromkeys(each for each in equation.invars if not isinstance(each, Literal)))
        alone = jaxpr.replace(constvars=[], invars=own, outvars=equation.outvars, eqns=[equation])
        found = _results(equation, jaxpr_as_fun(ClosedJaxpr(alone, [])), [of(each) for each in own], of, nothing)
        known.update(zip(equation.outvars, found, strict=True))
    return [of(each) for each in jaxpr.outvars]


def _results(
    equation: JaxprEqn,
    alone: Callable[..., list[Any]],
    given: list[Sloped],
    of: Callable[[Any], Sloped],
    nothing: tuple[float, ...],
) -> list[Sloped]:
    """Return what one equation makes of them; `alone` is it as a function of the variables that are given."""
    operands = [of(each) for each in equation.invars]
    if all(_is(slope, ZERO) for each in given for slope in each.slopes):
        return [Sloped(value, nothing) for value in alone(*(each.value for each in given))]
    if equation.primitive.name in ("jit", "pjit"):
        inner = equation.params["jaxpr"]
        return _followed(inner.jaxpr, inner.consts, operands, nothing)
    slopes = _by_rule(equation.primitive.name, operands)
    if not slopes:
        return _linearised(alone, given, nothing)
    (value,) = alone(*(each.value for each in given))
    shape = jnp.shape(value)
    return [Sloped(value, tuple(s if _is_number(s) else jnp.broadcast_to(s, shape) for s in slopes))]


def _linearised(function: Callable[..., list[Any]], given: list[Sloped], nothing: tuple[float, ...]) -> list[Sloped]:
    """Return what jax makes of an equation; what changes with nothing is held."""
    moving = [i for i, each in enumerate(given) if not all(_is(slope, ZERO) for slope in each.slopes)]

    def moved(*some: Any) -> list[Any]:
        now = dict(zip(moving, some, strict=True))
        return function(*(now.get(i, each.value) for i, each in enumerate(given)))

    values, push = jax.linearize(moved, *(given[i].value for i in moving))
    columns = []
    for j in range(len(nothing)):
        along = [given[i].slopes[j] for i in moving]
        still = all(_is(slope, ZERO) for slope in along)
        whole = [jnp.broadcast_to(s, jnp.shape(given[i].value)) for s, i in zip(along, moving, strict=True)]
        columns.append([ZERO] * len(values) if still else [s if s.dtype == float else ZERO for s in push(*whole)])
    return [Sloped(value, row) for value, row in zip(values, zip(*columns, strict=True), strict=True)]


def _by_rule(name: str, operands: list[Sloped]) -> list[Any]:
    """Return how the result of an equation changes with each argument; nothing where it has no rule."""
    if name not in RULES:
        return []
    values = [_known(each.value) for each in operands]
    found = [RULES[name](values, column) for column in zip(*(each.slopes for each in operands), strict=True)]
    return [] if any(slope is None for slope in found) else found


def _known(value: Any) -> Any:
    """Return a value as a number, where it is one already."""
    return value if isinstance(value, jax.core.Tracer) or jnp.ndim(value) else float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, float)


def _is(value: Any, number: float) -> bool:
    return _is_number(value) and value == number


def _same(_: Any, slopes: Any) -> Any:
    """Return the slope of what only has another shape, where it is a number."""
    return slopes[0] if _is_number(slopes[0]) else None


def _chosen(_: Any, slopes: Any) -> Any:
    """Return the slope of a choice, where it is the same number whatever is chosen."""
    one = slopes[1]
    return one if _is_number(one) and all(_is(slope, one) for slope in slopes[2:]) else None


def _quotient(values: Any, slopes: Any) -> Any:
    if not _is(slopes[1], ZERO):
        return None
    return ZERO if _is(slopes[0], ZERO) else slopes[0] / values[1]


RULES: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda _, slopes: plus(*slopes),
    "add_any": lambda _, slopes: plus(*slopes),
    "sub": lambda _, slopes: -slopes[1] if _is(slopes[0], ZERO) else minus(*slopes),
    "neg": lambda _, slopes: -slopes[0],
    "mul": lambda values, slopes: plus(times(slopes[0], values[1]), times(values[0], slopes[1])),
    "div": _quotient,
    "select_n": _chosen,
    "broadcast_in_dim": _same,
    "convert_element_type": _same,
    "reshape": _same,
    "squeeze": _same,
    "copy": _same,
}
"""By an equation's name, the slope of its result from its operands' values and slopes; None where jax is to say."""
