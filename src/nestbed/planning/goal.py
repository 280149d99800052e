"""What inputs are sought for, and what they are worth to that end."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Shaped

from nestbed.information import search
from nestbed.model.system import BaseSystem
from nestbed.model.target import Target


class Goal(NamedTuple):
    """The system, how long, what about, and how sure to keep to limits."""

    system: BaseSystem
    horizon: int
    target: Target | None
    risk: float

    def scored(
        self, key: jax.Array, unit: Shaped[Any, "K T du"], rigs: int, margin: float = 0.0
    ) -> Float[np.ndarray, " K"]:
        """Return the expected gain of sequences on common rigs, less their fine."""
        return search.score(key, self.system, unit, self.target, rigs, margin)
