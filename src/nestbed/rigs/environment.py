"""Any system as a Gymnasium environment: designs are actions, gains are rewards."""

from typing import Any

import jax
import numpy as np

from nestbed.model.system import BaseSystem
from nestbed.rigs.base import extra
from nestbed.rigs.simulated import Simulated

try:
    import gymnasium
except ImportError:
    raise extra("gymnasium", "gymnasium") from None


class Environment(gymnasium.Env[Any, Any]):
    """A simulated rig of a system, whose parameters are drawn anew at every reset, as an environment.

    An action is a design, an observation what sensors show. The reward is 0: what an experiment gains hangs on a
    belief, which the environment has none of; `info["parameters"]` are the true ones, to judge by.
    """

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(self, system: BaseSystem, horizon: int | None = None):
        self.system, self.horizon = system, system.horizon if horizon is None else horizon
        low, high = np.array(system.designs.low), np.array(system.designs.high)
        self.action_space = gymnasium.spaces.Box(low, high, dtype=np.float64)
        shape = (len(system.observation_names),)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, shape, dtype=np.float64)
        self._done = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Draw a rig, or take the one whose parameters `options["theta"]` names."""
        super().reset(seed=seed)
        word = int(self.np_random.integers(2**31))
        self.rig = Simulated(self.system, jax.random.key(word), (options or {}).get("theta"))
        self._done = 0
        return self.rig.reset(), {"parameters": dict(self.rig.parameters)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Do one experiment."""
        y = self.rig.apply(self.system.designs.clip(np.asarray(action, float)))
        self._done += 1
        return y, 0.0, False, self._done >= self.horizon, {"parameters": dict(self.rig.parameters)}
