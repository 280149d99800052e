"""The first NaN or infinite weight of a sweep: recorded inside the compiled program, told in one sentence after it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nestbed.belief.base import Belief, Record, Upkeep
from nestbed.errors import NestbedError, NonFiniteError
from nestbed.system import BaseSystem


class Fault(NamedTuple):
    """The first trajectory that went wrong, after how many experiments, and the parameters to blame."""

    step: Int[Array, ""]  # −1: nothing went wrong
    states: Float[Array, "T1 dx"]
    designs: Float[Array, "T du"]
    theta: Float[Array, " dtheta"]


def none(system: BaseSystem, horizon: int) -> Fault:
    """Return a fault that has not happened."""
    return Fault(
        jnp.full((), -1, jnp.int32),
        jnp.zeros((horizon + 1, len(system.state_names))),
        jnp.zeros((horizon, len(system.design_names))),
        jnp.zeros(len(system.parameter_names)),
    )


def in_upkeep(fault: Fault, upkeep: Upkeep | None, record: Record, t: Int[Array, ""]) -> Fault:
    """Record a NaN met while particles were moved."""
    if upkeep is None:
        return fault

    def found() -> Fault:
        row = upkeep.fault_row
        return Fault(t - 1, record.states[row], record.designs[row], upkeep.fault_theta)

    return jax.lax.cond(upkeep.faulty & (fault.step < 0), found, lambda: fault)


def in_weights(
    fault: Fault, terms: Float[Array, " N"], belief: Belief, state: object, record: Record, t: Int[Array, ""]
) -> Fault:
    """Record a gain or a potential that is not finite; `terms` is their sum."""
    fine = jnp.isfinite(terms)

    def found() -> Fault:
        row = jnp.argmin(fine)
        x, following = record.states[:, t], record.states[:, t + 1]
        theta = belief.culprit(state, x, record.designs[:, t], following)[row]
        return Fault(t, record.states[row], record.designs[row], theta)

    return jax.lax.cond(~jnp.all(fine) & (fault.step < 0), found, lambda: fault)


def check(system: BaseSystem, fault: Fault) -> None:
    """Raise the fault, if there is one, as one sentence."""
    if int(fault.step) >= 0:
        raise NonFiniteError(_sentence(system, fault))


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
    last = int(fault.step)
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
    return (
        f"an outcome of {system.name} at step {last} has no finite density, with the parameters "
        f"{_named(system.parameter_names, theta)} and the state {_named(system.state_names, states[last])}; look for "
        "noise that vanishes, a state that explodes or a penalty that overflows."
    )


def _named(names: tuple[str, ...], values: np.ndarray) -> str:
    return ", ".join(f"{name} = {float(value):.6g}" for name, value in zip(names, values, strict=True))
