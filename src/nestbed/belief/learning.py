"""The learning step: rejuvenate if degenerate → design → outcome → update → gain.

One function of plain state for sweeps, for records that were already made, and for policies with a belief of their own.
It goes on from any state and knows no horizon: a record's buffers only have to be longer than what is done. Its two
halves, `rejuvenate` before the design and `observe` after the outcome, are all that a step from outside needs.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nestbed.belief import faults
from nestbed.belief.base import Belief, Evidence, RejuvenationInfo
from nestbed.likelihood.base import Record
from nestbed.numerics.errors import NestbedError, did_you_mean

GAINS = ("general", "constant_noise", "closed_form")
"""Forms of the gain: `alg:reweight-function`, `eq:eig_constant_noise`, and the entropy that a belief loses."""


class Learner(NamedTuple):
    """What N records hold and what they say about the parameters; every leaf leads with N."""

    record: Record  # in buffers that may be longer than what is done
    belief: Any


class StepInfo(NamedTuple):
    """What one experiment of each record came to."""

    memory: Any  # of whatever chose the design
    u: Float[Array, "N du"]
    u_previous: Float[Array, "N du"]
    gain: Float[Array, " N"]  # in nats
    evidence: Evidence
    rejuvenation: RejuvenationInfo | None
    before: Any  # the belief that the design met


def start(key: jax.Array, belief: Belief, first: Float[Array, "N dy"], capacity: int) -> Learner:
    """Return N records of which only the first observation was seen, with room for `capacity` experiments."""
    count, system = first.shape[0], belief.system
    observations = jnp.zeros((count, capacity + 1, len(system.observation_names))).at[:, 0].set(first)
    designs = jnp.zeros((count, capacity, belief.likelihood.inputs))
    return Learner(Record(observations, designs), belief.init(key, first))


def step(
    key: jax.Array,
    belief: Belief,
    learner: Learner,
    t: Int[Array, ""],
    fault: faults.Fault,
    *,
    design: Callable[[Float[Array, "N dy"], Float[Array, "N du"]], tuple[Any, Float[Array, "N du"]]],
    outcome: Callable[[Any, Float[Array, "N du"]], Float[Array, "N dy"]],
    gain: str = "general",
    pin: Callable[[Any], Any] = lambda state: state,
    pin_after: Callable[[Any, Evidence], tuple[Any, Evidence]] = lambda state, evidence: (state, evidence),
) -> tuple[Learner, StepInfo, faults.Fault]:
    """Do experiment `t` of every record.

    `design` takes the last observation and the design before and returns its memory and the design; `outcome` takes
    the belief and the design: each may choose, draw, or give what was recorded. `pin` replaces beliefs before the
    design that are given, such as that of a reference, and `pin_after` those after the outcome.
    """
    # Rejuvenate
    learner, rejuvenation = rejuvenate(key, belief, learner, t)
    fault = faults.in_rejuvenation(fault, rejuvenation, learner.record, t)
    learner = learner._replace(belief=pin(learner.belief))

    # Design
    y = learner.record.observations[:, t]
    u_previous = _previous_design(belief, learner.record, t)
    memory, u = design(y, u_previous)

    # Outcome
    y_next = outcome(learner.belief, u)

    # Update, and account the gain
    updated, evidence, refreshment = observe(key, belief, learner, t, u, y_next)
    fault = faults.in_rejuvenation(fault, refreshment, updated.record, t + 1)
    state, evidence = pin_after(updated.belief, evidence)
    updated = updated._replace(belief=state)
    reward = evidence.gain(belief.likelihood, gain)
    renewal = refreshment if rejuvenation is None else rejuvenation
    info = StepInfo(memory, u, u_previous, reward, evidence, renewal, learner.belief)
    return updated, info, fault


def rejuvenate(
    key: jax.Array, belief: Belief, learner: Learner, t: Int[Array, ""]
) -> tuple[Learner, RejuvenationInfo | None]:
    """Renew degenerate beliefs after `t` experiments."""
    _check_room(learner.record, t)
    state, info = belief.rejuvenate(key, learner.belief, learner.record, t)
    return learner._replace(belief=state), info


def observe(
    key: jax.Array,
    belief: Belief,
    learner: Learner,
    t: Int[Array, ""],
    u: Float[Array, "N du"],
    y_next: Float[Array, "N dy"],
) -> tuple[Learner, Evidence, RejuvenationInfo | None]:
    """Take in the outcome of experiment `t`, and refresh what it has left degenerate."""
    _check_room(learner.record, t + 1)
    observations, designs = learner.record
    record = Record(observations.at[:, t + 1].set(y_next), designs.at[:, t].set(u))
    state, evidence = belief.update(learner.belief, u, y_next)
    state, evidence, info = belief.refresh(key, learner.belief, state, evidence, record, t + 1)
    return Learner(record, state), evidence, info


def _check_room(record: Record, done: Int[Array, ""]) -> None:
    """Raise if so many experiments do not fit into a record; within a program its caller must know."""
    room = record.designs.shape[1]
    if not isinstance(done, jax.core.Tracer) and int(done) > room:
        raise NestbedError(
            f"the record has room for {room} experiments, but this is number {int(done)}; give it more by "
            "record.padded(...), or make the policy with a longer horizon."
        )


def _previous_design(belief: Belief, record: Record, t: Int[Array, ""]) -> Float[Array, "N du"]:
    """Return the design before experiment `t`."""
    rest = jnp.zeros(record.designs.shape[-1]).at[: len(belief.system.rest_design)].set(belief.system.rest_design)
    return jnp.where(t > 0, record.designs[:, jnp.maximum(t - 1, 0)], rest)


def warn_of_doubts(belief: Belief, state: Any, first: int = 0) -> None:
    """Warn of records whose posterior nothing fits, by their number from `first` on."""
    since = belief.doubtful(state)
    rows = [] if since is None else np.flatnonzero(since).tolist()
    if since is not None and rows:
        warnings.warn(
            f"no proposal fits the posterior of {len(rows)} records of {belief.system.name} (the first is record "
            f"{first + rows[0]}, after experiment {int(np.asarray(since)[rows[0]])}), so what is said of them may "
            "be far off; give more particles, or use belief='ibis' with thousands of them.",
            stacklevel=3,
        )


NEAR, OFTEN = 0.75, 0.02
"""Share of log M above which particles are too few to show a step's gain, and of the records where that is told."""


