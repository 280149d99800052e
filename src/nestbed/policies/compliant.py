"""Any policy within a system's limits: scaled towards the rest design, and no faster than its slew."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nestbed.model import limits
from nestbed.model.system import BaseSystem
from nestbed.policies.base import Hashable, Policy, bound, looks_at_nothing, prepare


class Compliant(Hashable):
    """Another policy's designs, a share of the way from the rest design, changing no faster than the slew allows."""

    policy: Any
    share: Float[Array, ""]
    system: BaseSystem = eqx.field(static=True)

    def __init__(self, system: BaseSystem, policy: Policy, share: Any = 1.0):
        self.policy, self.share, self.system = prepare(policy, system), jnp.asarray(share, float), system

    @property
    def longest(self) -> int | None:
        """How many experiments it can remember."""
        return getattr(self.policy, "longest", None)

    @property
    def open_loop(self) -> bool:
        """Whether the policy looks at no outcome."""
        return looks_at_nothing(self.policy)

    def init(self) -> Any:
        """Return the carry of the policy."""
        return self.policy.init()

    @bound
    def step(
        self, key: jax.Array, carry: Any, y: Float[Array, " dy"], u_previous: Float[Array, " du"]
    ) -> tuple[Any, Float[Array, " du"]]:
        """Return its design, kept to limits."""
        carry, u = self.policy.step(key, carry, y, u_previous)
        rest = jnp.array(self.system.rest_design)
        wanted = rest + self.share * (u - rest)
        return carry, self.system.designs.clip(limits.slewed(self.system, wanted, u_previous))
