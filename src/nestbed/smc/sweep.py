"""One run of the nested filter over the horizon: `alg:i-o-smc2`, `alg:csmc` and `alg:iosmc_exact` in one function.

A reference makes it conditional, the belief makes it exact or nested, and η = 0 turns resampling off by itself,
because equal weights never lose effective sample size.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nestbed import belief as beliefs
from nestbed import checks, noise
from nestbed.belief.base import Belief, Record
from nestbed.errors import NestbedError, at_least_one, at_least_zero, did_you_mean
from nestbed.policies.base import prepare
from nestbed.smc import faults, resampling, weights
from nestbed.smc.potential import Potential
from nestbed.smc.reference import Reference, Step, trace
from nestbed.system import BaseSystem

THRESHOLD = 0.75
"""Trajectories are resampled when their effective sample size falls below this share of N."""


class Diagnostics(NamedTuple):
    """How the filter fared, per experiment."""

    ess: Float[Array, " T"]  # of the trajectories, before resampling
    resampled: Bool[Array, " T"]
    refreshed: Int[Array, " T"] | None  # beliefs rejuvenated
    accepted: Float[Array, " T"] | None  # sum of their acceptance rates
    ancestors: Int[Array, "T N"]  # slot each trajectory came from


class Sweep(NamedTuple):
    """N weighted trajectories of T experiments."""

    states: Float[Array, "N T1 dx"]
    designs: Float[Array, "N T du"]
    gains: Float[Array, "N T"]  # r, in nats, without the penalties
    log_weights: Float[Array, " N"]  # normalised
    log_evidence: Float[Array, ""]  # log Ẑ_T
    reference: Reference | None  # one trajectory drawn by weight, with its beliefs
    belief: Any  # final belief states
    diagnostics: Diagnostics


class _Flock(NamedTuple):
    """Everything a trajectory carries; every leaf leads with the trajectory axis."""

    record: Record
    gains: Float[Array, "N T"]
    memory: Any  # the policy's carry
    belief: Any


def sweep(
    key: jax.Array,
    system: BaseSystem,
    policy: Any,
    *,
    horizon: int | None = None,
    trajectories: int | None = None,
    particles: int | None = None,
    moves: int | None = None,
    eta: float | None = None,
    slew_penalty: float | None = None,
    action_penalty: float = 0.0,
    belief: str | Belief = "ibis",
    gain: str = "general",
    reference: Reference | None = None,
) -> Sweep:
    """Run the nested filter once; what is not given comes from `system.defaults`.

    Trajectories are weighted by exp(η · (gain − penalties)) and resampled when their weights degenerate: a larger η
    (`eta`) seeks out more informative ones, and η = 0 weights all alike. `slew_penalty` multiplies the squared change
    of the designs from one experiment to the next, `action_penalty` their squares; neither enters the reported gains.
    `log_evidence` is the log of the mean of that exponential over trajectories: η times the gain, on a risk-seeking
    average. With a `reference` the sweep is conditional: it keeps that trajectory and its beliefs among the N.
    `gain` is "general" (`alg:reweight-function`), "constant_noise" (`eq:eig_constant_noise`, higher variance) or, for
    exact beliefs, "closed_form" (the entropy that the belief loses, lower variance).
    """
    checks.instance(system)
    defaults = system.defaults
    horizon = defaults.horizon if horizon is None else horizon
    count = defaults.trajectories if trajectories is None else trajectories
    at_least_one(horizon=horizon, trajectories=count)
    made = beliefs.make(
        belief,
        system,
        defaults.particles if particles is None else particles,
        defaults.moves if moves is None else moves,
    )
    terms = {
        "eta": defaults.eta if eta is None else eta,
        "slew_penalty": defaults.slew_penalty if slew_penalty is None else slew_penalty,
        "action_penalty": action_penalty,
    }
    at_least_zero(**terms)
    potential = Potential(**{name: jnp.asarray(value, float) for name, value in terms.items()})
    check_gain_form(made, gain)
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
    result, fault = compiled_sweep(
        noise.as_key(key), made, prepare(policy, system, horizon), potential, horizon, count, gain, reference, True
    )
    faults.check_all(system, fault, result.states, result.designs)
    return result


GAINS = ("general", "constant_noise", "closed_form")


def check_gain_form(belief: Belief, form: str) -> None:
    """Raise unless the form of the gain exists and suits the system and its belief."""
    if form not in GAINS:
        raise NestbedError(f"there is no gain form {form!r}; {did_you_mean(str(form), GAINS)}.")
    if form == "constant_noise" and not belief.system.constant_noise:
        raise NestbedError(f"the noise of {belief.system.name} is not constant, so use gain='general'.")
    if form == "closed_form" and belief.kind != "exact":
        raise NestbedError(
            f"the gain of {belief.kind} beliefs has no closed form; use gain='general' or belief='exact'."
        )


def run(
    key: jax.Array,
    belief: Belief,
    policy: Any,
    potential: Potential,
    horizon: int,
    count: int,
    gain: str,
    reference: Reference | None,
    keep: bool,
) -> tuple[Sweep, faults.Fault]:
    """Do the whole sweep as one pure function; `keep` stores every belief so that a reference can be drawn."""
    system = belief.system
    start_key, steps_key, end_key = jax.random.split(key, 3)

    def experiment(carry: Any, inputs: Any) -> Any:
        flock, log_weights, log_evidence, fault = carry
        t, (resample_key, belief_key, outcome_key), policy_keys, pinned = inputs

        flock, log_weights, ess, tired, ancestors = _resample(resample_key, flock, log_weights, pinned)
        state, upkeep = belief.rejuvenate(belief_key, flock.belief, flock.record, t)
        if pinned is not None:
            state = _pin(state, belief.restored(pinned.belief))

        x, u_previous = flock.record.states[:, t], _previous(flock.record.designs, t, system)
        memory, u = jax.vmap(policy.step)(policy_keys, flock.memory, x, u_previous)
        u = u.astype(x.dtype)
        if pinned is not None:
            u = _pin(u, pinned.design)
        following = belief.sample(outcome_key, state, x, u)
        if pinned is not None:
            following = _pin(following, pinned.state)

        updated, evidence = belief.update(state, x, u, following)
        reward = evidence.gain(system, gain)
        log_potential = potential.log(reward, u, u_previous)
        log_weights, increment = weights.normalise(log_weights + log_potential)

        record = Record(flock.record.states.at[:, t + 1].set(following), flock.record.designs.at[:, t].set(u))
        fault = faults.in_upkeep(fault, upkeep, flock.record, t)
        fault = faults.in_weights(fault, reward + log_potential, evidence, belief, state, record, t)
        refreshed, accepted = (None, None) if upkeep is None else (upkeep.refreshed, upkeep.accepted)
        flock = _Flock(record, flock.gains.at[:, t].set(reward), memory, updated)
        kept = belief.kept(state) if keep else None
        return (flock, log_weights, log_evidence + increment, fault), (
            Diagnostics(ess, tired, refreshed, accepted, ancestors),
            kept,
        )

    keys = jax.random.split(steps_key, (horizon, 3 + count))
    pins = None if reference is None else reference.steps()
    inputs = jnp.arange(horizon, dtype=jnp.int32), keys[:, :3], keys[:, 3:], pins
    flock = _begin(start_key, belief, policy, horizon, count, reference)
    even = jnp.full(count, -jnp.log(float(count)))
    start = flock, even, jnp.zeros(()), faults.none(system, horizon)
    (flock, log_weights, log_evidence, fault), (diagnostics, kept) = jax.lax.scan(experiment, start, inputs)
    drawn = None
    if keep:
        chosen = jax.random.categorical(end_key, log_weights)
        states, designs = (leaf[chosen] for leaf in flock.record)
        drawn = Reference(states, designs, trace(kept, diagnostics.ancestors, chosen), system, belief.kind)
    result = Sweep(*flock.record, flock.gains, log_weights, log_evidence, drawn, flock.belief, diagnostics)
    return result, fault


compiled_sweep = eqx.filter_jit(run)


def _begin(
    key: jax.Array, belief: Belief, policy: Any, horizon: int, count: int, reference: Reference | None
) -> _Flock:
    """Return N trajectories that have done nothing yet, the reference's start in the first slot."""
    system = belief.system
    belief_key, state_key = jax.random.split(key)
    first = system.sample_start(state_key, count)
    if reference is not None:
        first = _pin(first, reference.states[0])
    states = jnp.zeros((count, horizon + 1, len(system.state_names))).at[:, 0].set(first)
    designs = jnp.zeros((count, horizon, len(system.design_names)))
    memory = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *jnp.shape(leaf))), policy.init())
    return _Flock(Record(states, designs), jnp.zeros((count, horizon)), memory, belief.init(belief_key, count))


