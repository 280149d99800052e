"""Validation of what a user wrote in a system: each complaint is one sentence."""

import difflib
import inspect
import keyword
import math
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from nestbed.model import integration, limits, predictive, sensors
from nestbed.model.box import Box
from nestbed.numerics import programs
from nestbed.numerics.errors import NestbedError, at_least_one, did_you_mean, outside

if TYPE_CHECKING:
    from nestbed.model.system import BaseSystem


def jax_settings() -> None:
    """Check that jax computes as filters need it: in 64 bits, and promoting types and ranks as it does by itself."""
    if not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        raise NestbedError(
            "jax runs in 32 bits, but filters need 64; remove what switched jax_enable_x64 off, or call nestbed "
            "outside of it."
        )
    for name, wanted in (("jax_numpy_dtype_promotion", "standard"), ("jax_numpy_rank_promotion", "allow")):
        got = str(getattr(getattr(jax.config, name), "value", getattr(jax.config, name)))
        if got not in (wanted, "warn"):
            raise NestbedError(
                f"jax's setting {name} is {got!r}, but nestbed needs {wanted!r}; call it outside of that setting."
            )


def instance(system: object) -> None:
    """Check that a function got a system, not its class or its name, and that what it was compiled to still holds."""
    from nestbed.model.system import BaseSystem

    jax_settings()
    if isinstance(system, BaseSystem):
        programs.current(type(system), system._settings, vars(system))
        predictive.check_plausible(system)
        integration.check_noise(system)
        return
    if isinstance(system, type):
        raise NestbedError(f"the system got the class {system.__name__}; give an instance of it, {system.__name__}().")
    raise NestbedError(
        f"the system is {system!r}, but it must be a nestbed system, such as "
        "nb.systems.load('cart_pole') or an instance of your own class."
    )


