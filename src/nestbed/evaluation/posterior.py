"""The parameter posterior given records that were already made: the same belief updates, nothing simulated."""

import warnings
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nestbed import belief as beliefs
from nestbed import checks, noise
from nestbed.belief.base import Belief, Record
from nestbed.errors import NestbedError
from nestbed.smc import faults
from nestbed.smc.sweep import check_gain_form
from nestbed.system import BaseSystem


class Posterior(NamedTuple):
    """What records say about the parameters; a single record has no leading N."""

    mean: Float[Array, "*N dtheta"]
    covariance: Float[Array, "*N dtheta dtheta"]
    log_predictive: Float[Array, "*N T"]  # of each outcome, given those before it; their sum is the log-evidence
    gains: Float[Array, "*N T"]  # information gained by each experiment, in nats
    belief: Any  # the belief's final state


def posterior(
    key: jax.Array,
    system: BaseSystem,
    states: Float[Array, "*N T1 dx"],
    designs: Float[Array, "*N T du"],
    *,
    particles: int = 1024,
    moves: int = 3,
    belief: str | Belief = "ibis",
    gain: str = "general",
) -> Posterior:
    """Infer the parameters from one record (T+1, dx) and (T, du), or from N of them at once.

    A record is taken as it is: its designs may lie outside the box, which only binds policies.
    """
    checks.instance(system)
    states, designs = (
        jnp.asarray(checks.numbers(f"the record's {what}", values))
        for what, values in (("states", states), ("designs", designs))
    )
    _check(system, states, designs)
    single = states.ndim == 2
    record = Record(states[None], designs[None]) if single else Record(states, designs)
    made = beliefs.make(belief, system, particles, moves)
    check_gain_form(made, gain)
    result, fault = _compiled_infer(noise.as_key(key), made, record, gain)
    faults.check_states(system, record.states, record.designs)
    faults.check(system, fault)
    if not _warned_of_improbable(system, np.asarray(result.log_predictive)):
        _warn_of_collapse(result, made)
    return jax.tree.map(lambda leaf: leaf[0], result) if single else result


def infer(key: jax.Array, belief: Belief, record: Record, gain: str) -> tuple[Posterior, faults.Fault]:
    """Update the belief by every experiment of the records, in order."""
    count, horizon = record.designs.shape[:2]
    start_key, steps_key = jax.random.split(key)

    def experiment(carry: Any, inputs: tuple[Int[Array, ""], jax.Array]) -> Any:
        state, fault = carry
        t, step_key = inputs
        state, upkeep = belief.rejuvenate(step_key, state, record, t)
        fault = faults.in_upkeep(fault, upkeep, record, t)
        updated, evidence = belief.update(state, record.states[:, t], record.designs[:, t], record.states[:, t + 1])
        reward = evidence.gain(belief.system, gain)
        fault = faults.in_weights(fault, reward, evidence, belief, state, record, t)
        return (updated, fault), (evidence.log_predictive, reward)

    start = belief.init(start_key, count), faults.none(belief.system, horizon)
    inputs = jnp.arange(horizon, dtype=jnp.int32), jax.random.split(steps_key, horizon)
    (state, fault), (log_predictive, gains) = jax.lax.scan(experiment, start, inputs)
    return Posterior(*belief.moments(state), log_predictive.T, gains.T, state), fault


_compiled_infer = eqx.filter_jit(infer)


def _warn_of_collapse(result: Posterior, belief: Belief) -> None:
    """Warn where an experiment seems to gain all that M particles can show."""
    if not isinstance(belief, beliefs.IBIS):
        return
    limit = float(np.log(belief.particles))
    full = np.argwhere(np.asarray(result.gains) > 0.95 * limit)
    if len(full):
        warnings.warn(
            f"experiment {int(full[0, -1])} left one particle of {belief.particles} with nearly all the weight, so its "
            f"gain shows only the limit log M = {limit:.2f}: check that the record is in the model's units, or raise "
            "particles.",
            stacklevel=3,
        )


def _warned_of_improbable(system: BaseSystem, log_predictive: np.ndarray) -> bool:
    """Warn of outcomes that lie far from what every parameter in the belief predicts; noise must be constant."""
    if not system.constant_noise:
        return False
    deviance = -2.0 * log_predictive - system.log_volume  # at least that of the particle that explains it best
    far = np.argwhere(deviance > ODD * len(system.state_names))
    if len(far):
        warnings.warn(
            f"{len(far)} of {deviance.size} outcomes are improbable under every parameter in the belief (the first of "
            f"experiment {int(far[0, -1])}, about {float(deviance[tuple(far[0])]) ** 0.5:.0f} standard deviations "
            "off), so this posterior may say little: check the units and the order of the record's columns and "
            "designs, the noise of the model, or raise particles.",
            stacklevel=3,
        )
    return bool(len(far))


ODD = 60.0
"""Deviance of an outcome, per state, that is no chance: a state 7.7 standard deviations off has it."""


def _check(system: BaseSystem, states: jax.Array, designs: jax.Array) -> None:
    dx, du = len(system.state_names), len(system.design_names)
    fits = (
        states.ndim in (2, 3)
        and designs.ndim == states.ndim
        and (states.shape[-1], designs.shape[-1]) == (dx, du)
        and states.shape[:-2] == designs.shape[:-2]
        and states.shape[-2] == designs.shape[-2] + 1 > 1
    )
    if not fits:
        raise NestbedError(
            f"the record has states of shape {states.shape} and designs of shape {designs.shape}, but {system.name} "
            f"needs (T+1, {dx}) and (T, {du}), or the same with N in front: one more state than designs."
        )
    for name, values in (("states", states), ("designs", designs)):
        bad = np.argwhere(~np.isfinite(np.asarray(values)))
        if len(bad):
            where = ", ".join(str(int(i)) for i in bad[0])
            raise NestbedError(f"the record's {name} hold a value that is not finite at [{where}]; remove or mend it.")
