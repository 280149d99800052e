"""How much work a gain is to compute, counted rather than timed, so that it is the same on every machine."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import jaxprs_in_params

from nestbed.information import objective
from nestbed.model import integration
from nestbed.model.system import BaseSystem
from nestbed.numerics import programs

DEAR = {
    **dict.fromkeys(("div", "sqrt", "rsqrt"), 4),
    **dict.fromkeys(("exp", "log", "log1p", "expm1", "sin", "cos", "tan", "tanh", "logistic", "pow", "erf"), 12),
}
"""Additions that one of these operations takes as long as."""
AGAIN = 3
"""How often steps in parts are computed where others are once, since gradients compute each part again on their way."""

PAIR = 2
"""States up to which a filter of hidden ones takes as long as its operations say; with more, compiled programs compute
what entries of its covariance share again for each of them: ten times as long with four."""


@programs.cached(maxsize=64)
def operations(system: BaseSystem, horizon: int) -> int:
    """Return the operations that the Gauss–Newton gain of one sequence on one rig takes."""
    rigs = objective.draw(jax.random.key(0), system, horizon, 1)
    unit = jnp.zeros((1, horizon, len(system.design_names)))
    program = jax.make_jaxpr(lambda unit: objective.worth(system, rigs, unit, None, jnp.zeros(())))(unit)
    again = AGAIN if integration.scheme(system).substeps > 1 else 1
    shared = max(1, len(system.state) ** 3 // PAIR**3) if system.hidden else 1
    return _counted(program.jaxpr) * again * shared


def _counted(jaxpr: Any) -> int:
    """Return the numbers that equations compute, those of loops as often as they turn."""
    total = 0
    for equation in jaxpr.eqns:
        if inner := list(jaxprs_in_params(equation.params)):
            total += equation.params.get("length", 1) * sum(_counted(part) for part in inner)
        else:
            total += DEAR.get(equation.primitive.name, 1) * sum(value.aval.size for value in equation.outvars)
    return total
