"""Policies that keep a belief of their own and choose each design by looking one experiment ahead."""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt32

from nestbed import belief as beliefs
from nestbed.belief import learning
from nestbed.belief.base import Belief
from nestbed.belief.learning import Learner
from nestbed.likelihood.base import Record
from nestbed.model import checks
from nestbed.model.system import BaseSystem
from nestbed.numerics import noise
from nestbed.numerics.errors import at_least_one
from nestbed.policies.base import Hashable, bound


class Memory(NamedTuple):
    """What one trajectory has seen, and what that says about the parameters."""

    done: Int[Array, ""]  # experiments
    word: UInt32[Array, ""]  # stirred from all that was seen: what the belief's random numbers are drawn from
    learner: Learner  # of one record


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
        belief: str | Belief | None = "ibis",
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
        unseen = jnp.zeros((1, len(self.belief.system.observation_names)))
        learner = learning.start(self.key, self.belief, unseen, self.longest)
        return Memory(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.uint32), learner)

    @bound
    def step(
        self, key: jax.Array, carry: Memory, y: Float[Array, " dy"], u_previous: Float[Array, " du"]
    ) -> tuple[Memory, Float[Array, " du"]]:
        """Learn from the last experiment, then choose the next."""
        word = stir(carry.word, y)
        own_key = jax.random.fold_in(self.key, word)
        learner = self._learn(own_key, carry, y, u_previous)
        learner, _ = learning.rejuvenate(own_key, self.belief, learner, carry.done)
        return Memory(carry.done + 1, word, learner), self.choose(key, learner.belief, u_previous)

    @abstractmethod
    def choose(self, key: jax.Array, state: Any, u_previous: Float[Array, " du"]) -> Float[Array, " du"]:
        """Return the design for a belief of one record."""

    def _learn(self, key: jax.Array, carry: Memory, y: Float[Array, " dy"], u_previous: Float[Array, " du"]) -> Learner:
        """Take in y: the outcome of the last design, or the first observation, before any."""
        observations, designs = carry.learner.record
        begun = Learner(Record(observations.at[:, 0].set(y), designs), self.belief.begin(carry.learner.belief, y[None]))
        last = jnp.maximum(carry.done - 1, 0)
        observed, _, _ = learning.observe(key, self.belief, carry.learner, last, u_previous[None], y[None])
        return jax.tree.map(lambda new, first: jnp.where(carry.done > 0, new, first), observed, begun)


def stir(word: UInt32[Array, ""], y: Float[Array, " dy"]) -> UInt32[Array, ""]:
    """Mix the bits of an observation into a word."""
    for part in jax.lax.bitcast_convert_type(y, jnp.uint32).ravel():
        word = (word ^ part) * jnp.uint32(0x9E3779B1)
        word = word ^ (word >> 15)
    return word
