"""How much work a gain is to compute, counted rather than timed, so that it is the same on every machine."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import jaxprs_in_params

from nestbed.information import objective
from nestbed.model.system import BaseSystem
from nestbed.numerics import programs

DEAR = {
    **dict.fromkeys(("div", "sqrt", "rsqrt"), 4),
    **dict.fromkeys(("exp", "log", "log1p", "expm1", "sin", "cos", "tan", "tanh", "logistic", "pow", "erf"), 12),
}
"""Additions that one of these operations takes as long as."""


@programs.cached(maxsize=64)
def operations(system: BaseSystem, horizon: int) -> int:
    """Return the operations that the Gauss–Newton gain of one sequence on one rig takes."""
    rigs = objective.draw(jax.random.key(0), system, horizon, 1)
    unit = jnp.zeros((1, horizon, len(system.design_names)))
    program = jax.make_jaxpr(lambda unit: objective.worth(system, rigs, unit, None, jnp.zeros(())))(unit)
    return _counted(program.jaxpr)


def _counted(jaxpr: Any) -> int:
    """Return the numbers that equations compute, those of loops as often as they turn."""
    total = 0
    for equation in jaxpr.eqns:
        if inner := list(jaxprs_in_params(equation.params)):
            total += equation.params.get("length", 1) * sum(_counted(part) for part in inner)
        else:
            total += DEAR.get(equation.primitive.name, 1) * sum(value.aval.size for value in equation.outvars)
    return total
