"""Experiments on simulated rigs whose parameters are known."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nestbed import likelihood as likelihoods
from nestbed.likelihood.base import Record
from nestbed.model.prior import Components
from nestbed.model.system import BaseSystem
from nestbed.numerics import noise
from nestbed.numerics.slopes import finite


class Simulated(NamedTuple):
    """Records of simulated rigs, and what their states really were."""

    record: Record
    states: Float[Array, "N T1 dx"]


def simulate(key: jax.Array, system: BaseSystem, policy: Any, theta: Components, horizon: int) -> Simulated:
    """Run `horizon` experiments on N rigs, one for each parameter vector; theta holds one (N,) array per parameter.

    Everything is differentiable: with the key fixed, the record moves smoothly with the weights of the policy.
    """
    count = theta[0].shape[0]

    def choose(state: Any, keys: jax.Array, y: Float[Array, "N dy"], _: Any) -> Any:
        memory, u_previous = state
        memory, u = jax.vmap(policy.step)(keys, memory, y, u_previous)
        return (memory, u.astype(y.dtype)), u.astype(y.dtype)

    return _run(key, system, theta, choose, _rest(system, policy, count), jnp.arange(horizon))


def play(key: jax.Array, system: BaseSystem, designs: Float[Array, "N T du"], theta: Components) -> Simulated:
    """Do the same with designs that are given: one program for all policies that look at nothing."""
    return _run(key, system, theta, lambda state, keys, y, u: (state, u), (), jnp.swapaxes(designs, 0, 1))


def chosen_unseen(key: jax.Array, system: BaseSystem, policy: Any, count: int, horizon: int) -> Float[Array, "N T du"]:
    """Return the designs that `simulate` would try with a policy that does not look at outcomes."""
    nothing = jnp.zeros((count, len(system.observation_names)))

    def choose(state: Any, keys: jax.Array) -> Any:
        memory, u = jax.vmap(policy.step)(keys[1:], state[0], nothing, state[1])
        return (memory, u.astype(nothing.dtype)), u.astype(nothing.dtype)

    _, steps_key = jax.random.split(key)
    keys = jax.random.split(steps_key, (horizon, 1 + count))
    return _by_record(jax.lax.scan(choose, _rest(system, policy, count), keys)[1])


def _rest(system: BaseSystem, policy: Any, count: int) -> Any:
    """Return the policy's memory for each rig, and the design before the first."""
    memory = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *jnp.shape(leaf))), policy.init())
    return memory, jnp.broadcast_to(jnp.array(system.rest_design), (count, len(system.design_names)))


def _run(key: jax.Array, system: BaseSystem, theta: Components, choose: Any, begun: Any, given: Any) -> Simulated:
    """Run experiments whose designs `choose` gives, from its memory, keys, the last outcome and what is given."""
    likelihood = likelihoods.of(system)
    start_key, steps_key = jax.random.split(key)
    count = theta[0].shape[0]
    truth, first = likelihood.begin(start_key, count, theta)

    def experiment(state: Any, now: Any) -> Any:
        (truth, y, remembered), (keys, given) = state, now
        remembered, u = choose(remembered, keys[1:], y, given)
        normals = noise.normals(keys[0], (count, likelihood.normals))
        truth, outcome = likelihood.experiment(tuple(normals.T), truth, tuple(u.T), theta)
        truth, outcome = finite(truth), finite(outcome)
        y = jnp.stack(outcome, axis=-1)
        return (truth, y, remembered), (y, u, _hidden(likelihood, truth))

    keys = jax.random.split(steps_key, (len(given), 1 + count))
    _, (seen, designs, states) = jax.lax.scan(experiment, (truth, first, begun), (keys, given))
    record = Record(_by_record(jnp.concatenate([first[None], seen])), _by_record(designs))
    if likelihood.markov:
        return Simulated(record, record.observations)
    at_first = _hidden(likelihood, truth)
    return Simulated(record, _by_record(jnp.concatenate([at_first[None], states])))


def _hidden(likelihood: likelihoods.Likelihood, truth: Any) -> Any:
    """Return the states of rigs, (N, dx), where they are not what is seen."""
    return () if likelihood.markov else jnp.stack(likelihood.states(truth), axis=-1)


def _by_record(rows: Float[Array, "T N d"]) -> Float[Array, "N T d"]:
    return jnp.swapaxes(rows, 0, 1)
