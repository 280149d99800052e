"""What a rig must not do: limits of states and of functions of state and design, and how fast designs may change."""

import inspect
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from nestbed.model import predictive
from nestbed.model.prior import Components
from nestbed.numerics.errors import NestbedError, did_you_mean

if TYPE_CHECKING:
    from nestbed.model.system import BaseSystem


def bounds(system: "BaseSystem", name: str) -> tuple[float, float]:
    """Return the limits of one name; −∞ and ∞ where there is none."""
    low, high = system.limits[name]
    return -math.inf if low is None else float(low), math.inf if high is None else float(high)


def scale(system: "BaseSystem", name: str) -> float:
    """Return what excesses are measured in: half the distance of the limits, or the size of the only one."""
    low, high = bounds(system, name)
    if math.isfinite(low) and math.isfinite(high):
        return 0.5 * (high - low)
    return abs(low if math.isfinite(low) else high) or _spread(system, name)


def _spread(system: "BaseSystem", name: str) -> float:
    """Return how far what is limited spreads over the prior predictive."""
    with jax.ensure_compile_time_eval():
        seen = predictive.visited(system)
        values = np.asarray(value(system, name, seen.x, seen.u), float)
    found = float(np.std(values[np.isfinite(values)])) if np.isfinite(values).any() else 0.0
    return found if 0.0 < found < math.inf else 1.0


def value(system: "BaseSystem", name: str, x: Components, u: Components) -> jax.Array:
    """Return what is limited: a state, or the system's method of that name."""
    if name in system.state:
        return x[system.state.index(name)]
    return getattr(system, name)(system.State(*x), system.Design(*u))


def excesses(system: "BaseSystem", states: Any, designs: Any) -> dict[str, list[jax.Array]]:
    """Return how far each limit is exceeded, below 0 where it is kept, before and after each experiment.

    States are (…, T + 1, dx) and designs (…, T, du). Each name has one array (…, T) per limit and end of the step, in
    units of its `scale`: what a design does at once and what it has done after the step both count.
    """
    found: dict[str, list[jax.Array]] = {}
    u = tuple(jnp.moveaxis(designs, -1, 0))
    for name in system.limits:
        low, high = bounds(system, name)
        unit = scale(system, name)
        for ends in (states[..., :-1, :], states[..., 1:, :]):
            reached = value(system, name, tuple(jnp.moveaxis(ends, -1, 0)), u)
            found.setdefault(name, [])
            if math.isfinite(high):
                found[name].append((reached - high) / unit)
            if math.isfinite(low):
                found[name].append((low - reached) / unit)
    return found


def slewed(system: "BaseSystem", u: Any, u_previous: Any) -> Any:
    """Return the design nearest to u that the one before it can change to."""
    if not system.slew:
        return u
    most = np.array([system.slew.get(name, math.inf) for name in system.design_names])
    return jnp.clip(u, u_previous - most, u_previous + most)


def playable(system: "BaseSystem", inputs: Any, previous: Any = None) -> Any:
    """Return sequences (…, T, du) whose changes are kept to the slew, the first one from the rest design or another."""
    if not system.slew:
        return inputs
    before = jnp.array(system.rest_design) if previous is None else previous
    rest = jnp.broadcast_to(before, inputs[..., 0, :].shape)

    def follow(before: Any, wanted: Any) -> Any:
        now = slewed(system, wanted, before)
        return now, now

    _, found = jax.lax.scan(follow, rest, jnp.moveaxis(inputs, -2, 0))
    return jnp.moveaxis(found, 0, -2)


def check(system: "BaseSystem") -> None:
    """Check the names and numbers of limits and slews, as sentences."""
    kind = type(system).__name__
    for what, example in (("limits", '{"speed": (-300.0, 300.0)}'), ("slew", '{"voltage": 2.0}')):
        if not isinstance(getattr(system, what), Mapping):
            raise NestbedError(
                f"{kind}.{what} is {getattr(system, what)!r}; write a dictionary by name, as in {what} = {example}."
            )
    for name, pair in system.limits.items():
        method = getattr(type(system), str(name), None)
        if name not in system.state and not inspect.isfunction(method):
            known = [*system.state, *system.designs.names]
            raise NestbedError(
                f"{kind}.limits names {name!r}, which is no state and no method of {kind}; "
                f"{did_you_mean(str(name), known)}; a limit of something else needs a method {name}(self, x, u)."
                + (" The limits of a design are those of its box." if name in system.designs.names else "")
            )
        values = pair if isinstance(pair, tuple | list) and len(pair) == 2 else (math.nan, math.nan)
        low, high = (default if v is None else v for v, default in zip(values, (-math.inf, math.inf), strict=True))
        real = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (low, high))
        if not real or not low < high or (low == -math.inf and high == math.inf):
            raise NestbedError(
                f"{kind}.limits of {name!r} is {pair!r}; give a lower and an upper limit, None for one that there is "
                f"not, as in {{{name!r}: (-1.0, None)}}."
            )
    for name, most in system.slew.items():
        if name not in system.designs.names:
            raise NestbedError(
                f"{kind}.slew names {name!r}, which is no design; {did_you_mean(str(name), system.designs.names)}."
            )
        if isinstance(most, bool) or not isinstance(most, int | float) or not 0.0 < most < math.inf:
            raise NestbedError(
                f"{kind}.slew of {name!r} is {most!r}; give the most that it may change by from one experiment to the "
                "next, a positive number."
            )
