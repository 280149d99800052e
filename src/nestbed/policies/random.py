"""Designs drawn uniformly from the box."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nestbed import checks, noise
from nestbed.policies.base import Hashable, bound
from nestbed.system import BaseSystem


class Random(Hashable):
    """Independent uniform designs."""

    low: Float[Array, " du"]
    high: Float[Array, " du"]
    system: BaseSystem = eqx.field(static=True)

    def __init__(self, system: BaseSystem):
        checks.instance(system)
        self.low, self.high, self.system = jnp.array(system.designs.low), jnp.array(system.designs.high), system

    def init(self) -> None:
        """Return no carry."""
        return

    @bound
    def step(
        self, key: jax.Array, carry: None, x: Float[Array, " dx"], u_previous: Float[Array, " du"]
    ) -> tuple[None, Float[Array, " du"]]:
        """Draw one design."""
        return carry, self.low + (self.high - self.low) * noise.uniforms(key, self.low.shape)