def limited(belief: Belief, gains: Float[np.ndarray, "N T"]) -> str:
    """Return a sentence if experiments gain about as much as particles can show, or nothing."""
    near = np.asarray(gains).max(axis=1) > NEAR * belief.most
    if near.mean() <= max(OFTEN, 1.5 / len(near)):  # one record alone may be an odd one
        return ""
    return (
        f"experiments gain about as much as {belief.kind} beliefs can show, log M = {belief.most:.2f}, so this gain of "
        f"{belief.system.name} is too low, and lower for better designs: use nb.certificate or belief='guided', or "
        "give more particles."
    )


def warn_of_limit(belief: Belief, gains: Float[np.ndarray, "N T"]) -> None:
    """Warn where particles are too few for what experiments gain."""
    if sentence := limited(belief, gains):
        warnings.warn(sentence, stacklevel=3)


def check_gain(belief: Belief, form: str) -> None:
    """Raise unless the form of the gain exists and suits the system and its belief."""
    if form not in GAINS:
        raise NestbedError(f"there is no gain form {form!r}; {did_you_mean(str(form), GAINS)}.")
    if form == "constant_noise" and not belief.likelihood.constant_noise:
        raise NestbedError(f"the noise of {belief.system.name} is not constant, so use gain='general'.")
    if form == "closed_form" and not belief.closed_form:
        raise NestbedError(
            f"the gain of {belief.kind} beliefs has no closed form; use gain='general' or belief='exact'."
        )
