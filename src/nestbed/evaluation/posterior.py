"""The parameter posterior given records that were already made: the same belief updates, nothing simulated."""

import warnings
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestbed import belief as beliefs
from nestbed.belief import faults, learning
from nestbed.belief.base import Belief
from nestbed.evaluation import explaining, inferring, records, rounding
from nestbed.evaluation.rounding import Replicates
from nestbed.likelihood import adequacy
from nestbed.likelihood.base import Likelihood, Record, components
from nestbed.model import checks
from nestbed.model.prior import Components
from nestbed.model.system import BaseSystem
from nestbed.numerics import noise
from nestbed.numerics.errors import NestbedError

MANY = 512
"""Guided particles by which a record is judged: more than where records are simulated and errors average out."""


class Course(NamedTuple):
    """What a record says of hidden states and expects of sensors on its way, over the posterior of the parameters.

    Each row is at the time of an observation; what is filtered knows the record up to it, what is expected up to the
    one before, the parameters the whole record. Several records stand one after the other.
    """

    states: Float[np.ndarray, "T1 dx"]  # mean of each state, filtered
    states_sd: Float[np.ndarray, "T1 dx"]
    expected: Float[np.ndarray, "T1 dy"]  # mean of what each sensor shows, before it was read
    expected_sd: Float[np.ndarray, "T1 dy"]


class Posterior(NamedTuple):
    """What records say about the parameters; a single record, or several taken together, has no leading N."""

    mean: Float[Array, "*N dtheta"]
    covariance: Float[Array, "*N dtheta dtheta"]
    log_predictive: Float[Array, "*N T"]  # of each outcome, given those before it; their sum is the log-evidence
    gains: Float[Array, "*N T"]  # of each experiment, in nats; in expectation they sum to the divergence
    divergence: Float[Array, "*N"]  # of the posterior from the prior, in nats: what the record has told in all
    belief: Any  # the belief's final state
    residuals: Float[Array, "*N T dy"]  # where outcomes lie in what was predicted, in standard normal numbers
    course: Course | None = None  # of hidden states, where there are any


def posterior(
    key: jax.Array,
    system: BaseSystem,
    observations: Any,
    designs: Any,
    *,
    times: Any = None,
    particles: int | None = None,
    moves: int = 3,
    belief: str | Belief = "guided",
    gain: str = "general",
) -> Posterior:
    """Infer the parameters from one record, from several together, or from N of them apart.

    Records of up to 16 experiments share a compiled program, then those of up to 32, 64 and so on.

    Args:
        key: a jax key; the same key gives the same numbers.
        system: the model.
        observations: (T+1, number of observations) in the units of the model: the first was seen before any design,
            NaN is not measured. A list of such tables, of any lengths, are records of one rig, for one posterior; an
            array with N in front holds records of N rigs, for a posterior each.
        designs: (T, number of designs), or as many of them, as they were really applied. They may lie outside the box,
            which only binds policies.
        times: when the observations were made, (T+1) in the model's unit of time, or a list of such; by default a step
            apart.
        particles: M, parameter particles per record: by default 512 for guided beliefs and 1024 for IBIS.
        moves: Metropolis steps whenever a record's particles are rejuvenated, for IBIS.
        belief: the name of a belief, "guided", "ibis" or "exact", or a belief object.
        gain: the form of the gain: "general", "constant_noise", or "closed_form" for exact beliefs.

    Returns:
        Mean and covariance of the parameters in the order of `system.parameter_names`, the log predictive density of
        each outcome, where it lies in what was predicted, what is known of hidden states, and the belief's final state;
        in nats, what the record tells in all (`divergence`, of the
        posterior from the prior) and what each experiment gained on the way (`gains`: over many records of the model
        they sum to the divergence, of one record they need not). Where the model clearly does not explain what was
        seen, a warning says so (see `explaining.py`).
    """
    checks.instance(system)
    adequacy.check(system)
    made = beliefs.make(belief, system, MANY if belief == "guided" and particles is None else particles, moves)
    learning.check_gain(made, gain)
    if not records.several(observations) and np.ndim(observations) == 3:
        if times is not None:
            raise NestbedError("times are of one record or of a list of them, not of an array with N in front.")
        record, made = _of_many_rigs(system, observations, designs), made.of_given_records()
        result = _inferred(noise.as_key(key), made, record, gain)
        _warn(made, result)
        return result
    measured = records.read(system, observations, designs, times)
    table = None if records.regular(measured) else records.tabulated(system, measured)
    if table is None:
        made = made.of_given_records()
        record = Record(*(jnp.asarray(part)[None] for part in measured[0][:2]))
    else:
        made, record = made.of_given_records(table.memory), table.record
    result = jax.tree.map(lambda leaf: leaf[0], _inferred(noise.as_key(key), made, record, gain))
    if not made.likelihood.markov:
        result = result._replace(course=followed(made, result, record))
    result = result if table is None else _by_experiment(result, table, measured)
    alone = jax.tree.map(lambda leaf: leaf[None], result._replace(course=None))
    _warn(made, alone, rounding.replicates(system, result, measured))
    return result


def _inferred(key: jax.Array, made: Belief, record: Record, gain: str) -> Posterior:
    """Return what records say; all leaves lead with N."""
    system, count = made.system, record.designs.shape[1]
    reading = inferring.read(key, made, record, gain)
    result, fault = _concluded(made, reading), reading.fault
    by_step = {name: getattr(result, name)[:, :count] for name in ("log_predictive", "gains", "residuals")}
    result = result._replace(**by_step)
    made.likelihood.check_record(record)
    faults.check(system, fault, made.likelihood)
    return result


