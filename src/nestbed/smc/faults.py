"""The first NaN or infinite weight of a sweep: recorded inside the compiled program, told in one sentence after it."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nestbed.belief.base import Belief, Evidence, Record, Upkeep
from nestbed.errors import NestbedError, NonFiniteError
from nestbed.system import BaseSystem


class Fault(NamedTuple):
    """The first trajectory that went wrong, after how many experiments, and the parameters to blame."""

    step: Int[Array, ""]  # −1: nothing went wrong
    states: Float[Array, "T1 dx"]
    designs: Float[Array, "T du"]
    theta: Float[Array, " dtheta"]
    gain: Any = math.nan  # of an experiment whose gain cannot be
    log_predictive: Any = math.nan  # of its outcome


def none(system: BaseSystem, horizon: int) -> Fault:
    """Return a fault that has not happened."""
    return Fault(
        jnp.full((), -1, jnp.int32),
        jnp.zeros((horizon + 1, len(system.state_names))),
        jnp.zeros((horizon, len(system.design_names))),
        jnp.zeros(len(system.parameter_names)),
        jnp.full((), jnp.nan),
        jnp.full((), jnp.nan),
    )


def in_upkeep(fault: Fault, upkeep: Upkeep | None, record: Record, t: Int[Array, ""]) -> Fault:
    """Record a NaN met while particles were moved."""
    if upkeep is None:
        return fault

    def found() -> Fault:
        row = upkeep.fault_row
        return fault._replace(
            step=t - 1, states=record.states[row], designs=record.designs[row], theta=upkeep.fault_theta
        )

    return jax.lax.cond(upkeep.faulty & (fault.step < 0), found, lambda: fault)


def in_weights(
    fault: Fault,
    terms: Float[Array, " N"],
    evidence: Evidence,
    belief: Belief,
    state: object,
    record: Record,
    t: Int[Array, ""],
) -> Fault:
    """Record a gain or a potential that is not finite (`terms` is their sum), or a gain that cannot be."""
    fine = jnp.isfinite(terms) & evidence.possible

    def found() -> Fault:
        row = jnp.argmin(fine)
        x, following = record.states[:, t], record.states[:, t + 1]
        theta = belief.culprit(state, x, record.designs[:, t], following)[row]
        told = jnp.where(
            evidence.possible[row], jnp.nan, jnp.stack([evidence.divergence[row], evidence.log_predictive[row]])
        )
        return Fault(t, record.states[row], record.designs[row], theta, *told)

    return jax.lax.cond(~jnp.all(fine) & (fault.step < 0), found, lambda: fault)


def check(system: BaseSystem, fault: Fault) -> None:
    """Raise the fault, if there is one, as one sentence."""
    if int(fault.step) >= 0:
        raise NonFiniteError(_sentence(system, fault))


def check_all(
    system: BaseSystem, fault: Fault, states: Float[Array, "N T1 dx"], designs: Float[Array, "N T du"]
) -> None:
    """Raise for what went wrong first: states that exploded, a fault, or designs outside the box."""
    last = int(fault.step)
    check_states(system, states if last < 0 else states[:, : last + 2], designs)
    check(system, fault)
    check_box(system, designs)


def check_states(system: BaseSystem, states: Float[Array, "N T1 dx"], designs: Float[Array, "N T du"]) -> None:
    """Refuse states so large that doubles no longer hold the noise that information comes from."""
    values = np.asarray(states)
    noise = np.asarray(_noise(system, values[:, :-1], np.asarray(designs)[:, : values.shape[1] - 1]))
    with np.errstate(all="ignore"):
        rounding = np.spacing(np.abs(values[:, 1:]))
        lost = np.isfinite(values[:, 1:]) & (rounding > TOO_ROUGH * noise)
    if lost.any():
        row, t, i = min(np.argwhere(lost), key=lambda place: int(place[1]))
        large, sd = values[row, t + 1, i], float(np.broadcast_to(noise, lost.shape)[row, t, i])
        raise NonFiniteError(
            f"{system.state_names[i]} = {large:.3g} after step {t} of {system.name} is rounded by "
            f"{rounding[row, t, i]:.2g}, too much for its noise (sd {sd:.2g}), so nothing can be learned from it: "
            f"{_why_large(system, values[row, : t + 1], np.asarray(designs)[row, : t + 1])}."
        )


TOO_ROUGH = 0.1
"""Rounding of a state, in units of its noise, that makes information up."""


def _noise(system: BaseSystem, x: np.ndarray, u: np.ndarray) -> Any:
    """Return the sd of the noise of each state, at the prior's middle where it depends on the parameters."""
    if system.constant_noise:
        return np.sqrt(system.variance((), (), ()))
    return np.sqrt(np.asarray(_variances(system, jnp.asarray(x), jnp.asarray(u))))


