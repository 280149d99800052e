"""How much work a gain is to compute, counted rather than timed, so that it is the same on every machine."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal, jaxprs_in_params

from nestbed.information import objective
from nestbed.model import integration
from nestbed.model.system import BaseSystem
from nestbed.numerics import programs

DEAR = {
    **dict.fromkeys(("div", "sqrt", "rsqrt"), 4),
    **dict.fromkeys(("exp", "log", "log1p", "expm1", "sin", "cos", "tan", "tanh", "logistic", "pow", "erf"), 12),
}
"""Additions that one of these operations takes as long as."""
AGAIN = 2
"""How often steps in parts are computed where others are once, since gradients compute each part again on their way."""
FILTERS = 16
"""How many times longer an operation of a filter of hidden states takes: covariances and their slopes fill caches."""


@programs.cached(maxsize=64)
def operations(system: BaseSystem, horizon: int) -> int:
    """Return the operations that the Gauss–Newton gain of one sequence on one rig takes."""
    rigs = objective.draw(jax.random.key(0), system, horizon, 1)
    unit = jnp.zeros((1, horizon, len(system.design_names)))
    program = jax.make_jaxpr(lambda unit: objective.worth(system, rigs, unit, None, jnp.zeros(())))(unit)
    times = FILTERS if system.hidden else AGAIN if integration.scheme(system).substeps > 1 else 1
    return times * _counted(program.jaxpr, (True,) * len(program.jaxpr.invars), 1)


def _counted(jaxpr: Any, changing: tuple[bool, ...], turns: int) -> int:
    """Return the numbers that equations compute in some turns of a loop, of which only some inputs change.

    What does not change from turn to turn is computed once: compiled programs take it out of the loop.
    """
    known, total = dict(zip(jaxpr.invars, changing, strict=True)), 0
    for equation in jaxpr.eqns:
        own = tuple(known.get(value, False) for value in _variables(equation.invars))
        known.update(dict.fromkeys(equation.outvars, any(own)))
        times = turns if any(own) else 1
        inner = list(jaxprs_in_params(equation.params))
        for part in inner:
            if equation.primitive.name == "scan":
                fixed = equation.params["num_consts"]
                inside = (False,) * fixed + (True,) * (len(part.invars) - fixed)
                total += times * _counted(part, inside, equation.params["length"])
            else:
                follows = len(own) == len(part.invars) and equation.primitive.name != "while"
                total += _counted(part, own if follows else (True,) * len(part.invars), times)
        if not inner:
            total += times * DEAR.get(equation.primitive.name, 1) * sum(value.aval.size for value in equation.outvars)
    return total


def _variables(values: Any) -> Any:
    """Return variables of equations; None in place of numbers, which never change."""
    return (None if isinstance(value, Literal) else value for value in values)
