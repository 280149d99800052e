"""Experiments on simulated rigs whose parameters are known."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nestbed import likelihood as likelihoods
from nestbed.likelihood.base import Record
from nestbed.model.prior import Components
from nestbed.model.system import BaseSystem
from nestbed.numerics import noise


def simulate(key: jax.Array, system: BaseSystem, policy: Any, theta: Components, horizon: int) -> Record:
    """Run `horizon` experiments on N rigs, one for each parameter vector; theta holds one (N,) array per parameter.

    Everything is differentiable: with the key fixed, the record moves smoothly with the weights of the policy.
    """
    likelihood = likelihoods.of(system)
    start_key, steps_key = jax.random.split(key)
    count = theta[0].shape[0]
    first = likelihood.sample_start(start_key, count)
    rest = jnp.broadcast_to(jnp.array(system.rest_design), (count, len(system.design_names)))
    memory = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *jnp.shape(leaf))), policy.init())

    def experiment(state: Any, keys: jax.Array) -> Any:
        carry, y, u_previous, memory = state
        memory, u = jax.vmap(policy.step)(keys[1:], memory, y, u_previous)
        u = u.astype(y.dtype)
        normals = noise.normals(keys[0], y.shape)
        outcome = likelihood.sample(tuple(normals.T), carry, tuple(u.T), theta)
        carry = likelihood.condition(carry, tuple(u.T), outcome, theta)
        y = jnp.stack(outcome, axis=-1)
        return (carry, y, u, memory), (y, u)

    keys = jax.random.split(steps_key, (horizon, 1 + count))
    start = likelihood.start(tuple(first.T), theta), first, rest, memory
    _, (observations, designs) = jax.lax.scan(experiment, start, keys)
    return Record(_by_record(jnp.concatenate([first[None], observations])), _by_record(designs))


def _by_record(rows: Float[Array, "T N d"]) -> Float[Array, "N T d"]:
    return jnp.swapaxes(rows, 0, 1)