def learned(system: "BaseSystem", posterior: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the covariance of what one record has told, in unconstrained coordinates."""
    moments = getattr(getattr(posterior, "belief", None), "unconstrained", None)
    if moments is None:
        raise NestbedError(f"after() got {_short(posterior)}; give it what nb.posterior returned for one record.")
    mean, covariance = (np.asarray(part) for part in moments)
    if mean.ndim > 1:
        raise NestbedError(
            f"the posterior is that of {mean.shape[0]} records, but a prior is one distribution; give nb.posterior one "
            "record, observations of shape (T+1, number of observations)."
        )
    if len(mean) != len(system.parameter_names):
        raise NestbedError(
            f"the posterior is of {len(mean)} parameters, but {system.name} has {len(system.parameter_names)}: "
            f"{system.parameter_names}; give a posterior of this system."
        )
    covariance = 0.5 * (covariance + covariance.T)
    scales = np.sqrt(np.diagonal(covariance))
    with np.errstate(all="ignore"):
        correlation = covariance / (scales[:, None] * scales)
    if not (np.isfinite(mean).all() and np.isfinite(correlation).all() and _least(correlation) > SINGULAR):
        raise NestbedError(
            f"the posterior of {system.name} has no spread along some direction, as where few particles have all the "
            "weight, so it can be no prior; raise particles."
        )
    return mean, covariance


def _least(matrix: np.ndarray) -> float:
    return float(np.linalg.eigvalsh(matrix).min())


SINGULAR = 1e-12
"""Least eigenvalue of a correlation that is more than rounding."""


def spelling(kind: type, settings: dict[str, Any], known: dict[str, Any]) -> None:
    """Check that no attribute of a class hides one of nestbed's, or is a setting with a slip in its name."""
    from nestbed.model.system import BaseSystem

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


def numbers(what: str, values: Any) -> np.ndarray:
    """Return values as an array of doubles; text is refused even where it could be read as a number."""
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "biuf":
            raise TypeError
    except (TypeError, ValueError):
        raise NestbedError(f"{what} must be an array of numbers, but {_short(values)} is none.") from None
    return array.astype(float)


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def unused(system: "BaseSystem", known: Mapping[str, Any]) -> None:
    """Warn of public class attributes that nestbed does not know and that no code of the class reads."""
    own = [kind for kind in type(system).__mro__ if not kind.__module__.startswith("nestbed.")]
    doubtful = [name for name in system._settings if name not in known and any(name in vars(kind) for kind in own)]
    if not doubtful:
        return
    read = _read(system).union(*(programs.names_read(kind) for kind in own))
    for name in doubtful:
        if name not in read and not any(_written_twice(kind, name) for kind in own):
            warnings.warn(
                f"{system.name} has an attribute {name!r}, which is no setting of nestbed and which none of its "
                "methods reads, so it changes nothing; remove it, or correct its name.",
                stacklevel=outside(),
            )


def _read(system: "BaseSystem") -> set[str]:
    """Return the attributes that a system's functions read when they are traced."""
    read: set[str] = set()

    def note(self: Any, name: str) -> Any:
        read.add(name)
        return object.__getattribute__(self, name)

    spy: Any = object.__new__(type(type(system).__name__, (type(system),), {"__getattribute__": note}))
    object.__getattribute__(spy, "__dict__").update(vars(system))
    named = system.state, system.designs.names, system.parameter_names
    x, u, theta = (_components(len(names), ()) for names in named)
    for call in (spy.equations, spy.variance):
        jax.eval_shape(call, x, u, theta)
    if callable(getattr(spy, "features", None)):
        jax.eval_shape(lambda x, u: spy.features(system.State(*x), system.Design(*u)), x, u)
    if system.sensors:
        jax.eval_shape(lambda x, theta: sensors.seen(spy, x, theta), x, theta)
        jax.eval_shape(lambda x, u, theta: sensors.variances(spy, x, u, theta), x, u, theta)
    for name in system.limits:
        jax.eval_shape(lambda x, u, name=name: limits.value(spy, name, x, u), x, u)
    if callable(getattr(spy, "view", None)):
        y = _components(len(system.observation_names), ())
        jax.eval_shape(lambda y: spy.view(system.Observation(*y)), y)
    return read


def _written_twice(kind: type, name: str) -> bool:
    """Return whether the source of a class names something more often than where it is set."""
    try:
        source = inspect.getsource(kind)
    except (OSError, TypeError):
        return False
    return len(re.findall(rf"\b{re.escape(name)}\b", source)) > 1


def declarations(system: "BaseSystem") -> None:
    """Check names, numbers and the design box before anything is built from them."""
    kind = type(system).__name__
    if not isinstance(system.designs, Box):
        raise NestbedError(f"{kind}.designs is {system.designs!r}; write designs = nb.Box(name=(low, high)).")
    if isinstance(system.state, str) or not system.state:
        raise NestbedError(f'{kind}.state is {system.state!r}; name the states, as in state = ("angle", "velocity").')
    for name in (*system.state, *system.designs.names, *system.parameter_names, *system.sensors):
        if not str(name).isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
            raise NestbedError(
                f"{kind} has a state, design, parameter or sensor named {name!r}; use a plain Python name, such as "
                "'angle', that is no keyword and does not begin with an underscore."
            )
    if len(set(system.state)) != len(system.state):
        raise NestbedError(f"{kind}.state names a state twice: {system.state}.")
    if system.integrator is not None and system.integrator not in integration.INTEGRATORS:
        hint = did_you_mean(str(system.integrator), integration.INTEGRATORS)
        raise NestbedError(f"{kind}.integrator is {system.integrator!r}; {hint}.")
    at_least_one(substeps=system.substeps)
    if not _number(system.step) or system.step <= 0:
        raise NestbedError(f"{kind}.step is {system.step!r}; it must be a positive number of time units.")
    if not _number(system.noise_floor) or system.noise_floor < 0:
        raise NestbedError(f"{kind}.noise_floor is {system.noise_floor!r}; it must be a variance, 0 or more.")
    _constant_diffusion(system)
    _noise_floor(system)
    _start(system)
    limits.check(system)
    sensors.check(system)


def functions(system: "BaseSystem") -> None:
    """Check the drift, a diffusion method and the features by their shapes, on scalars and when broadcasting."""
    for one, many in (((), ()), ((2, 1), (2, 3))):
        x = _components(len(system.state), one)
        u = _components(len(system.designs.names), one)
        theta = _components(len(system.parameter_names), many)
        with traceable(f"the drift of {system.name}"):
            rates = jax.eval_shape(system.equations, x, u, theta)
        _shapes(system, "drift", rates, many)
        if callable(system.diffusion):
            named = system.State(*x), system.Design(*u), system.Theta(*theta)
            with traceable(f"the diffusion of {system.name}"):
                scales = jax.eval_shape(system.diffusion, *named)
            _diffusion_shapes(system, scales, many)
        if system.sensors:
            with traceable(f"what sensors of {system.name} show"):
                sensors.check_functions(system, x, u, theta, many)
        for name in system.limits:
            with traceable(f"the limited {name} of {system.name}"):
                limited = jax.eval_shape(lambda x, u, name=name: limits.value(system, name, x, u), x, u)
            if getattr(limited, "shape", None) != one:
                raise NestbedError(
                    f"the limited {name} of {system.name} returned {_told(limited)}; return one number, written with "
                    "elementwise operations only."
                )


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
    except TypeError as error:
        if "indices must be integers or slices, not str" not in str(error):
            raise
        raise NestbedError(
            f"{what} asks for a component by a name in square brackets; write x.name, u.name or theta.name."
        ) from None


def _constant_diffusion(system: "BaseSystem") -> None:
    kind, diffusion = type(system).__name__, system.diffusion
    if callable(diffusion):
        return
    if not isinstance(diffusion, tuple | list) or len(diffusion) != len(system.state):
        raise NestbedError(
            f"{kind}.diffusion is {diffusion!r}; give one number per state, {len(system.state)} in all, "
            f"for {system.state}, or as many rows of a matrix."
        )
    if any(isinstance(row, tuple) for row in diffusion):
        _constant_matrix(system)
        return
    for name, scale in zip(system.state, diffusion, strict=True):
        if not _number(scale) or scale < 0:
            raise NestbedError(f"{kind}.diffusion of {name!r} is {scale!r}; it must be a number, 0 or more.")
        if scale == 0 and system.noise_floor == 0 and not system.sensors:
            raise NestbedError(
                f"the state {name!r} of {kind} has no noise, so its outcomes have no density; give it a diffusion or a "
                "noise_floor above 0."
            )


def _constant_matrix(system: "BaseSystem") -> None:
    kind, rows = type(system).__name__, system.diffusion
    for name, row in zip(system.state, rows, strict=True):
        if not isinstance(row, tuple) or not row or len(row) != len(rows[0]) or not all(map(_number, row)):
            raise NestbedError(
                f"{kind}.diffusion of {name!r} is {row!r}; in a matrix every state has a row of numbers, one for each "
                "source of noise, as many as the others have."
            )
    _whole_rank(system, int(np.linalg.matrix_rank(np.array(rows, float))))


def _whole_rank(system: "BaseSystem", rank: int) -> None:
    if rank < len(system.state) and system.noise_floor == 0 and not system.sensors:
        raise NestbedError(
            f"the diffusion of {type(system).__name__} has {rank} independent sources for {len(system.state)} states, "
            "so its outcomes have no density; give it a noise_floor above 0, or further sources."
        )


def _diffusion_shapes(system: "BaseSystem", values: Any, shape: tuple[int, ...]) -> None:
    """Check what a diffusion method returned: one number per state, or one row of them, all of one length."""
    rows = tuple(values) if isinstance(values, tuple | list) else (values,)
    nested = [isinstance(row, tuple | list) for row in rows]
    if not any(nested):
        _shapes(system, "diffusion", values, shape)
        return
    sizes = sorted({len(row) if inner else 0 for row, inner in zip(rows, nested, strict=True)})
    if len(sizes) > 1 or sizes[0] == 0:
        raise NestbedError(
            f"the diffusion of {system.name} returned rows of {' and '.join(map(str, sizes))} numbers; return one row "
            "per state, a tuple with one number for each source of noise, all of one length."
        )
    for column in zip(*rows, strict=True):
        _shapes(system, "diffusion", column, shape)
    _whole_rank(system, min(sizes[0], len(system.state)))


def _noise_floor(system: "BaseSystem") -> None:
    if not callable(system.diffusion) and not system.sensors:
        if not any(np.ravel(system.diffusion)) and system.noise_floor == predictive.FLOOR:
            warnings.warn(
                f"no state of {type(system).__name__} has a diffusion, so its noise floor alone, a variance of "
                f"{system.noise_floor:g}, decides what can be learned; give at least one state the noise it has.",
                stacklevel=outside(),
            )
        for name, scale in zip(system.state, system.diffusion, strict=True):
            predictive.warn_of_floor(system, name, float(system.step * np.sum(np.square(scale))))


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
        if not (hasattr(value, "shape") or _number(value)):
            raise NestbedError(
                f"the {what} of {system.name} returned {_told(value)} for {name!r}; end it with `return` and one "
                f"number per state, in the order {system.state}."
            )
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