def _warn(made: Belief, result: Posterior, rounded: Replicates = rounding.nothing) -> None:
    """Warn where records say little; all leaves of the result lead with N."""
    learning.warn_of_doubts(made, result.belief)
    if not _warned_of_unexplained(made.system, result, rounded) and not _warned_of_improbable(
        made.likelihood, np.asarray(result.log_predictive)
    ):
        _warn_of_collapse(result, made)
    _warn_of_far(made.system, np.asarray(result.mean))


@eqx.filter_jit
def _concluded(belief: Belief, reading: inferring.Reading) -> Posterior:
    """Return what records said in all."""
    state = reading.learner.belief
    divergence = belief.divergence(state, jnp.sum(reading.log_predictive, axis=1))
    by_step = reading.log_predictive, reading.gains
    return Posterior(*belief.moments(state), *by_step, divergence, state, reading.residuals)


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


def _warned_of_unexplained(system: BaseSystem, result: Posterior, rounded: Replicates) -> bool:
    """Warn where the model clearly does not explain a record: 1 call in 10,000 does so by chance."""
    residuals = np.asarray(result.residuals)
    alarm = explaining.CLEARLY / len(residuals)
    found = [explaining.explain(system.observation_names, rows, alarm, rounded) for rows in residuals]
    worst = next((i for i, each in enumerate(found) if not each.explains), None)
    if worst is None:
        return False
    certain = np.flatnonzero(np.diagonal(np.asarray(result.covariance[worst])) <= 0.0)
    names = ", ".join(system.parameter_names[i] for i in certain)
    besides = f" The variance of {names} is 0, that of a single particle, and says nothing." if names else ""
    which = f"record {worst}: " if len(residuals) > 1 else ""
    warnings.warn(f"{which}{found[worst].sentence}{besides}", stacklevel=3)
    return True


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


def _of_many_rigs(system: BaseSystem, observations: Any, designs: Any) -> Record:
    """Return records of N rigs, checked."""
    y, u = (
        jnp.asarray(checks.numbers(f"the record's {what}", values))
        for what, values in (("observations", observations), ("designs", designs))
    )
    dy, du = len(system.observation_names), len(system.design_names)
    fits = u.ndim == 3 and (y.shape[-1], u.shape[-1]) == (dy, du) and len(y) == len(u)
    if not (fits and y.shape[-2] == u.shape[-2] + 1 > 1):
        raise NestbedError(
            f"the record has observations of shape {y.shape} and designs of shape {u.shape}, but {system.name} needs "
            f"(T+1, {dy}) and (T, {du}), or the same with N in front: one more observation than designs."
        )
    for name, values in (("observations", y), ("designs", u)):
        bad = np.argwhere(~np.isfinite(np.asarray(values)))
        if len(bad):
            where = ", ".join(str(int(i)) for i in bad[0])
            raise NestbedError(
                f"the record's {name} hold a value that is not finite at [{where}]; with N in front every one must be: "
                "take records with gaps one by one."
            )
    return Record(y, u)


def followed(belief: Belief, result: Posterior, record: Record) -> Course | None:
    """Return what filters say along one record, by the final particles; None where the belief has none."""
    if not hasattr(result.belief, "theta"):
        return None
    theta = tuple(value[None] for value in result.belief.theta)
    rows = _followed(belief, theta, jnp.exp(result.belief.log_weights)[None], inferring.roomy(record))
    return Course(*(np.asarray(part)[: record.observations.shape[1]] for part in rows))


@eqx.filter_jit
def _followed(belief: Belief, theta: Components, weights: Float[Array, "1 M"], record: Record) -> Any:
    likelihood = belief.likelihood

    def mixed(means: Any, variances: Any) -> tuple[Any, Any]:
        mean = [jnp.sum(weights * m) for m in means]
        spread = [jnp.sum(weights * (v + (m - c) ** 2)) for m, v, c in zip(means, variances, mean, strict=True)]
        return jnp.stack(mean), jnp.sqrt(jnp.stack(spread))

    def row(carry: Any, now: Any) -> Any:
        u, y = (tuple(value[None, None] for value in part) for part in now)
        expected = likelihood.predict(carry, u, theta)
        carry = likelihood.condition(carry, u, y, theta)
        return carry, (*mixed(*likelihood.filtered(carry)), *mixed(*expected))

    first = likelihood.start(components(record.observations[:, 0]), theta)
    _, rows = jax.lax.scan(row, first, (record.designs[0], record.observations[0, 1:]))
    unread = mixed(*likelihood.first_expected(theta))
    begun = (*mixed(*likelihood.filtered(first)), *unread)
    return tuple(jnp.concatenate([one[None], more]) for one, more in zip(begun, rows, strict=True))


def _by_experiment(result: Posterior, table: records.Table, measured: list[records.Measured]) -> Posterior:
    """Return what each experiment came to, of the rows it was cut into; a record's first reading counts with it."""
    which = table.experiment.copy()
    begins = np.flatnonzero(which < 0)
    which[begins] = which[begins + 1]
    count = sum(len(each.designs) for each in measured)
    last = table.ends
    sums = {}
    for name in ("log_predictive", "gains"):
        total = np.zeros(count)
        np.add.at(total, which, np.asarray(getattr(result, name)))
        sums[name] = jnp.asarray(total)
    course = result.course
    if course is not None:  # only when something was seen
        kept = np.sort(np.concatenate([[0], 1 + last, 1 + begins]))
        course = Course(*(part[kept] for part in course))
    return result._replace(**sums, residuals=result.residuals[last], course=course)
