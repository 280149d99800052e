"""Any policy within a system's limits: scaled towards a calm design, and no faster than its slew."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nestbed.model import limits
from nestbed.model.system import BaseSystem
from nestbed.policies.base import Hashable, Policy, bound, looks_at_nothing, prepare


class Compliant(Hashable):
    """Another policy's designs, a share of the way from a calm one, changing no faster than the slew allows.

    The calm one is the rest design, 0 or the limit nearest to it, unless told.
    """

    policy: Any
    share: Float[Array, ""]
    towards: Float[Array, " du"]
    system: BaseSystem = eqx.field(static=True)

    def __init__(self, system: BaseSystem, policy: Policy, share: Any = 1.0, towards: Any = None):
        self.policy, self.share, self.system = prepare(policy, system), jnp.asarray(share, float), system
        self.towards = jnp.asarray(system.rest_design if towards is None else towards, float)

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
        wanted = self.towards + self.share * (u - self.towards)
        return carry, self.system.designs.clip(limits.slewed(self.system, wanted, u_previous))
