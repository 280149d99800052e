"""What looks right or wrong with a system, as sentences, before any experiment."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nestbed.model import integration, limits, predictive, sensors
from nestbed.model.system import BaseSystem
from nestbed.numerics import programs

FAINT = 1.0
"""Spread of what a sensor shows over prior and designs, in units of its noise, below which it hardly tells."""
FAR = 1e6
"""How many times farther than at first states may be in the end before a system is said to run away."""


class Remark(NamedTuple):
    """One sentence on a system, and whether it speaks well of it."""

    good: bool
    sentence: str


def inspect(system: BaseSystem) -> list[Remark]:
    """Return what can be said of a system's equations, step, noise and limits; that it can be made is known already."""
    found = [_drift(system), _step(system), *_noise(system)]
    if system.limits:
        found.append(_limits(system))
    return found


def _drift(system: BaseSystem) -> Remark:
    """Look at the drift over prior, box and limits, and where random designs lead."""
    x, u, theta = _places(system)
    rates = np.stack([np.broadcast_to(np.asarray(rate), x[0].shape) for rate in _rates(system, x, u, theta)])
    bad = ~np.isfinite(rates)
    if bad.any():
        i, place = np.argwhere(bad)[0]
        where = ", ".join(
            f"{name} = {float(values[place]):.3g}"
            for names, part in ((system.state, x), (system.design_names, u), (system.parameter_names, theta))
            for name, values in zip(names, part, strict=True)
        )
        return Remark(
            False,
            f"the drift of {system.state[i]} is not finite in {100 * bad.any(axis=0).mean():.2g} % of the places where "
            f"prior, box and limits can lead, such as {where}; make it finite there, or narrow the prior.",
        )
    seen = predictive.visited(system)
    ends = [np.abs(np.asarray(value)[-predictive.RIGS :]) for value in seen.fine]
    first = [np.abs(np.asarray(value)[: predictive.RIGS]) for value in seen.fine]
    for name, end, begin in zip(system.state, ends, first, strict=True):
        if not np.median(end) <= FAR * (1e-6 + np.median(begin)):
            return Remark(
                False,
                f"{name} runs away under random designs, to {np.median(end):.2g} after {predictive.STEPS} samples; "
                "check signs and units, or shorten the horizon.",
            )
    return Remark(True, f"the drift is finite at {x[0].shape[0]} places over prior, box and limits.")


@programs.cached(maxsize=64)
def _places(system: BaseSystem) -> tuple[Any, Any, Any]:
    """Return states, designs and parameters: where random designs lead, and the same with states put to the limits."""
    seen = predictive.visited(system)
    keep = np.all([np.isfinite(value) for value in seen.x], axis=0)
    x, u = ([np.asarray(value)[keep] for value in part] for part in (seen.x, seen.u))
    count = len(x[0])
    draws = [np.resize(np.asarray(value), count) for value in system.parameters.draws]
    ends = [(name, end) for name in system.limits if name in system.state for end in limits.bounds(system, name)]
    places = [x]
    for name, end in ends:
        at = np.full(count, end)
        pairs = zip(system.state, x, strict=True)
        places += [[at if name == own else value for own, value in pairs]] if np.isfinite(end) else []
    return (
        tuple(np.concatenate([each[i] for each in places]) for i in range(len(x))),
        tuple(np.tile(value, len(places)) for value in u),
        tuple(np.tile(value, len(places)) for value in draws),
    )


def _rates(system: BaseSystem, x: Any, u: Any, theta: Any) -> Any:
    return jax.jit(lambda x, u, theta: system.rates(x, u, theta))(
        *(tuple(map(jnp.asarray, part)) for part in (x, u, theta))
    )


def _step(system: BaseSystem) -> Remark:
    """Say how a step is taken, and what a plain one would miss."""
    how, seen = integration.scheme(system), predictive.visited(system)
    missed = np.quantile(integration.missed(system, seen, seen.euler), 0.9, axis=1)
    worst = int(np.argmax(missed))
    parts = f" in {how.substeps} parts" if how.substeps > 1 else ""
    if how.integrator == "euler" and how.substeps == 1:
        if missed[worst] <= 1.0:
            return Remark(True, f"a step of {system.step:g} is short enough for one Euler step.")
        return Remark(
            False,
            f"one Euler step of {system.step:g} misses what a fine integration gives of {system.state[worst]} by "
            f"{missed[worst]:.2g} times what the noise or a tenth of the way hides; leave integrator open, or make the "
            "step shorter.",
        )
    return Remark(
        True, f"a step of {system.step:g} is too long for one Euler step, so it is taken by {how.integrator}{parts}."
    )


def _noise(system: BaseSystem) -> list[Remark]:
    """Compare what sensors show over the prior predictive with their noise; states without noise are told."""
    seen = predictive.visited(system)
    found = []
    if not system.hidden:
        variances = system.variance(seen.x, seen.u, seen.theta)
        still = [
            name
            for name, variance in zip(system.state, variances, strict=True)
            if float(np.median(variance)) <= system.noise_floor
        ]
        if still:
            found.append(
                Remark(
                    False,
                    f"{', '.join(still)} {'have' if len(still) > 1 else 'has'} no noise but the floor, a standard "
                    f"deviation of {system.noise_floor**0.5:.1g}, and every state is seen exactly: what can be learned "
                    "hangs on that floor; give a diffusion, or sensors with their noise.",
                )
            )
        return found
    values = sensors.seen(system, tuple(map(jnp.asarray, seen.x)), tuple(map(jnp.asarray, seen.theta)))
    scales = sensors.variances(system, seen.x, seen.u, seen.theta)
    for name, value, variance in zip(sensors.names(system), values, scales, strict=True):
        rows = np.asarray(value).reshape(predictive.STEPS, predictive.RIGS)
        spread = float(np.nanstd(rows[1:]))
        sd = float(np.sqrt(np.median(np.asarray(variance))))
        ratio = spread / sd if sd > 0.0 else np.inf
        words = f"{name} varies by {spread:.2g} over prior and random designs, {ratio:.2g} times its noise of {sd:.2g}"
        hint = "." if ratio > FAINT else "; check its unit, excite more strongly, or measure longer."
        found.append(Remark(ratio > FAINT, words + hint))
    return found


def _limits(system: BaseSystem) -> Remark:
    """Say how often random designs break limits."""
    seen = predictive.visited(system)
    for name in system.limits:
        low, high = limits.bounds(system, name)
        values = np.asarray(limits.value(system, name, seen.x, seen.u)).reshape(predictive.STEPS, predictive.RIGS)
        if ((values[0] < low) | (values[0] > high)).any():
            return Remark(False, f"the limit of {name} is broken at the start already; check start and limit.")
    broken = [
        ~((values >= low) & (values <= high))
        for name in system.limits
        for low, high in [limits.bounds(system, name)]
        for values in [np.asarray(limits.value(system, name, seen.x, seen.u))]
    ]
    share = np.any(broken, axis=0).reshape(predictive.STEPS, predictive.RIGS).any(axis=0).mean()
    words = f"random and constant designs break a limit in {100 * share:.0f} % of {predictive.RIGS} runs"
    return Remark(share == 0.0, f"{words}." if share == 0.0 else f"{words}: what is designed will have to hold back.")
