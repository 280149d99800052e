"""Any Gymnasium environment with continuous actions as a rig."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from nestbed.numerics.errors import NestbedError
from nestbed.rigs.base import extra


class Gymnasium:
    """An environment, or its name, whose actions are the designs and whose observations are what is seen.

    `seen` makes of an observation what the sensors show, in their order; by default all of it. `scale` makes an
    action of a design; by default it is one. An episode that ends is told by `ended`: what is seen after it is NaN.
    """

    def __init__(
        self,
        environment: Any,
        *,
        seed: int = 0,
        seen: Callable[[Any], Any] = np.ravel,
        scale: Callable[[Any], Any] = np.asarray,
        **settings: Any,
    ):
        try:
            import gymnasium
        except ImportError:
            raise extra("gymnasium", "gymnasium") from None
        self.environment = gymnasium.make(environment, **settings) if isinstance(environment, str) else environment
        space = self.environment.action_space
        if not isinstance(space, gymnasium.spaces.Box):
            raise NestbedError(
                f"the actions of {self.environment} are {space}, but a rig needs continuous ones, a Box; choose "
                "another environment."
            )
        self.space = space
        self.seed, self.seen, self.scale, self.ended = seed, seen, scale, False

    def reset(self) -> Float[np.ndarray, " dy"]:
        """Start an episode."""
        observation, _ = self.environment.reset(seed=self.seed)
        self.ended = False
        return self._shown(observation)

    def apply(self, u: Any) -> Float[np.ndarray, " dy"]:
        """Do one step."""
        if self.ended:
            return np.full_like(self._last, np.nan)
        space = self.space
        action = np.clip(np.reshape(self.scale(u), space.shape), space.low, space.high).astype(space.dtype)
        observation, _, terminated, truncated, _ = self.environment.step(action)
        self.ended = bool(terminated or truncated)
        return self._shown(observation)

    def close(self) -> None:
        """Let the environment go."""
        self.environment.close()

    def _shown(self, observation: Any) -> Float[np.ndarray, " dy"]:
        self._last = np.asarray(self.seen(observation), float).reshape(-1)
        return self._last
