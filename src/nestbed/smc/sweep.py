"""One run of the nested filter over the horizon: `alg:i-o-smc2`, `alg:csmc` and `alg:iosmc_exact` in one function.

A reference makes it conditional, the belief makes it exact or nested, and η = 0 turns resampling off by itself,
because equal weights never lose effective sample size.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from nestbed import belief as beliefs
from nestbed.belief import faults, learning
from nestbed.belief.base import Belief, Evidence
from nestbed.belief.learning import Learner
from nestbed.belief.potential import Potential
from nestbed.likelihood.base import Record
from nestbed.model import checks
from nestbed.model.system import BaseSystem
from nestbed.numerics import noise, resampling, weights
from nestbed.numerics.errors import NestbedError, at_least_one
from nestbed.policies.base import Policy, prepare
from nestbed.smc.reference import Reference, genealogy

THRESHOLD = 0.75
"""Share of N below which the effective sample size of trajectories must fall for them to be resampled."""


class SweepInfo(NamedTuple):
    """What resampling and rejuvenation took, per experiment."""

    ess: Float[Array, " T"]  # of the trajectories, before resampling
    resampled: Bool[Array, " T"]
    rejuvenated: Int[Array, " T"] | None  # beliefs that were
    acceptance: Float[Array, " T"] | None  # sum of their acceptance rates
    ancestors: Int[Array, "T N"]  # slot each trajectory came from


class Sweep(NamedTuple):
    """N weighted trajectories of T experiments."""

    observations: Float[Array, "N T1 dy"]
    designs: Float[Array, "N T du"]
    gains: Float[Array, "N T"]  # r, in nats, without the penalties
    log_weights: Float[Array, " N"]  # normalised
    log_evidence: Float[Array, ""]  # log Ẑ_T
    reference: Reference | None  # one trajectory drawn by weight, with its beliefs
    belief: Any  # final belief states
    info: SweepInfo

    @property
    def record(self) -> Record:
        """What was seen and done."""
        return Record(self.observations, self.designs)


class _Carry(NamedTuple):
    """Everything a trajectory carries; every leaf leads with the trajectory axis."""

    learner: Learner
    gains: Float[Array, "N T"]
    memory: Any  # the policy's carry


def sweep(
    key: jax.Array,
    system: BaseSystem,
    policy: Policy,
    *,
    horizon: int | None = None,
    trajectories: int | None = None,
    particles: int | None = None,
    moves: int | None = None,
    eta: float | None = None,
    slew_penalty: float | None = None,
    action_penalty: float = 0.0,
    belief: str | Belief = "guided",
    gain: str = "general",
    reference: Reference | None = None,
) -> Sweep:
    """Run the nested filter once; what is left None comes from `system.defaults`.

    Args:
        key: a jax key; the same key gives the same numbers.
        system: the model.
        policy: what chooses the designs.
        horizon: T, experiments per trajectory.
        trajectories: N.
        particles: M, parameter particles per trajectory; by default 64 for guided beliefs.
        moves: Metropolis steps whenever a trajectory's particles are rejuvenated.
        eta: η. Trajectories are weighted by exp(η · (gain − penalties)) and resampled when their weights degenerate: a
            larger η seeks out more informative ones, and η = 0 weights all alike.
        slew_penalty: on the squared change of the designs from one experiment to the next, in units of half the box
            (or of the system's `defaults.penalty_units`).
        action_penalty: on squared designs, likewise. Neither enters the reported gains.
        belief: the name of a belief, "guided", "ibis" or "exact", or a belief object.
        gain: "general" (`alg:reweight-function`), "constant_noise" (`eq:eig_constant_noise`, higher variance) or, for
            exact beliefs, "closed_form" (the entropy that the belief loses, lower variance).
        reference: of an earlier sweep. The sweep is then conditional: it keeps that trajectory and its beliefs among
            the N.

    Returns:
        N weighted trajectories with their gains in nats. `log_evidence` is the log of the mean of that exponential
        over trajectories: η times the gain, on a risk-seeking average.
    """
    checks.instance(system)
    defaults = system.defaults
    horizon = defaults.horizon if horizon is None else horizon
    count = defaults.trajectories if trajectories is None else trajectories
    at_least_one(horizon=horizon, trajectories=count)
    made = beliefs.make(
        belief,
        system,
        particles,
        defaults.moves if moves is None else moves,
        usual=defaults.particles,
    )
    potential = Potential.of(system, eta, slew_penalty, action_penalty)
    learning.check_gain(made, gain)
    if reference is not None:
        if not isinstance(reference, Reference):
            raise NestbedError(
                f"the reference is a {type(reference).__name__}, but it must be the `.reference` of an earlier "
                "sweep's result."
            )
        if count < 2:
            raise NestbedError(
                "a sweep with a reference needs at least 2 trajectories: one alone could only return its reference."
            )
        reference.check(system, made, horizon)
    result, fault = firm_sweep(
        noise.as_key(key),
        made,
        prepare(policy, system, horizon),
        potential,
        horizon=horizon,
        count=count,
        gain=gain,
        reference=reference,
        keep=True,
    )
    faults.check_all(system, fault, result.record)
    learning.warn_of_doubts(made, result.belief)
    learning.warn_of_limit(made, np.asarray(result.gains))
    return result


def run(
    key: jax.Array,
    belief: Belief,
    policy: Any,
    potential: Potential,
    *,
    horizon: int,
    count: int,
    gain: str = "general",
    reference: Reference | None = None,
    keep: bool = False,
    threshold: float = THRESHOLD,
) -> tuple[Sweep, faults.Fault]:
    """Do the whole sweep as one pure function; `keep` stores every belief so that a reference can be drawn."""
    start_key, steps_key, end_key = jax.random.split(key, 3)

    def experiment(state: Any, inputs: Any) -> Any:
        carry, log_weights, log_evidence, fault = state
        t, (resample_key, belief_key, outcome_key), policy_keys, pinned = inputs

        # Resample
        carry, log_weights, ess, degenerate, ancestors = _resample(
            resample_key, carry, log_weights, threshold, conditional=pinned is not None
        )

        # Learn: rejuvenate, design, outcome, update, gain
        def design(y: Float[Array, "N dy"], u_previous: Float[Array, "N du"]) -> tuple[Any, Float[Array, "N du"]]:
            memory, u = jax.vmap(policy.step)(policy_keys, carry.memory, y, u_previous)
            return memory, _pin(u.astype(y.dtype), pinned and pinned.design)

        def outcome(state: Any, u: Float[Array, "N du"]) -> Float[Array, "N dy"]:
            return _pin(belief.sample(outcome_key, state, u), pinned and pinned.observation)

        def pin_after(state: Any, evidence: Evidence) -> tuple[Any, Evidence]:
            if pinned is None or not belief.refreshes:
                return state, evidence
            state = _pin(state, belief.expand(pinned.after))
            return state, belief.recalled(state)

        learner, info, fault = learning.step(
            belief_key,
            belief,
            carry.learner,
            t,
            fault,
            design=design,
            outcome=outcome,
            gain=gain,
            pin=lambda state: _pin(state, pinned and belief.expand(pinned.belief)),
            pin_after=pin_after,
        )

        # Reweight
        log_potential = potential.log(info.gain, info.u, info.u_previous)
        log_weights, increment = weights.normalise(log_weights + log_potential)
        terms = info.gain + log_potential
        fault = faults.in_weights(fault, terms, info.evidence, belief, info.before, learner.record, t)

        carry = _Carry(learner, carry.gains.at[:, t].set(info.gain), info.memory)
        rejuvenated, acceptance = info.rejuvenation[:2] if info.rejuvenation is not None else (None, None)
        kept = belief.compress(info.before) if keep else None
        return (carry, log_weights, log_evidence + increment, fault), (
            SweepInfo(ess, degenerate, rejuvenated, acceptance, ancestors),
            kept,
        )

    keys = jax.random.split(steps_key, (horizon, 3 + count))
    pins = None if reference is None else reference.steps()
    inputs = jnp.arange(horizon, dtype=jnp.int32), keys[:, :3], keys[:, 3:], pins
    even = jnp.full(count, -jnp.log(float(count)))
    carry = _begin(start_key, belief, policy, horizon, count, reference)
    start = carry, even, jnp.zeros(()), faults.none(belief.system, horizon)
    (carry, log_weights, log_evidence, fault), (info, kept) = jax.lax.scan(experiment, start, inputs)
    record, state = carry.learner
    drawn = None
    if keep:
        chosen = jax.random.categorical(end_key, log_weights)
        observations, designs = (leaf[chosen] for leaf in record)
        before = genealogy(kept, info.ancestors, chosen)
        last = jax.tree.map(lambda leaf: leaf[chosen], belief.compress(state)) if belief.refreshes else None
        drawn = Reference(observations, designs, before, last, belief.system, belief.kind)
    return Sweep(*record, carry.gains, log_weights, log_evidence, drawn, state, info), fault


compiled_sweep = eqx.filter_jit(run)


def firm_sweep(key: jax.Array, belief: Belief, *arguments: Any, **settings: Any) -> tuple[Sweep, faults.Fault]:
    """Run a sweep, and once more with a firmer belief if the belief failed."""
    result, fault = compiled_sweep(key, belief, *arguments, **settings)
    firmer = belief.firmer(result.belief)
    return (result, fault) if firmer is None else compiled_sweep(key, firmer, *arguments, **settings)


def _begin(
    key: jax.Array, belief: Belief, policy: Any, horizon: int, count: int, reference: Reference | None
) -> _Carry:
    """Return N trajectories that have done nothing yet, the reference's start in the first slot."""
    belief_key, start_key = jax.random.split(key)
    first = belief.likelihood.sample_start(start_key, count)
    first = _pin(first, reference and reference.observations[0])
    memory = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *jnp.shape(leaf))), policy.init())
    return _Carry(learning.start(belief_key, belief, first, horizon), jnp.zeros((count, horizon)), memory)


def _resample(
    key: jax.Array, carry: _Carry, log_weights: Float[Array, " N"], threshold: float, *, conditional: bool
) -> Any:
    """Resample the trajectories if their weights are degenerate: systematically, or keeping the reference."""
    count = log_weights.shape[0]
    ess = weights.effective_sample_size(log_weights)
    degenerate = ess < threshold * count

    def draw() -> Int[Array, " N"]:
        if conditional:
            return resampling.conditional(noise.uniforms(key, (count,)), log_weights)
        return resampling.systematic(noise.uniforms(key, (1,)), log_weights)

    ancestors = jax.lax.cond(degenerate, draw, lambda: jnp.arange(count, dtype=jnp.int32))
    carry = jax.lax.cond(degenerate, lambda: jax.tree.map(lambda leaf: leaf[ancestors], carry), lambda: carry)
    log_weights = jnp.where(degenerate, -jnp.log(float(count)), log_weights)
    return carry, log_weights, ess, degenerate, ancestors


def _pin(tree: Any, reference: Any) -> Any:
    """Put the reference, if there is one, into the first slot."""
    return tree if reference is None else jax.tree.map(lambda leaf, kept: leaf.at[0].set(kept), tree, reference)
