"""Policies that keep a belief of their own and choose each design by looking one experiment ahead."""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt32

from nestbed import belief as beliefs
from nestbed import checks, noise
from nestbed.belief.base import Belief, Record
from nestbed.errors import at_least_one
from nestbed.policies.base import Hashable, bound
from nestbed.system import BaseSystem


class Memory(NamedTuple):
    """What one trajectory has seen, and what that says about the parameters."""

    done: Int[Array, ""]  # experiments
    word: UInt32[Array, ""]  # stirred from all that was seen: what the belief's random numbers are drawn from
    record: Record  # of one trajectory
    belief: Any


class Adaptive(Hashable):
    """A belief that follows the experiments; subclasses choose the design.

    The belief's particles are drawn from a key of the policy's own and from what was seen, so that the carry follows
    from the trajectory alone.
    """

    belief: Belief = eqx.field(static=True)
    longest: int = eqx.field(static=True)  # experiments that the record holds
    words: UInt32[Array, " 2"]  # of the key: keys themselves cannot be pickled

    def __init__(
        self,
        system: BaseSystem,
        *,
        belief: str | Belief = "ibis",
        particles: int = 1024,
        moves: int = 3,
        horizon: int | None = None,
        key: jax.Array | None = None,
    ):
        checks.instance(system)
        self.longest = system.horizon if horizon is None else horizon
        at_least_one(horizon=self.longest)
        self.belief = beliefs.make(belief, system, particles, moves)
        self.words = jax.random.key_data(noise.as_key(jax.random.key(0) if key is None else key))

    @property
    def key(self) -> jax.Array:
        """The key that the belief's random numbers are drawn from."""
        return jax.random.wrap_key_data(self.words, impl="threefry2x32")

    def init(self) -> Memory:
        """Return the prior as the belief, and an empty record."""
        system = self.belief.system
        states = jnp.zeros((1, self.longest + 1, len(system.state_names)))
        designs = jnp.zeros((1, self.longest, len(system.design_names)))
        zero = jnp.zeros((), jnp.int32), jnp.zeros((), jnp.uint32)
        return Memory(*zero, Record(states, designs), self.belief.init(self.key, 1))

    @bound
    def step(
        self, key: jax.Array, carry: Memory, x: Float[Array, " dx"], u_previous: Float[Array, " du"]
    ) -> tuple[Memory, Float[Array, " du"]]:
        """Learn from the last experiment, then choose the next."""
        carry = self._observe(carry, x, u_previous)
        return carry._replace(done=carry.done + 1), self.choose(key, carry.belief, x, u_previous)

    @abstractmethod
    def choose(
        self, key: jax.Array, state: Any, x: Float[Array, " dx"], u_previous: Float[Array, " du"]
    ) -> Float[Array, " du"]:
        """Return the design for a belief of one trajectory."""

    def _observe(self, carry: Memory, x: Float[Array, " dx"], u_previous: Float[Array, " du"]) -> Memory:
        """Condition the belief on the outcome x of the last design; before the first experiment there is none."""
        t, before = carry.done, jnp.maximum(carry.done - 1, 0)
        record = Record(carry.record.states.at[0, t].set(x), carry.record.designs.at[0, before].set(u_previous))
        word = _stir(carry.word, x)
        updated, _ = self.belief.update(carry.belief, record.states[:, before], u_previous[None], x[None])
        state = jax.tree.map(lambda new, old: jnp.where(t > 0, new, old), updated, carry.belief)
        state, _ = self.belief.rejuvenate(jax.random.fold_in(self.key, word), state, record, t)
        return Memory(t, word, record, state)


def _stir(word: UInt32[Array, ""], x: Float[Array, " dx"]) -> UInt32[Array, ""]:
    """Mix the bits of a state into a word."""
    for part in jax.lax.bitcast_convert_type(x, jnp.uint32).ravel():
        word = (word ^ part) * jnp.uint32(0x9E3779B1)
        word = word ^ (word >> 15)
    return word