def _resample(key: jax.Array, flock: _Flock, log_weights: Float[Array, " N"], pinned: Step | None) -> Any:
    """Resample the trajectories if their ESS fell: systematically, or conditionally on the reference."""
    count = log_weights.shape[0]
    ess = weights.effective_sample_size(log_weights)
    tired = ess < THRESHOLD * count

    def draw() -> Int[Array, " N"]:
        if pinned is None:
            return resampling.systematic(noise.uniforms(key, (1,)), log_weights)
        return resampling.conditional(noise.uniforms(key, (count,)), log_weights)

    ancestors = jax.lax.cond(tired, draw, lambda: jnp.arange(count, dtype=jnp.int32))
    flock = jax.lax.cond(tired, lambda: jax.tree.map(lambda leaf: leaf[ancestors], flock), lambda: flock)
    log_weights = jnp.where(tired, -jnp.log(float(count)), log_weights)
    return flock, log_weights, ess, tired, ancestors


def _previous(designs: Float[Array, "N T du"], t: Int[Array, ""], system: BaseSystem) -> Float[Array, "N du"]:
    """Return the design before step t."""
    return jnp.where(t > 0, designs[:, jnp.maximum(t - 1, 0)], jnp.array(system.rest_design))


def _pin(tree: Any, reference: Any) -> Any:
    """Put the reference into the first slot."""
    return jax.tree.map(lambda leaf, kept: leaf.at[0].set(kept), tree, reference)
