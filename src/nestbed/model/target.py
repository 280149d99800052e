"""What is to be known: some of the parameters, or quantities that follow from them, the rest being nuisance."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nestbed.model.prior import Components
from nestbed.model.system import BaseSystem
from nestbed.numerics.errors import NestbedError, did_you_mean

Wanted = str | Callable[[Any], Any]
"""A parameter's name, the name of a method (theta) of the system, or a function of theta."""


@dataclass(frozen=True)
class Target:
    """Parameters and quantities of interest, by name."""

    names: tuple[str, ...]
    functions: tuple[Callable[[Any], Any] | None, ...]  # None: a parameter, or the system's method of that name

    def plain(self, system: BaseSystem) -> bool:
        """Return whether all of it are parameters."""
        pairs = zip(self.names, self.functions, strict=True)
        return all(name in system.parameter_names and function is None for name, function in pairs)

    def nuisance(self, system: BaseSystem) -> tuple[bool, ...]:
        """Return which parameters are not named."""
        return tuple(name not in self.names for name in system.parameter_names)

    def values(self, system: BaseSystem, theta: Components) -> Components:
        """Return what is of interest, for parameters that broadcast."""
        named = system.Theta(*theta)

        def value(name: str, function: Any) -> Any:
            if function is not None:
                return function(named)
            return getattr(named, name) if name in system.parameter_names else getattr(system, name)(named)

        return tuple(value(name, function) for name, function in zip(self.names, self.functions, strict=True))

    def slopes(self, system: BaseSystem, theta: Components, per: Components) -> Float[Array, "... k d"]:
        """Return how the values change with coordinates that parameters change with as `per` says, each by itself."""
        columns = []
        for i in range(len(theta)):
            tangent = tuple(p if j == i else jnp.zeros_like(p) for j, p in enumerate(per))
            changes = jax.jvp(lambda theta: self.values(system, theta), (theta,), (tangent,))[1]
            columns.append(jnp.stack(jnp.broadcast_arrays(*changes), axis=-1))
        return jnp.stack(columns, axis=-1)


def targeted(system: BaseSystem, wanted: "Wanted | Sequence[Wanted] | Target | None") -> Target | None:
    """Return what is of interest, or None for all parameters; raise if a name is none of the system's."""
    if wanted is None or isinstance(wanted, Target):
        return wanted
    each = (wanted,) if isinstance(wanted, str) or callable(wanted) else tuple(wanted)
    if not each:
        raise NestbedError("target is empty; name at least one parameter, or leave it out for all.")
    found: dict[str, Any] = {}
    for name, function in (_named(system, one) for one in each):
        taken = name in found or (function is not None and name in system.parameter_names)
        found[f"{name}_{len(found) + 1}" if taken and function is not None else name] = function
    parameters = system.parameter_names
    ordered = [name for name in parameters if name in found] + [name for name in found if name not in parameters]
    target = Target(tuple(ordered), tuple(found[name] for name in ordered))
    if target.plain(system):
        return None if len(ordered) == len(system.parameter_names) else target
    _check(system, target)
    return target


def _named(system: BaseSystem, one: Any) -> tuple[str, Any]:
    """Return a name and its function, None where the system knows it by name."""
    if callable(one):
        name = getattr(one, "__name__", "<lambda>")
        return ("target" if name == "<lambda>" else name), one
    if one in system.parameter_names:
        return one, None
    method = getattr(type(system), one, None) if isinstance(one, str) and not one.startswith("_") else None
    if inspect.isfunction(method) and len(inspect.signature(method).parameters) == 2:
        return one, None
    commas = isinstance(one, str) and "," in one
    raise NestbedError(
        f"{system.name} has no parameter {one!r} to be a target; {did_you_mean(str(one), system.parameter_names)}. "
        + (
            "Give several apart, not with commas between."
            if commas
            else f"What follows from the parameters needs a method {one}(self, theta)."
        )
    )


def _check(system: BaseSystem, target: Target) -> None:
    """Raise unless the quantities are numbers that parameters change, fewer than there are of these."""
    if len(target.names) >= len(system.parameter_names):
        raise NestbedError(
            f"the target has {len(target.names)} quantities, as many as {system.name} has parameters or more, so it is "
            "all that can be known; leave target out."
        )
    draws = system.parameters.draws
    for name, function in zip(target.names, target.functions, strict=True):
        try:
            value = jnp.asarray(Target((name,), (function,)).values(system, draws)[0])
        except Exception as error:
            raise NestbedError(
                f"the target {name} failed with {type(error).__name__}: {error}; write it with jax.numpy, for "
                "parameters that are arrays, as in theta.inductance / theta.resistance."
            ) from error
        if value.shape != draws[0].shape or not jnp.issubdtype(value.dtype, jnp.floating):
            raise NestbedError(
                f"the target {name} returned {value.dtype} of shape {value.shape} for parameters of shape "
                f"{draws[0].shape}; it must be one real number for each, made of the parameters alone."
            )
        if not jnp.isfinite(value).all() or not jnp.ptp(value) > 0.0:
            raise NestbedError(
                f"the target {name} is "
                + ("the same for all parameters" if jnp.isfinite(value).all() else "not finite for some parameters")
                + " of the prior; correct it, or leave it out."
            )
