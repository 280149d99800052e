"""Validation of what a user wrote in a system: each complaint is one sentence."""

import difflib
import keyword
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from nestbed.box import Box
from nestbed.errors import NestbedError, did_you_mean

if TYPE_CHECKING:
    from nestbed.system import BaseSystem


def instance(system: object) -> None:
    """Check that a function got a system, not its class or its name."""
    from nestbed.system import BaseSystem

    if isinstance(system, BaseSystem):
        return
    if isinstance(system, type):
        raise NestbedError(f"the system got the class {system.__name__}; give an instance of it, {system.__name__}().")
    raise NestbedError(
        f"the system is {system!r}, but it must be a nestbed system, such as "
        "nb.systems.load('cart_pole') or an instance of your own class."
    )


def spelling(kind: type, settings: dict[str, Any], known: dict[str, Any]) -> None:
    """Check that no attribute of a class hides one of nestbed's, or is a setting with a slip in its name."""
    from nestbed.system import BaseSystem

    reserved = {*vars(BaseSystem), *BaseSystem.__annotations__} - {*known}
    for name in settings:
        if name in reserved:
            hint = "write defaults = nb.Defaults(horizon=...)" if name == "horizon" else "give it another name"
            raise NestbedError(f"{kind.__name__} has an attribute {name!r}, which nestbed uses itself; {hint}.")
        close = [] if name in known else difflib.get_close_matches(name, known, n=1, cutoff=0.85)
        if close:
            raise NestbedError(
                f"{kind.__name__} has an attribute {name!r}; did you mean {close[0]!r}? If it is a constant of your "
                "own, give it another name."
            )


def declarations(system: "BaseSystem") -> None:
    """Check names, numbers and the design box before anything is built from them."""
    kind = type(system).__name__
    if not isinstance(system.designs, Box):
        raise NestbedError(f"{kind}.designs is {system.designs!r}; write designs = nb.Box(name=(low, high)).")
    if isinstance(system.state, str) or not system.state:
        raise NestbedError(f'{kind}.state is {system.state!r}; name the states, as in state = ("angle", "velocity").')
    for name in (*system.state, *system.designs.names, *system.prior):
        if not str(name).isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
            raise NestbedError(
                f"{kind} has a state, design or parameter named {name!r}; use a plain Python name, such as 'angle', "
                "that is no keyword and does not begin with an underscore."
            )
    if len(set(system.state)) != len(system.state):
        raise NestbedError(f"{kind}.state names a state twice: {system.state}.")
    if not _number(system.step) or system.step <= 0:
        raise NestbedError(f"{kind}.step is {system.step!r}; it must be a positive number of time units.")
    if not _number(system.noise_floor) or system.noise_floor < 0:
        raise NestbedError(f"{kind}.noise_floor is {system.noise_floor!r}; it must be a variance, 0 or more.")
    _constant_diffusion(system)
    _start(system)


def functions(system: "BaseSystem") -> None:
    """Check the drift, a diffusion method and the features by their shapes, on scalars and when broadcasting."""
    for one, many in (((), ()), ((2, 1), (2, 3))):
        x = _components(len(system.state), one)
        u = _components(len(system.designs.names), one)
        theta = _components(len(system.prior), many)
        with traceable(f"the drift of {system.name}"):
            rates = jax.eval_shape(system.rates, x, u, theta)
        _shapes(system, "drift", rates, many)
        if callable(system.diffusion):
            named = system.State(*x), system.Design(*u), system.Theta(*theta)
            with traceable(f"the diffusion of {system.name}"):
                scales = jax.eval_shape(system.diffusion, *named)
            _shapes(system, "diffusion", scales, many)


@contextmanager
def traceable(what: str) -> Iterator[None]:
    """Explain the two ways in which ordinary Python cannot be compiled, and a slip in a component's name."""
    try:
        yield
    except jax.errors.TracerBoolConversionError:
        raise NestbedError(
            f"{what} decides with a Python `if`, `and` or `while` on a value that is only known when it runs; write "
            "jnp.where(condition, a, b) instead."
        ) from None
    except AttributeError as error:
        owner = {"State": "x", "Design": "u", "Theta": "theta"}.get(type(error.obj).__name__)
        if owner is None:
            raise
        hint = did_you_mean(str(error.name), getattr(error.obj, "_fields", ()))
        raise NestbedError(f"{what} uses {owner}.{error.name}, which does not exist; {hint}.") from None
    except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError):
        raise NestbedError(
            f"{what} calls numpy or math on a value that is only known when it runs; use jax.numpy instead, for "
            "example jnp.sin for np.sin or math.sin."
        ) from None


