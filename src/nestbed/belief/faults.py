"""The first NaN or infinite weight of a sweep: recorded inside the compiled program, told in one sentence after it."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nestbed import likelihood as likelihoods
from nestbed.belief.base import Belief, Evidence, RejuvenationInfo
from nestbed.likelihood.base import Likelihood, Record, named
from nestbed.model.system import BaseSystem
from nestbed.numerics.errors import NestbedError, NonFiniteError


class Fault(NamedTuple):
    """The first record that went wrong, after how many experiments, and the parameters to blame."""

    step: Int[Array, ""]  # −1: nothing went wrong
    observations: Float[Array, "T1 dy"]
    designs: Float[Array, "T du"]
    theta: Float[Array, " dtheta"]
    gain: Any = math.nan  # of an experiment whose gain cannot be
    log_predictive: Any = math.nan  # of its outcome


def none(system: BaseSystem, horizon: int, inputs: int | None = None) -> Fault:
    """Return a fault that has not happened; designs have as many columns as a likelihood takes, if more."""
    return Fault(
        jnp.full((), -1, jnp.int32),
        jnp.zeros((horizon + 1, len(system.observation_names))),
        jnp.zeros((horizon, inputs or len(system.design_names))),
        jnp.zeros(len(system.parameter_names)),
        jnp.full((), jnp.nan),
        jnp.full((), jnp.nan),
    )


def in_rejuvenation(fault: Fault, info: RejuvenationInfo | None, record: Record, t: Int[Array, ""]) -> Fault:
    """Record a NaN met while particles were moved."""
    if info is None:
        return fault

    def found() -> Fault:
        row = info.fault_row
        return fault._replace(
            step=t - 1, observations=record.observations[row], designs=record.designs[row], theta=info.fault_theta
        )

    return jax.lax.cond(info.faulty & (fault.step < 0), found, lambda: fault)


def in_weights(
    fault: Fault,
    terms: Float[Array, " N"],
    evidence: Evidence,
    belief: Belief,
    before: object,
    record: Record,
    t: Int[Array, ""],
) -> Fault:
    """Record a gain or a potential that is not finite (`terms` is their sum), or a gain that cannot be."""
    fine = jnp.isfinite(terms) & evidence.possible

    def found() -> Fault:
        row = jnp.argmin(fine)
        theta = belief.culprit(before, record.designs[:, t])[row]
        impossible = jnp.stack([evidence.divergence[row], evidence.log_predictive[row]])
        gain, log_predictive = jnp.where(evidence.possible[row], jnp.nan, impossible)
        return Fault(t, record.observations[row], record.designs[row], theta, gain, log_predictive)

    return jax.lax.cond(~jnp.all(fine) & (fault.step < 0), found, lambda: fault)


def check(system: BaseSystem, fault: Fault, likelihood: Likelihood | None = None) -> None:
    """Raise the fault, if there is one, as one sentence."""
    if int(fault.step) >= 0:
        raise NonFiniteError(_sentence(system, fault, likelihood or likelihoods.of(system)))


def check_all(system: BaseSystem, fault: Fault, record: Record) -> None:
    """Raise for what went wrong first: observations that exploded, a fault, or designs outside the box."""
    last = int(fault.step)
    observations = record.observations if last < 0 else record.observations[:, : last + 2]
    likelihoods.of(system).check_record(Record(observations, record.designs))
    check(system, fault)
    check_box(system, record.designs)


def check_box(system: BaseSystem, designs: Float[Array, "N T du"]) -> None:
    """Refuse designs that left the box by more than rounding."""
    outside = ~system.designs.contains(np.asarray(designs))
    if outside.any():
        row, t, channel = np.argwhere(outside)[0]
        box, name = system.designs, system.design_names[channel]
        raise NestbedError(
            f"the policy gave {name} = {float(designs[row, t, channel]):.6g} at step {t}, outside the limits "
            f"({box.low[channel]}, {box.high[channel]}) of {system.name}; keep its designs inside the box."
        )


def _sentence(system: BaseSystem, fault: Fault, likelihood: Likelihood) -> str:
    last, gain, log_predictive = int(fault.step), float(fault.gain), float(fault.log_predictive)
    observations, designs, theta = (np.asarray(a) for a in (fault.observations, fault.designs, fault.theta))
    bad = np.flatnonzero(~np.isfinite(designs[: last + 1]).all(axis=-1))
    first = int(bad[0]) if len(bad) else last + 1
    record = Record(fault.observations[None], fault.designs[None])
    cause = likelihood.cause(record, fault.theta, first)
    if cause is not None:
        return cause
    seen = [named(system.observation_names, values) for values in observations]
    if len(bad):
        given = named(system.design_names, designs[first, : len(system.design_names)])
        return (
            f"the policy gave the design {given} at step {first} of {system.name}, after {seen[first]}; it must be "
            "finite."
        )
    if np.isfinite(gain) and np.isfinite(log_predictive):
        return (
            f"the outcome {seen[last + 1]} of step {last} is not one of {system.name}: its log-density is "
            f"{log_predictive:.3g} and its gain {gain:.3g} nats, which no outcome of the model has; check the units "
            "and the order of the record's columns, the step and the noise of the model."
        )
    return (
        f"an outcome of {system.name} at step {last} has no finite density, with the parameters "
        f"{named(system.parameter_names, theta)}, after {seen[last]}; look for noise that vanishes, a state that "
        "explodes or a penalty that overflows."
    )
