"""The greedy design: the one whose next outcome is expected to tell the most."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestbed.belief.base import Belief
from nestbed.model.system import BaseSystem
from nestbed.numerics.errors import at_least_one
from nestbed.policies.adaptive import Adaptive

ZOOM = 0.25
"""Each round searches a box this much smaller than the one before, around the best design so far."""
MARGIN = 0.1
"""Candidates are spread over a box larger by this share on each side and moved back to its limits: the best designs
often lie there."""


class Greedy(Adaptive):
    """Maximise the expected gain of the next experiment over the box: exactly for exact beliefs, else by `outcomes`.

    `rounds` of `candidates` evenly spread designs, each round in a smaller box around the best so far.
    """

    outcomes: int = eqx.field(static=True)
    rounds: int = eqx.field(static=True)
    spread: Float[Array, "C du"]  # candidates in a box of ±1

    def __init__(
        self,
        system: BaseSystem,
        candidates: int = 16,
        *,
        rounds: int = 3,
        outcomes: int = 32,
        belief: str | Belief | None = "ibis",
        particles: int = 256,
        moves: int = 3,
        horizon: int | None = None,
        key: jax.Array | None = None,
    ):
        super().__init__(system, belief=belief, particles=particles, moves=moves, horizon=horizon, key=key)
        at_least_one(candidates=candidates, rounds=rounds, outcomes=outcomes)
        self.outcomes, self.rounds = outcomes, rounds
        self.spread = jnp.array(_spread(candidates, len(system.design_names)))

    def choose(self, key: jax.Array, state: Any, u_previous: Float[Array, " du"]) -> Float[Array, " du"]:
        """Search the box."""
        box = self.belief.system.designs
        best, reach = jnp.zeros(len(box.names)), 1.0 + 2.0 * MARGIN
        for _ in range(self.rounds):
            unit = jnp.concatenate([best[None], (best + reach * self.spread).clip(-1.0, 1.0)])
            gains = self.belief.expected_gains(key, state, box.scale(unit)[None], self.outcomes)[0]
            best, reach = unit[jnp.argmax(gains)], ZOOM * reach
        return box.scale(best)


def _spread(count: int, dimensions: int) -> Float[np.ndarray, "C du"]:
    """Return evenly spread points in ±1: both ends included in one dimension, Halton's sequence in more."""
    if dimensions == 1:
        return np.linspace(-1.0, 1.0, max(count, 2))[:, None]
    from scipy.stats import qmc

    corners = np.array(np.meshgrid(*[(-1.0, 1.0)] * min(dimensions, 6))).reshape(min(dimensions, 6), -1).T
    corners = np.pad(corners, ((0, 0), (0, dimensions - corners.shape[1])))
    return np.concatenate([corners, 2.0 * qmc.Halton(dimensions, scramble=False).random(count) - 1.0])
