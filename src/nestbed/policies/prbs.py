"""Pseudo-random binary signals: each design at one of its limits."""

from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nestbed.model import checks
from nestbed.model.system import BaseSystem
from nestbed.numerics import noise
from nestbed.numerics.errors import NestbedError, did_you_mean
from nestbed.policies.base import Hashable, bound


class PRBS(Hashable):
    """A fair coin per experiment between the limits: one coin for all channels ("joint"), or one for each."""

    open_loop: ClassVar[bool] = True
    system: BaseSystem = eqx.field(static=True)
    coins: int = eqx.field(static=True)

    def __init__(self, system: BaseSystem, channels: Literal["joint", "independent"] = "joint"):
        if channels not in ("joint", "independent"):
            hint = did_you_mean(str(channels), ("joint", "independent"))
            raise NestbedError(f"PRBS got channels={channels!r}; {hint}.")
        checks.instance(system)
        self.system = system
        self.coins = 1 if channels == "joint" else len(system.designs.names)

    def init(self) -> None:
        """Return no carry."""
        return

    @bound
    def step(
        self, key: jax.Array, carry: None, y: Float[Array, " dy"], u_previous: Float[Array, " du"]
    ) -> tuple[None, Float[Array, " du"]]:
        """Toss the coins."""
        box = self.system.designs
        return carry, jnp.where(noise.uniforms(key, (self.coins,)) < 0.5, jnp.array(box.high), jnp.array(box.low))
