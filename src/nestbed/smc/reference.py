"""The trajectory a conditional sweep must keep, with its beliefs."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from nestbed.belief.base import Belief
from nestbed.model.system import BaseSystem
from nestbed.numerics.errors import NestbedError


class Step(NamedTuple):
    """What the reference pins in the first slot during one experiment."""

    belief: Any  # compressed, before the experiment
    design: Float[Array, " du"]
    observation: Float[Array, " dy"]  # the outcome
    after: Any  # the belief that the outcome left, where that was drawn at random


class Reference(eqx.Module):
    """A trajectory z₀:T and the belief it had before each experiment."""

    observations: Float[Array, "T1 dy"]
    designs: Float[Array, "T du"]
    beliefs: Any  # leaves lead with the time axis (T)
    last: Any  # the belief after the last experiment, where that was drawn at random, else None
    system: BaseSystem = eqx.field(static=True)
    belief_kind: str = eqx.field(static=True)

    def steps(self) -> Step:
        """Return the reference cut into experiments, time first."""
        after = None
        if self.last is not None:
            after = jax.tree.map(lambda all, last: jnp.concatenate([all[1:], last[None]]), self.beliefs, self.last)
        return Step(self.beliefs, self.designs, self.observations[1:], after)

    def check(self, system: BaseSystem, belief: Belief, horizon: int) -> None:
        """Raise unless this reference fits a sweep of that system, belief and horizon."""
        if self.system != system:
            other = "another variant of it" if self.system.name == system.name else self.system.name
            raise NestbedError(
                f"the reference comes from {other}, but the sweep is of {system.name}; take the reference from a "
                "sweep of the same system."
            )
        if self.designs.shape[0] != horizon:
            raise NestbedError(
                f"the reference has {self.designs.shape[0]} experiments, but the horizon is {horizon}; take the "
                "reference from a sweep with the same horizon."
            )
        wanted = jax.eval_shape(lambda: belief.compress(_prior(belief)))
        got = [leaf.shape[1:] for leaf in jax.tree.leaves(self.beliefs)]
        if self.belief_kind != belief.kind or got != [leaf.shape[1:] for leaf in jax.tree.leaves(wanted)]:
            raise NestbedError(
                f"the reference keeps {self.belief_kind!r} beliefs of shapes {got}, but the sweep's belief is "
                f"{belief.kind!r} and needs {[leaf.shape[1:] for leaf in jax.tree.leaves(wanted)]}; take the reference "
                "from a sweep with the same belief and particles."
            )


def genealogy(stored: Any, ancestors: Int[Array, "T N"], chosen: Int[Array, ""]) -> Any:
    """Follow one trajectory's ancestors back and return its beliefs, time first."""

    def back(slot: Int[Array, ""], sources: Int[Array, " N"]) -> tuple[Int[Array, ""], Int[Array, ""]]:
        return sources[slot], slot

    _, slots = jax.lax.scan(back, chosen.astype(jnp.int32), ancestors, reverse=True)
    times = jnp.arange(ancestors.shape[0])
    return jax.tree.map(lambda leaf: leaf[times, slots], stored)


def blank(belief: Belief, horizon: int) -> Reference:
    """Return a reference of zeros, of the shapes that a sweep's has."""
    system = belief.system
    stored = jax.tree.map(
        lambda leaf: jnp.zeros((horizon, *leaf.shape[1:]), leaf.dtype), belief.compress(_prior(belief))
    )
    last = jax.tree.map(lambda leaf: leaf[0], stored) if belief.refreshes else None
    observations = jnp.zeros((horizon + 1, len(system.observation_names)))
    designs = jnp.zeros((horizon, len(system.design_names)))
    return Reference(observations, designs, stored, last, system, belief.kind)


def _prior(belief: Belief) -> Any:
    """Return the belief of one record of which nothing was seen."""
    return belief.init(jax.random.key(0), jnp.zeros((1, len(belief.system.observation_names))))
