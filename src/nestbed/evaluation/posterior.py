"""The parameter posterior given records that were already made: the same belief updates, nothing simulated."""

import warnings
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nestbed import belief as beliefs
from nestbed.belief import faults, learning
from nestbed.belief.base import Belief
from nestbed.likelihood.base import Likelihood, Record
from nestbed.model import checks
from nestbed.model.system import BaseSystem
from nestbed.numerics import noise
from nestbed.numerics.errors import NestbedError

MANY = 512
"""Guided particles by which a record is judged: more than where records are simulated and errors average out."""
SHORTEST = 16
"""Experiments that a record's buffers hold at least; longer ones hold a power of two, so that few programs do."""


class Posterior(NamedTuple):
    """What records say about the parameters; a single record has no leading N."""

    mean: Float[Array, "*N dtheta"]
    covariance: Float[Array, "*N dtheta dtheta"]
    log_predictive: Float[Array, "*N T"]  # of each outcome, given those before it; their sum is the log-evidence
    gains: Float[Array, "*N T"]  # of each experiment, in nats; in expectation they sum to the divergence
    divergence: Float[Array, "*N"]  # of the posterior from the prior, in nats: what the record has told in all
    belief: Any  # the belief's final state


def posterior(
    key: jax.Array,
    system: BaseSystem,
    observations: Float[Array, "*N T1 dy"],
    designs: Float[Array, "*N T du"],
    *,
    particles: int | None = None,
    moves: int = 3,
    belief: str | Belief = "guided",
    gain: str = "general",
) -> Posterior:
    """Infer the parameters from one record, or from N of them at once.

    Records of up to 16 experiments share a compiled program, then those of up to 32, 64 and so on.

    Args:
        key: a jax key; the same key gives the same numbers.
        system: the model.
        observations: (T+1, number of observations), or with N in front, in the units of the model: the first was seen
            before any design.
        designs: (T, number of designs), or with N in front. They may lie outside the box, which only binds policies.
        particles: M, parameter particles per record: by default 512 for guided beliefs and 1024 for IBIS.
        moves: Metropolis steps whenever a record's particles are rejuvenated, for IBIS.
        belief: the name of a belief, "guided", "ibis" or "exact", or a belief object.
        gain: the form of the gain: "general", "constant_noise", or "closed_form" for exact beliefs.

    Returns:
        Mean and covariance of the parameters in the order of `system.parameter_names`, the log predictive density of
        each outcome, and the belief's final state; in nats, what the record tells in all (`divergence`, of the
        posterior from the prior) and what each experiment gained on the way (`gains`: over many records of the model
        they sum to the divergence, of one record they need not).
    """
    checks.instance(system)
    observations, designs = (
        jnp.asarray(checks.numbers(f"the record's {what}", values))
        for what, values in (("observations", observations), ("designs", designs))
    )
    _check(system, observations, designs)
    single = observations.ndim == 2
    record = Record(observations[None], designs[None]) if single else Record(observations, designs)
    made = beliefs.make(belief, system, MANY if belief == "guided" and particles is None else particles, moves)
    made = made.of_given_records()
    learning.check_gain(made, gain)
    count = record.designs.shape[1]
    capacity = max(SHORTEST, 1 << (count - 1).bit_length())
    key, padded = noise.as_key(key), record.padded(capacity)
    result, fault = _compiled_infer(key, made, padded, jnp.asarray(count), gain)
    if (firmer := made.firmer(result.belief)) is not None:
        result, fault = _compiled_infer(key, firmer, padded, jnp.asarray(count), gain)
    result = _looked_over(key, made, padded, jnp.asarray(count), result)
    result = result._replace(log_predictive=result.log_predictive[:, :count], gains=result.gains[:, :count])
    made.likelihood.check_record(record)
    faults.check(system, fault)
    learning.warn_of_doubts(made, result.belief)
    if not _warned_of_improbable(made.likelihood, np.asarray(result.log_predictive)):
        _warn_of_collapse(result, made)
    _warn_of_far(system, np.asarray(result.mean))
    return jax.tree.map(lambda leaf: leaf[0], result) if single else result


def infer(
    key: jax.Array, belief: Belief, record: Record, count: Int[Array, ""], gain: str
) -> tuple[Posterior, faults.Fault]:
    """Do the learning step for each of the first `count` experiments of the records."""
    records, capacity = record.designs.shape[:2]
    start_key, steps_key = jax.random.split(key)
    keys = jax.random.split(steps_key, capacity)

    def experiment(t: Int[Array, ""], so_far: Any) -> Any:
        learner, fault, log_predictive, gains = so_far
        learner, info, fault = learning.step(
            keys[t],
            belief,
            learner,
            t,
            fault,
            design=lambda y, u_previous: (None, record.designs[:, t]),
            outcome=lambda state, u: record.observations[:, t + 1],
            gain=gain,
        )
        fault = faults.in_weights(fault, info.gain, info.evidence, belief, info.before, learner.record, t)
        log_predictive = log_predictive.at[:, t].set(info.evidence.log_predictive)
        return learner, fault, log_predictive, gains.at[:, t].set(info.gain)

    learner = learning.start(start_key, belief, record.observations[:, 0], capacity)
    nothing = jnp.zeros((records, capacity))
    start = learner, faults.none(belief.system, capacity), nothing, nothing
    learner, fault, log_predictive, gains = jax.lax.fori_loop(0, count.astype(jnp.int32), experiment, start)
    divergence = belief.divergence(learner.belief, jnp.sum(log_predictive, axis=1))
    return Posterior(*belief.moments(learner.belief), log_predictive, gains, divergence, learner.belief), fault


