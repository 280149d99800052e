"""A recurrent policy that begins with given inputs: it learns to apply them, whatever it sees."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from nestbed.likelihood.simulation import play
from nestbed.numerics import noise
from nestbed.policies.recurrent import Recurrent
from nestbed.training import gradient

STEPS, BATCH, RATE = 500, 32, 2e-3
SHRUNK, SHAKEN = 0.95, 0.15
"""What is imitated: the inputs a little inside the box, whose edge a squashed policy never reaches, with noise."""


def imitate(key: jax.Array, policy: Recurrent, inputs: Float[Any, "T du"]) -> Recurrent:
    """Return the policy after it has learned to apply the inputs, with noise that is left to explore with."""
    return _imitated(key, policy, jnp.asarray(inputs, float))


@eqx.filter_jit
def _imitated(key: jax.Array, policy: Recurrent, inputs: Float[Array, "T du"]) -> Recurrent:
    system, optimiser = policy.system, optax.adam(RATE)

    def likely(policy: Recurrent, key: jax.Array) -> Float[Array, ""]:
        theta_key, record_key, shake_key = jax.random.split(key, 3)
        shaking = noise.normals(shake_key, (BATCH, *inputs.shape))
        unit = jnp.clip(SHRUNK * system.designs.unscale(inputs) + SHAKEN * shaking, -SHRUNK, SHRUNK)
        theta = system.parameters.draw(theta_key, (BATCH,))
        record = play(record_key, system, system.designs.scale(unit), theta).record
        return jnp.mean(jax.vmap(policy.log_likelihood)(*record))

    keys = jax.random.split(key, STEPS)
    return gradient.ascend(policy, gradient.start(optimiser, policy), optimiser, likely, keys)[0]