@eqx.filter_jit
def _variances(system: BaseSystem, x: Float[Array, "N T dx"], u: Float[Array, "N T du"]) -> Float[Array, "N T dx"]:
    state, design = (tuple(jnp.moveaxis(part, -1, 0)) for part in (x, u))
    variances = system.variance(state, design, system.parameters.middle)
    return jnp.stack([jnp.broadcast_to(value, x.shape[:-1]) for value in variances], axis=-1)


def _why_large(system: BaseSystem, states: np.ndarray, designs: np.ndarray) -> str:
    """Say whether the step is too long for the drift or the drift grows by itself, from its linear part on the way."""
    theta = system.parameters.middle

    def rates(x: Any, u: Any) -> Any:
        return jnp.stack([jnp.asarray(rate, float) for rate in system.rates(tuple(x), tuple(u), theta)])

    for x, u in zip(states, designs, strict=True):
        slopes = np.asarray(jax.jacfwd(rates)(jnp.asarray(x), jnp.asarray(u)))
        if not np.isfinite(slopes).all():
            continue
        modes = np.linalg.eigvals(slopes)
        fast = modes[(modes.real < 0) & (np.abs(1.0 + system.step * modes) > 1.0)]
        if len(fast):
            limit = np.min(-2.0 * fast.real / np.abs(fast) ** 2)
            return (
                f"step = {system.step:g} is too long for its drift, which the explicit Euler step only follows below "
                f"{limit:.2g}; make the step shorter (with a longer horizon), or the fast part of the drift algebraic"
            )
        if np.any(modes.real > 0):
            return (
                f"its drift grows by itself, by exp({np.max(modes.real):.3g} t), so shorten the horizon, narrow the "
                "prior or stabilise the system"
            )
    return "check its units, its start and its step, or shorten the horizon"


def check_box(system: BaseSystem, designs: Float[Array, "N T du"]) -> None:
    """Refuse designs that left the box by more than rounding."""
    values = np.asarray(designs)
    low, high = np.array(system.designs.low), np.array(system.designs.high)
    slack = 1e-6 * (high - low)
    outside = ~((values >= low - slack) & (values <= high + slack))  # NaN is outside too
    if outside.any():
        row, t, channel = np.argwhere(outside)[0]
        raise NestbedError(
            f"the policy gave {system.design_names[channel]} = {values[row, t, channel]:.6g} at step {t}, outside the "
            f"limits ({low[channel]}, {high[channel]}) of {system.name}; keep its designs inside the box."
        )


def _sentence(system: BaseSystem, fault: Fault) -> str:
    last, gain, log_predictive = int(fault.step), float(fault.gain), float(fault.log_predictive)
    states, designs, theta = (np.asarray(a) for a in (fault.states, fault.designs, fault.theta))
    for t in range(last + 1):
        x, u = _named(system.state_names, states[t]), _named(system.design_names, designs[t])
        if not np.isfinite(designs[t]).all():
            return f"the policy gave the design {u} at step {t} of {system.name}, in the state {x}; it must be finite."
        rates = system.rates(tuple(states[t]), tuple(designs[t]), tuple(theta))
        for name, rate in zip(system.state_names, rates, strict=True):
            if not np.isfinite(rate):
                return (
                    f"the drift of {name!r} in {system.name} is {float(rate)} at step {t}, with the parameters "
                    f"{_named(system.parameter_names, theta)}, the state {x} and the design {u}; make the drift finite "
                    "wherever the prior and the designs can lead, or narrow the prior."
                )
    if np.isfinite(gain) and np.isfinite(log_predictive):
        return (
            f"the outcome {_named(system.state_names, states[last + 1])} of step {last} is not one of {system.name}: "
            f"its log-density is {log_predictive:.3g} and its gain {gain:.3g} nats, which no outcome of the model has; "
            "check the units and the order of the record's columns, the step and the noise of the model."
        )
    return (
        f"an outcome of {system.name} at step {last} has no finite density, with the parameters "
        f"{_named(system.parameter_names, theta)} and the state {_named(system.state_names, states[last])}; look for "
        "noise that vanishes, a state that explodes or a penalty that overflows."
    )


def _named(names: tuple[str, ...], values: np.ndarray) -> str:
    return ", ".join(f"{name} = {float(value):.6g}" for name, value in zip(names, values, strict=True))