_compiled_infer = eqx.filter_jit(infer)


def _looked_over(key: jax.Array, belief: Belief, record: Record, count: Int[Array, ""], result: Posterior) -> Posterior:
    """Return the result with no part of a posterior overlooked; what is found counts as the last outcome's evidence."""
    look_key, mend_key = jax.random.split(jax.random.fold_in(key, 1))
    if not belief.looks(result.belief):
        return result
    overlooked = _overlooked(look_key, belief, result.belief, record, count)
    if not bool(overlooked.any()):
        return result
    state, rise = _mended(mend_key, belief, result.belief, record, count, overlooked)
    log_predictive = result.log_predictive.at[:, count - 1].add(rise)
    divergence = belief.divergence(state, jnp.sum(log_predictive, axis=1))
    return Posterior(*belief.moments(state), log_predictive, result.gains, divergence, state)


@eqx.filter_jit
def _overlooked(key: jax.Array, belief: Belief, state: Any, record: Record, count: Int[Array, ""]) -> Any:
    return belief.overlooked(key, state, record, count)


@eqx.filter_jit
def _mended(key: jax.Array, belief: Belief, state: Any, record: Record, count: Int[Array, ""], chosen: Any) -> Any:
    return belief.mended(key, state, record, count, chosen)


def _warn_of_collapse(result: Posterior, belief: Belief) -> None:
    """Warn where an experiment seems to gain all that M particles can show."""
    full = np.argwhere(np.asarray(result.gains) > 0.95 * belief.most)
    if len(full):
        warnings.warn(
            f"experiment {int(full[0, -1])} left one particle with nearly all the weight, so its gain shows "
            f"only the limit log M = {belief.most:.2f}: check that the record is in the model's units, or raise "
            "particles.",
            stacklevel=3,
        )


def _warn_of_far(system: BaseSystem, means: np.ndarray) -> None:
    """Warn of a posterior that lies where the prior has nothing."""
    prior = system.parameters
    for i, name in enumerate(system.parameter_names):
        draws = np.asarray(prior.draws[i])
        low, high = draws.min(), draws.max()
        reach = 0.5 * (high - low)
        far = np.flatnonzero((means[:, i] < low - reach) | (means[:, i] > high + reach))
        if len(far):
            warnings.warn(
                f"the record puts {name} at {means[far[0], i]:.4g}, far from all that its prior expects ({low:.4g} to "
                f"{high:.4g} in {len(draws)} draws): check the units of observations and designs, or widen the prior.",
                stacklevel=3,
            )


def _warned_of_improbable(likelihood: Likelihood, log_predictive: np.ndarray) -> bool:
    """Warn of outcomes that lie far from what every parameter in the belief predicts; noise must be constant."""
    if not likelihood.constant_noise:
        return False
    deviance = -2.0 * log_predictive - likelihood.log_normaliser  # at least that of the particle that explains it best
    far = np.argwhere(deviance > ODD * len(likelihood.system.observation_names))
    if len(far):
        warnings.warn(
            f"{len(far)} of {deviance.size} outcomes are improbable under all that was believed before (the first of "
            f"experiment {int(far[0, -1])}, about {float(deviance[tuple(far[0])]) ** 0.5:.0f} standard deviations "
            "off), so this posterior may say little: check the units and the order of the record's columns and "
            "designs, the noise of the model, or raise particles.",
            stacklevel=3,
        )
    return bool(len(far))


ODD = 60.0
"""Deviance of an outcome, per component, that is no chance: one 7.7 standard deviations off has it."""


def _check(system: BaseSystem, observations: jax.Array, designs: jax.Array) -> None:
    dy, du = len(system.observation_names), len(system.design_names)
    fits = (
        observations.ndim in (2, 3)
        and designs.ndim == observations.ndim
        and (observations.shape[-1], designs.shape[-1]) == (dy, du)
        and observations.shape[:-2] == designs.shape[:-2]
        and observations.shape[-2] == designs.shape[-2] + 1 > 1
    )
    if not fits:
        raise NestbedError(
            f"the record has observations of shape {observations.shape} and designs of shape {designs.shape}, but "
            f"{system.name} needs (T+1, {dy}) and (T, {du}), or the same with N in front: one more observation than "
            "designs."
        )
    for name, values in (("observations", observations), ("designs", designs)):
        bad = np.argwhere(~np.isfinite(np.asarray(values)))
        if len(bad):
            where = ", ".join(str(int(i)) for i in bad[0])
            raise NestbedError(f"the record's {name} hold a value that is not finite at [{where}]; remove or mend it.")
