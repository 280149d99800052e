"""Designs drawn uniformly from the box."""

from typing import ClassVar

import equinox as eqx
import jax
from jaxtyping import Array, Float

from nestbed.model import checks
from nestbed.model.system import BaseSystem
from nestbed.policies.base import Hashable, bound


class Random(Hashable):
    """Independent uniform designs."""

    open_loop: ClassVar[bool] = True
    system: BaseSystem = eqx.field(static=True)

    def __init__(self, system: BaseSystem):
        checks.instance(system)
        self.system = system

    def init(self) -> None:
        """Return no carry."""
        return

    @bound
    def step(
        self, key: jax.Array, carry: None, y: Float[Array, " dy"], u_previous: Float[Array, " du"]
    ) -> tuple[None, Float[Array, " du"]]:
        """Draw one design."""
        return carry, self.system.designs.sample(key)
