"""The paper's myopic baseline: one experiment ahead, by the same potential that weights trajectories."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nestbed.belief.base import Belief
from nestbed.belief.potential import Potential
from nestbed.model.system import BaseSystem
from nestbed.numerics.errors import at_least_one
from nestbed.policies.adaptive import Adaptive


class Myopic(Adaptive):
    """Draw uniform designs, imagine one outcome of each, and sample a design by exp(η · (gain − penalties)).

    With the systems' own η and slew penalty this is what the paper's tables call Myopic: close to random designs,
    since one imagined outcome says little. `Greedy` maximises the expected gain itself.
    """

    potential: Potential
    candidates: int = eqx.field(static=True)

    def __init__(
        self,
        system: BaseSystem,
        candidates: int = 256,
        *,
        eta: float | None = None,
        slew_penalty: float | None = None,
        action_penalty: float = 0.0,
        belief: str | Belief | None = "ibis",
        particles: int = 1024,
        moves: int = 3,
        horizon: int | None = None,
        key: jax.Array | None = None,
    ):
        super().__init__(system, belief=belief, particles=particles, moves=moves, horizon=horizon, key=key)
        at_least_one(candidates=candidates)
        self.candidates = candidates
        self.potential = Potential.of(system, eta, slew_penalty, action_penalty)

    def choose(self, key: jax.Array, state: Any, u_previous: Float[Array, " du"]) -> Float[Array, " du"]:
        """Sample one of the candidates by its weight."""
        designs_key, outcomes_key, choice_key = jax.random.split(key, 3)
        box = self.belief.system.designs
        u = box.sample(designs_key, (self.candidates,))
        many = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.candidates, *leaf.shape[1:])), state)
        outcomes = self.belief.sample(outcomes_key, many, u)
        _, evidence = self.belief.update(many, u, outcomes)
        previous = jnp.broadcast_to(u_previous, u.shape)
        weights = self.potential.log(evidence.gain(self.belief.likelihood, "general"), u, previous)
        return u[jax.random.categorical(choice_key, weights)]
