"""The prior predictive of a system: where random designs lead, and what can be told from it before any experiment."""

import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nestbed.numerics import programs
from nestbed.numerics.errors import NestbedError, outside

if TYPE_CHECKING:
    from nestbed.model.system import BaseSystem


class Visited(NamedTuple):
    """Steps of rigs drawn from the prior under random and constant designs; arrays of (rigs · steps,) by component."""

    x: tuple[Any, ...]
    u: tuple[Any, ...]
    theta: tuple[Any, ...]
    euler: tuple[Any, ...]  # means of the next state, by one Euler step
    fine: tuple[Any, ...]  # the same, by many small steps


RIGS, STEPS, PARTS = 32, 48, 1024
"""Rigs, of which half get new designs at every step and half keep a corner of the box; steps; parts of a fine step."""


@programs.cached(maxsize=64)
def visited(system: "BaseSystem") -> Visited:
    """Return where the prior predictive leads; small steps, so that a step that is too long shows."""
    random = np.random.default_rng(0)
    unit = 2.0 * random.random((STEPS, len(system.designs.names), RIGS)) - 1.0
    unit[:, :, RIGS // 2 :] = np.sign(unit[0, :, RIGS // 2 :])
    inputs = np.moveaxis(system.designs.scale(np.moveaxis(unit, 1, -1)), -1, 1)
    normals = random.standard_normal((STEPS, len(system.state), RIGS))
    with jax.ensure_compile_time_eval():  # whoever asks may be within a trace, and what was remembered dropped
        theta = tuple(np.asarray(value[:RIGS]) for value in system.parameters.draws)
        start = np.asarray(system.sample_start(jax.random.key(0), RIGS)).T
        return jax.tree.map(np.asarray, _visited(system, start, inputs, normals, theta))


@partial(jax.jit, static_argnums=0)
def _visited(system: "BaseSystem", start: Any, inputs: Any, normals: Any, theta: tuple[Any, ...]) -> Visited:
    def drift(x: Any, u: Any) -> Any:
        return system.step * jnp.stack([jnp.broadcast_to(rate, (RIGS,)) for rate in system.rates(tuple(x), u, theta)])

    def small(x: Any, u: Any) -> Any:
        return x + drift(x, u) / PARTS

    def experiment(x: Any, now: Any) -> Any:
        u = tuple(now[0])
        fine = jax.lax.fori_loop(0, PARTS, lambda _, part: small(part, u), x)
        euler = x + drift(x, u)
        sd = jnp.stack([jnp.broadcast_to(jnp.sqrt(v), (RIGS,)) for v in system.variance(tuple(x), u, theta)])
        return fine + sd * now[1], (x, now[0], euler, fine)

    _, rows = jax.lax.scan(experiment, start, (inputs, normals))
    x, u, euler, fine = (tuple(jnp.moveaxis(part, 1, 0).reshape(part.shape[1], -1)) for part in rows)
    return Visited(x, u, tuple(jnp.tile(value, STEPS) for value in theta), euler, fine)


RUNAWAY = 1e30
"""How far many small steps may go from the start, in its units, before even they are too long."""
LONG_STEP = 3.0
"""Spreads of the prior predictive by which one step may miss what many small ones give."""


@programs.cached(maxsize=64)
def check_plausible(system: "BaseSystem") -> None:
    """Warn, once for a system, of a step that is far too long for its drift and of a floor above its noise."""
    seen = visited(system)
    steps = zip(system.state, seen.x, seen.euler, seen.fine, strict=True)
    found = [sentence for name, *values in steps if (sentence := _long_step(name, *values))]
    if found and system.one_euler_step:
        warnings.warn(
            f"one step of {system.name} {found[0]}: step = {system.step:g} is too long for its drift; give it in the "
            "time unit of the drift (seconds, where rates are per second), make it shorter, or give the system "
            "integrator = 'exponential'.",
            stacklevel=outside(),
        )
    if callable(system.diffusion):
        with np.errstate(all="ignore"):  # a drift that explodes is told elsewhere
            variances = system.variance(seen.x, seen.u, seen.theta)
        for name, variance in zip(system.state, variances, strict=True):
            warn_of_floor(system, name, float(np.median(variance)) - system.noise_floor)


def _long_step(name: str, x: Any, euler: Any, fine: Any) -> str | None:
    """Return what one step does where many small ones over the same time do something else altogether."""
    with np.errstate(all="ignore"):
        moved, small = (np.nan_to_num(np.abs(y - x), nan=np.inf) for y in (euler, fine))
        missed = np.median(np.nan_to_num(np.abs(euler - fine), nan=np.inf))
        far, near = np.median(small[:RIGS]), np.median(moved[:RIGS])
        if np.isfinite(near) and not far <= RUNAWAY * (1.0 + np.median(np.abs(x[:RIGS]))):
            return f"moves {name!r} by {near:.3g}, and in {PARTS} small ones it explodes"
        low, high = np.nanquantile(fine, (0.16, 0.84)) if np.isfinite(missed) else (0.0, 0.0)
        if missed > LONG_STEP * 0.5 * (high - low) > 0.0:
            return (
                f"moves {name!r} by {np.median(moved):.3g}, where {PARTS} small ones move it by {np.median(small):.3g}"
            )
    return None


@programs.cached(maxsize=64)
def check_linearity(system: "BaseSystem") -> None:
    """Check on prior draws that `features` reproduces the drift and that the noise knows no parameter."""

    def features(x: Any, u: Any) -> Any:
        return system.features(system.State(*x), system.Design(*u))  # type: ignore[attr-defined]

    seen = visited(system)
    sane = np.all([np.abs(value) < 1e30 for value in seen.x], axis=0)  # a vague prior leads anywhere
    x, u = (tuple(value[sane] for value in values) for values in (seen.x, seen.u))
    rows = features(x, u)
    for name, row in zip(system.state, rows, strict=True):
        if len(row) != len(system.parameter_names):
            raise NestbedError(
                f"{system.name}.features gives {len(row)} coefficients for the state {name!r}, but there are "
                f"{len(system.parameter_names)} parameters: {system.parameter_names}."
            )
    for name, full, rebuilt in zip(system.state, *_linear(system, features, x, u), strict=True):
        size = np.max(np.abs(full), initial=0.0, where=np.isfinite(full))
        if not np.allclose(rebuilt, full, rtol=1e-9, atol=1e-9 * size, equal_nan=True):
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
        theta = system.parameters.draw(jax.random.key(1), x[0].shape)
        zero = tuple(jnp.zeros_like(value) for value in theta)
        rebuilt = tuple(
            offset + sum(h * value for h, value in zip(row, theta, strict=True))
            for offset, row in zip(system.rates(x, u, zero), features(x, u), strict=True)
        )
        return system.rates(x, u, theta), rebuilt

    return both(x, u)


def _noise_knows_no_parameter(system: "BaseSystem", x: Any, u: Any) -> bool:
    if system.constant_noise:
        return True
    theta = system.parameters.draw(jax.random.key(1), x[0].shape)
    others = tuple(jnp.roll(value, 1) for value in theta)
    both = [(system.variance(x, u, at), system.shared_variance(x, u, at)) for at in (theta, others)]
    pairs = zip(*(jax.tree.leaves(found) for found in both), strict=True)
    return not any(bool(jnp.any(jnp.asarray(a) != jnp.asarray(b))) for a, b in pairs)


FLOOR = 1e-8
"""The noise floor that a system has unless it says otherwise."""


def warn_of_floor(system: "BaseSystem", name: str, variance: float) -> None:
    """Warn where the noise floor is more than the noise it is added to; a state without noise lives by it."""
    if 0.0 < variance < system.noise_floor:
        warnings.warn(
            f"the noise floor of {type(system).__name__}, a variance of {system.noise_floor:g}, is more than the noise "
            f"of {name!r} itself, step · diffusion² = {variance:.3g}, and so decides what can be learned; set "
            f"noise_floor to {variance / 100:.1g} or less, or to 0 if every state has noise.",
            stacklevel=outside(),
        )
