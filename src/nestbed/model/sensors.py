"""What is seen of a system: sensors with their noise, and designs that arrive late.

A sensor's value is that of `observe(x, theta)`, or of the state that has its name, and Gaussian noise. One that
rounds to steps of a `resolution` r is taken to add noise of variance r² / 12: that of a value spread evenly over a
step, which is near the truth where noise or motion carries the value over several steps.
"""

import itertools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from nestbed.model.prior import Components
from nestbed.numerics.errors import NestbedError, did_you_mean

if TYPE_CHECKING:
    from nestbed.model.system import BaseSystem

LONGEST = 256
"""Steps that a design may arrive late at most."""


def names(system: "BaseSystem") -> tuple[str, ...]:
    """Return what is seen, in order: the sensors, or all states."""
    return tuple(system.sensors) or tuple(system.state)


def seen(system: "BaseSystem", x: Components, theta: Components) -> Components:
    """Return what sensors without noise would show, component by component."""
    if hasattr(system, "observe"):
        return system.sensed(x, theta)
    return tuple(x[system.state.index(name)] for name in names(system))


def variances(system: "BaseSystem", x: Components, u: Components, theta: Components) -> tuple[Any, ...]:
    """Return the variance of each sensor's noise; floats where it is constant."""
    if hasattr(system, "sensor_noise"):
        scales = system.sensor_noise(system.State(*x), system.Design(*u), system.Theta(*theta))
        scales = tuple(scales) if isinstance(scales, tuple | list) else (scales,)
    elif system.sensors:
        scales = tuple(_scale(system, value, theta) for value in system.sensors.values())
    else:
        scales = (0.0,) * len(system.state)
    steps = (system.resolution.get(name, 0.0) for name in names(system))
    return tuple(scale**2 + step**2 / 12.0 for scale, step in zip(scales, steps, strict=True))


def _scale(system: "BaseSystem", value: Any, theta: Components) -> Any:
    return theta[system.parameter_names.index(value)] if isinstance(value, str) else float(value)


def memory(system: "BaseSystem") -> int:
    """Return how many designs of the past a step may need."""
    return max((math.ceil(_longest(system, late)) for late in system.delay.values()), default=0)


def _longest(system: "BaseSystem", late: Any) -> float:
    """Return the longest delay that is reckoned with, in steps."""
    if not isinstance(late, str):
        return float(late)
    return min(LONGEST, float(np.asarray(system.parameters.draws[system.parameter_names.index(late)]).max()))


def arriving(
    system: "BaseSystem", designs: tuple[Components, ...], ages: Any, theta: Components, length: Any = 1.0
) -> Components:
    """Return the designs that are at work within a step, of those chosen now and before, the latest first.

    `ages` says how many steps ago each was chosen, and `length` how many the step lasts. A design is held until the
    next is chosen; where two of them are at work within a step, it is their average over the time.
    """
    found = []
    for i, name in enumerate(system.design_names):
        values = [past[i] for past in designs]
        late = system.delay.get(name, 0.0)
        late = theta[system.parameter_names.index(late)] if isinstance(late, str) else late
        found.append(_held(values, ages, late, length))
    return tuple(found)


def _held(values: list[Any], ages: Any, late: Any, length: Any) -> Any:
    """Return the average of what was chosen `late` steps before each moment of a step."""
    if all(isinstance(value, int | float) for value in (late, length, *ages)):
        whole = min(int(late), len(values) - 1)
        part = late - whole if whole + 1 < len(values) else 0.0
        return values[whole] if part == 0.0 else (1.0 - part) * values[whole] + part * values[whole + 1]
    until = [jnp.clip(late - age, 0.0, length) / length for age in ages[:-1]]  # the share before each took over
    shares = [1.0 - until[0], *(a - b for a, b in itertools.pairwise(until)), until[-1]]
    return sum(share * value for share, value in zip(shares, values, strict=True))


def start(system: "BaseSystem") -> tuple[tuple[float, float], ...]:
    """Return mean and variance of each state at the start."""
    with jax.ensure_compile_time_eval():
        return tuple(
            (float(value), 0.0) if isinstance(value, int | float) else (float(value.mean), float(value.variance))
            for value in system.start_values()
        )


def check(system: "BaseSystem") -> None:
    """Check names and numbers of sensors and delays, as sentences."""
    kind = type(system).__name__
    for what, example in (("resolution", '{"angle": 0.001}'), ("delay", '{"torque": 2}')):
        if not isinstance(getattr(system, what), Mapping):
            raise NestbedError(
                f"{kind}.{what} is {getattr(system, what)!r}; write a dictionary by name, as in {what} = {example}."
            )
    _check_sensors(system, kind)
    for name, step in system.resolution.items():
        if name not in names(system):
            raise NestbedError(
                f"{kind}.resolution names {name!r}, which is not seen; {did_you_mean(str(name), names(system))}."
            )
        if not _number(step) or step < 0.0:
            raise NestbedError(f"{kind}.resolution of {name!r} is {step!r}; give the step it rounds to, 0 or more.")
    _check_delays(system, kind)
    particles = system.state_particles
    if isinstance(particles, bool) or not isinstance(particles, int) or particles < 0 or particles == 1:
        raise NestbedError(
            f"{kind}.state_particles is {particles!r}; give how many particles follow the hidden states, such as 256, "
            "or 0 for a Gaussian filter."
        )
    if system.hidden:
        for name, (mean, variance) in zip(system.state, start(system), strict=True):
            if not (math.isfinite(mean) and math.isfinite(variance)):
                raise NestbedError(
                    f"{kind}.start of {name!r} has the mean {mean} and the variance {variance}, but a filter needs "
                    "both; give a distribution that has them, such as dist.Normal(0.0, 1.0)."
                )


