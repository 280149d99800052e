"""The paper's myopic baseline: one experiment ahead, by the same potential that weights trajectories."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nestbed import noise
from nestbed.belief.base import Belief
from nestbed.errors import at_least_one, at_least_zero
from nestbed.policies.adaptive import Adaptive
from nestbed.smc.potential import Potential
from nestbed.system import BaseSystem


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
        belief: str | Belief = "ibis",
        particles: int = 1024,
        moves: int = 3,
        horizon: int | None = None,
        key: jax.Array | None = None,
    ):
        super().__init__(system, belief=belief, particles=particles, moves=moves, horizon=horizon, key=key)
        at_least_one(candidates=candidates)
        defaults = system.defaults
        terms = {
            "eta": defaults.eta if eta is None else eta,
            "slew_penalty": defaults.slew_penalty if slew_penalty is None else slew_penalty,
            "action_penalty": action_penalty,
        }
        at_least_zero(**terms)
        self.candidates = candidates
        self.potential = Potential(**{name: jnp.asarray(value, float) for name, value in terms.items()})

    def choose(
        self, key: jax.Array, state: Any, x: Float[Array, " dx"], u_previous: Float[Array, " du"]
    ) -> Float[Array, " du"]:
        """Sample one of the candidates by its weight."""
        designs_key, outcomes_key, choice_key = jax.random.split(key, 3)
        box = self.belief.system.designs
        low, high = jnp.array(box.low), jnp.array(box.high)
        u = low + (high - low) * noise.uniforms(designs_key, (self.candidates, len(box.names)))
        many = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.candidates, *leaf.shape[1:])), state)
        now, previous = (jnp.broadcast_to(row, (self.candidates, *row.shape)) for row in (x, u_previous))
        outcomes = self.belief.sample(outcomes_key, many, now, u)
        _, evidence = self.belief.update(many, now, u, outcomes)
        weights = self.potential.log(evidence.gain(self.belief.system, "general"), u, previous)
        return u[jax.random.categorical(choice_key, weights)]
