"""Whether a system is linear in its states, or in states and parameters taken together, by its equations.

In its states: then Gaussian filters of them are exact. Together: then what is seen of hidden states is one Gaussian
with the parameters, and their belief is exact; a product of a state and a parameter is not linear, nor is noise that
hangs on either. What designs do is free.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from nestbed.model import sensors
from nestbed.model.prior import Components
from nestbed.model.system import BaseSystem
from nestbed.numerics import dependence, programs
from nestbed.numerics.dependence import ZERO


@programs.cached(maxsize=64)
def why_not_joint(system: BaseSystem) -> str:
    """Return why states and parameters are not one Gaussian with what is seen of them, or nothing where they are."""
    for name, value in zip(system.state, system.start_values(), strict=True):
        if not isinstance(value, int | float | dist.Normal):
            return f"the start of {name!r} is a {type(value).__name__}, not Normal"
    for name, late in system.delay.items():
        if isinstance(late, str):
            return f"the delay of {name!r} is a parameter"
    return _bent(system, len(system.state) + len(system.parameter_names))


@programs.cached(maxsize=64)
def why_not_in_states(system: BaseSystem) -> str:
    """Return why hidden states are no Gaussian for known parameters, or nothing where they are."""
    return _bent(system, len(system.state))


def _bent(system: BaseSystem, count: int) -> str:
    """Return what is not linear in the first so many of states and parameters, or nothing."""
    size, names = len(system.state), (*system.state, *system.parameter_names)
    u = tuple(jnp.asarray(value) for value in system.rest_design)
    fixed = tuple(jnp.asarray(value) for value in system.parameters.middle)[count - size :]

    def split(z: Components) -> tuple[Components, Components]:
        return z[:size], (*z[size:], *fixed)

    noise = {
        "noise of a step": lambda x, theta: _noise(system, x, u, theta),
        "noise of sensors": lambda x, theta: sensors.variances(system, x, u, theta),
    }
    for what, function in noise.items():
        if (on := _first(lambda z, function=function: function(*split(z)), count)) is not None:  # type: ignore[misc]
            return f"the {what} changes with {names[on[1]]!r}"
    means = {
        "the drift of": (system.state, lambda x, theta: system.rates(x, u, theta)),
        "what is shown by": (sensors.names(system), lambda x, theta: sensors.seen(system, x, theta)),
    }
    for what, (owners, function) in means.items():
        slopes = _slopes(lambda z, function=function: function(*split(z)), count)  # type: ignore[misc]
        if (bent := _first(slopes, count)) is not None:
            owner, along = divmod(bent[0], count)
            return f"the slope of {what} {owners[owner]!r} along {names[along]!r} changes with {names[bent[1]]!r}"
    return ""


def _noise(system: BaseSystem, x: Components, u: Components, theta: Components) -> tuple[Any, ...]:
    shared = system.shared_variance(x, u, theta)
    return (*system.variance(x, u, theta), *(value for row in shared for value in row))


def _first(function: Callable[[Components], tuple[Any, ...]], count: int) -> tuple[int, int] | None:
    """Return the first result that hangs on an argument, and that argument, by their numbers."""
    found = dependence.slopes(lambda z: tuple(jnp.asarray(value) for value in function(z)), count)
    return next(((i, j) for i, row in enumerate(found) for j, slope in enumerate(row) if slope != ZERO), None)


def _slopes(function: Callable[[Components], tuple[Any, ...]], count: int) -> Callable[[Components], tuple[Any, ...]]:
    """Return what gives each slope of each result, the first result's slopes along all arguments first."""

    def along(z: Components, j: int) -> tuple[Any, ...]:
        def alone(value: Any) -> tuple[Any, ...]:
            return tuple(jnp.asarray(result, float) for result in function((*z[:j], value, *z[j + 1 :])))

        return jax.jvp(alone, (z[j],), (jnp.ones_like(z[j]),))[1]  # all others are constants to it

    def slopes(z: Components) -> tuple[Any, ...]:
        return tuple(slope for row in zip(*(along(z, j) for j in range(count)), strict=True) for slope in row)

    return slopes