def _check_sensors(system: "BaseSystem", kind: str) -> None:
    has_method = hasattr(system, "sensor_noise")
    if not isinstance(system.sensors, Mapping) and not (has_method and isinstance(system.sensors, tuple | list)):
        raise NestbedError(
            f"{kind}.sensors is {system.sensors!r}; write a dictionary of names and standard deviations, as in "
            'sensors = {"temperature": 0.3}, or names alone beside a method sensor_noise(self, x, u, theta).'
        )
    for method in ("observe", "sensor_noise"):
        if hasattr(system, method) and not system.sensors:
            raise NestbedError(
                f"{kind} has a method {method} but no sensors; name what is seen, as in "
                'sensors = {"temperature": 0.3}.'
            )
    if not hasattr(system, "observe"):
        for name in system.sensors:
            if name not in system.state:
                raise NestbedError(
                    f"{kind}.sensors names {name!r}, which is no state, so {kind} needs a method observe(self, x, "
                    f"theta) that returns what each sensor shows; the states are {system.state}."
                )
    if has_method:
        return
    for name, scale in dict(system.sensors).items():
        if isinstance(scale, str):
            if scale not in system.parameter_names:
                raise NestbedError(
                    f"{kind}.sensors of {name!r} is {scale!r}, which is no parameter; "
                    f"{did_you_mean(scale, system.parameter_names)}."
                )
        elif not _number(scale) or scale < 0.0:
            raise NestbedError(
                f"{kind}.sensors of {name!r} is {scale!r}; give the standard deviation of its noise, 0 or more, or "
                "the name of the parameter that it is."
            )


def _check_delays(system: "BaseSystem", kind: str) -> None:
    for name, late in system.delay.items():
        if name not in system.designs.names:
            raise NestbedError(
                f"{kind}.delay names {name!r}, which is no design; {did_you_mean(str(name), system.designs.names)}."
            )
        if isinstance(late, str):
            if late not in system.parameter_names:
                raise NestbedError(
                    f"{kind}.delay of {name!r} is {late!r}, which is no parameter; "
                    f"{did_you_mean(late, system.parameter_names)}."
                )
            draws = np.asarray(system.parameters.draws[system.parameter_names.index(late)])
            if draws.min() < 0.0:
                raise NestbedError(
                    f"the prior of {late!r} reaches below 0 ({draws.min():.3g}), but it is the delay of {name!r}; "
                    "give it a distribution of positive numbers, such as dist.LogNormal(0.0, 0.3)."
                )
        elif not _number(late) or not 0.0 <= late <= LONGEST:
            raise NestbedError(
                f"{kind}.delay of {name!r} is {late!r}; give how many steps it arrives late, from 0 to {LONGEST}, or "
                "the name of the parameter that it is."
            )


def check_functions(system: "BaseSystem", x: Any, u: Any, theta: Any, shape: tuple[int, ...]) -> None:
    """Check by their shapes what sensors show and how noisy they are."""
    wanted = names(system)
    calls = {"observe": lambda: jax.eval_shape(lambda x, theta: seen(system, x, theta), x, theta)}
    if hasattr(system, "sensor_noise"):
        calls["sensor_noise"] = lambda: jax.eval_shape(lambda x, u, theta: variances(system, x, u, theta), x, u, theta)
    for what, call in calls.items():
        try:
            values = call()
        except ValueError as error:
            if "zip()" not in str(error):
                raise
            values = ()
        if len(values) != len(wanted):
            raise NestbedError(
                f"{what} of {system.name} does not return one value per sensor, {len(wanted)} in all, in the order "
                f"{wanted}" + (f", but {len(values)}." if values else ".")
            )
        for name, value in zip(wanted, values, strict=True):
            got = jnp.shape(value)
            if got and jnp.broadcast_shapes(got, shape) != shape:
                raise NestbedError(
                    f"{what} of {system.name} returned the shape {got} for {name!r} where the arguments broadcast to "
                    f"{shape}; write it with elementwise operations only."
                )


def check_density(system: "BaseSystem") -> None:
    """Raise where a sensor without noise shows a state without noise: what it shows has no density."""
    middle = system.parameters.middle
    x = tuple(jnp.asarray(mean) for mean, _ in start(system))
    u = tuple(jnp.asarray(value) for value in system.rest_design)
    if callable(system.diffusion) or hasattr(system, "sensor_noise"):
        return  # they may be 0 here and not elsewhere
    with jax.ensure_compile_time_eval():
        moving = [
            i
            for i, (v, (_, spread)) in enumerate(zip(system.variance(x, u, middle), start(system), strict=True))
            if v > system.noise_floor or spread > 0.0
        ]
        slopes = jax.jacfwd(lambda x: seen(system, x, middle))(x)
        scales = variances(system, x, u, middle)
    for name, scale, row in zip(names(system), scales, slopes, strict=True):
        if float(scale) == 0.0 and not any(float(row[i]) != 0.0 for i in moving):
            raise NestbedError(
                f"the sensor {name!r} of {system.name} has no noise, and no state that it shows has any, so what it "
                "shows has no density; give the sensor a standard deviation above 0, or the states a diffusion."
            )


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