@lru_cache(maxsize=64)
def linearity(system: "BaseSystem") -> None:
    """Check on prior draws that `features` reproduces the drift and that the noise knows no parameter."""

    def features(x: Any, u: Any) -> Any:
        return system.features(system.State(*x), system.Design(*u))  # type: ignore[attr-defined]

    draw = np.random.default_rng(0)
    x = tuple(draw.standard_normal((len(system.state), 64)))
    limits = zip(system.designs.low, system.designs.high, strict=True)
    u = tuple(draw.uniform(low, high, 64) for low, high in limits)
    rows = features(x, u)
    for name, row in zip(system.state, rows, strict=True):
        if len(row) != len(system.prior):
            raise NestbedError(
                f"{system.name}.features gives {len(row)} coefficients for the state {name!r}, but there are "
                f"{len(system.prior)} parameters: {system.parameter_names}."
            )
    for name, full, rebuilt in zip(system.state, *_linear(system, features, x, u), strict=True):
        if not np.allclose(rebuilt, full, rtol=1e-9, atol=1e-9):
            raise NestbedError(
                f"{system.name}.features does not reproduce the drift of {name!r}: drift(x, u, θ) must equal "
                "drift(x, u, 0) + features · θ; correct one of the two, or use belief='ibis'."
            )
    if not _noise_knows_no_parameter(system, x, u):
        raise NestbedError(
            f"the noise of {system.name} depends on its parameters, so its belief has no exact form; use belief='ibis'."
        )


def _linear(system: "BaseSystem", features: Any, x: Any, u: Any) -> Any:
    """Return the drift as it is, and as its features make it, both in one compiled program."""

    @jax.jit
    def both(x: Any, u: Any) -> Any:
        theta = system.parameters.constrain(system.parameters.sample(jax.random.key(0), (64,)))
        zero = tuple(jnp.zeros(64) for _ in theta)
        rebuilt = tuple(
            offset + sum(h * value for h, value in zip(row, theta, strict=True))
            for offset, row in zip(system.rates(x, u, zero), features(x, u), strict=True)
        )
        return system.rates(x, u, theta), rebuilt

    return both(x, u)


def _noise_knows_no_parameter(system: "BaseSystem", x: Any, u: Any) -> bool:
    if system.constant_noise:
        return True
    theta = system.parameters.constrain(system.parameters.sample(jax.random.key(0), (64,)))
    others = tuple(jnp.roll(value, 1) for value in theta)
    pairs = zip(system.variance(x, u, theta), system.variance(x, u, others), strict=True)
    return not any(bool(jnp.any(jnp.asarray(a) != jnp.asarray(b))) for a, b in pairs)


def _constant_diffusion(system: "BaseSystem") -> None:
    kind, diffusion = type(system).__name__, system.diffusion
    if callable(diffusion):
        return
    if not isinstance(diffusion, tuple | list) or len(diffusion) != len(system.state):
        raise NestbedError(
            f"{kind}.diffusion is {diffusion!r}; give one number per state, {len(system.state)} in all, "
            f"for {system.state}."
        )
    for name, scale in zip(system.state, diffusion, strict=True):
        if not _number(scale) or scale < 0:
            raise NestbedError(f"{kind}.diffusion of {name!r} is {scale!r}; it must be a number, 0 or more.")
        if scale == 0 and system.noise_floor == 0:
            raise NestbedError(
                f"the state {name!r} of {kind} has no noise, so its outcomes have no density; give it a diffusion or a "
                "noise_floor above 0."
            )


def _start(system: "BaseSystem") -> None:
    kind, start = type(system).__name__, system.start
    if isinstance(start, Mapping):
        for name in start:
            if name not in system.state:
                raise NestbedError(f"{kind}.start names {name!r}, which is no state; the states are {system.state}.")
    values = system.start_values()
    if len(values) != len(system.state):
        raise NestbedError(f"{kind}.start has {len(values)} values for {len(system.state)} states {system.state}.")
    for name, value in zip(system.state, values, strict=True):
        scalar = isinstance(value, dist.Distribution) and not (value.batch_shape or value.event_shape)
        if not _number(value) and not scalar:
            raise NestbedError(
                f"{kind}.start of {name!r} is {value!r}; give a finite number or a scalar NumPyro distribution."
            )


def _shapes(system: "BaseSystem", what: str, values: Any, shape: tuple[int, ...]) -> None:
    values = tuple(values) if isinstance(values, tuple | list) else (values,)
    if len(values) == 1 and len(system.state) > 1:
        raise NestbedError(
            f"the {what} of {system.name} returned {_told(values[0])}; return a tuple with one value per state, in the "
            f"order {system.state}."
        )
    if len(values) != len(system.state):
        raise NestbedError(
            f"the {what} of {system.name} returned {len(values)} components, but its state has {len(system.state)}: "
            f"{system.state}; return one per state, in that order."
        )
    for name, value in zip(system.state, values, strict=True):
        got = jnp.shape(value)
        try:
            fits = jnp.broadcast_shapes(got, shape) == shape
        except ValueError:
            fits = False
        if not fits:
            raise NestbedError(
                f"the {what} of {system.name} returned the shape {got} for {name!r} where the arguments broadcast "
                f"to {shape}; write it with elementwise operations only, or use nb.VectorSystem."
            )


def _told(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return repr(value) if shape is None else "a number" if shape == () else f"one array of shape {shape}"


def _components(count: int, shape: tuple[int, ...]) -> tuple[jax.ShapeDtypeStruct, ...]:
    return tuple(jax.ShapeDtypeStruct(shape, jnp.float64) for _ in range(count))


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
