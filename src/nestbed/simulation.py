"""Experiments on simulated rigs whose parameters are known."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nestbed import noise
from nestbed.belief.base import Record
from nestbed.prior import Components
from nestbed.system import BaseSystem


def simulate(key: jax.Array, system: BaseSystem, policy: Any, theta: Components, horizon: int) -> Record:
    """Run `horizon` experiments on N rigs, one for each parameter vector; theta holds one (N,) array per parameter.

    Everything is differentiable: with the key fixed, the record moves smoothly with the weights of the policy.
    """
    start_key, steps_key = jax.random.split(key)
    count = theta[0].shape[0]
    first = system.sample_start(start_key, count)
    rest = jnp.broadcast_to(jnp.array(system.rest_design), (count, len(system.design_names)))
    memory = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *jnp.shape(leaf))), policy.init())

    def experiment(carry: Any, keys: jax.Array) -> Any:
        x, u_previous, memory = carry
        memory, u = jax.vmap(policy.step)(keys[1:], memory, x, u_previous)
        u = u.astype(x.dtype)
        normals = noise.normals(keys[0], x.shape)
        following = jnp.stack(system.outcome(tuple(normals.T), tuple(x.T), tuple(u.T), theta), axis=-1)
        return (following, u, memory), (following, u)

    keys = jax.random.split(steps_key, (horizon, 1 + count))
    _, (states, designs) = jax.lax.scan(experiment, (first, rest, memory), keys)
    return Record(_by_trajectory(jnp.concatenate([first[None], states])), _by_trajectory(designs))


def _by_trajectory(rows: Float[Array, "T N d"]) -> Float[Array, "N T d"]:
    return jnp.swapaxes(rows, 0, 1)
