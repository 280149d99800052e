"""A MuJoCo model as a rig."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from nestbed.numerics.errors import NestbedError
from nestbed.rigs.base import extra


class Mujoco:
    """A model, as XML or the path of its file, whose controls are the designs.

    What is seen is what the model's own sensors show, or what `seen(data)` returns. `step` is the time of one
    experiment, a whole number of the model's own steps.
    """

    def __init__(
        self, model: str, step: float, *, seen: Callable[[Any], Any] | None = None, noise: float = 0.0, seed: int = 0
    ):
        try:
            import mujoco
        except ImportError:
            raise extra("mujoco", "mujoco") from None
        self._mujoco = mujoco
        text = model.lstrip().startswith("<")
        load = mujoco.MjModel.from_xml_string if text else mujoco.MjModel.from_xml_path
        self.model = load(model)
        self.data = mujoco.MjData(self.model)
        self.substeps = round(step / self.model.opt.timestep)
        if self.substeps < 1 or abs(self.substeps * self.model.opt.timestep - step) > 1e-9 * step:
            raise NestbedError(
                f"step = {step:g} is no whole number of the model's own steps of {self.model.opt.timestep:g}; change "
                "one of them."
            )
        if seen is None and not self.model.nsensor:
            raise NestbedError("the model has no sensors; add some, or say by seen=... what is seen of its data.")
        self.seen = seen or (lambda data: data.sensordata)
        self.noise, self._random = noise, np.random.default_rng(seed)

    def reset(self) -> Float[np.ndarray, " dy"]:
        """Bring the model to its start."""
        self._mujoco.mj_resetData(self.model, self.data)
        self._mujoco.mj_forward(self.model, self.data)
        return self._shown()

    def apply(self, u: Any) -> Float[np.ndarray, " dy"]:
        """Hold the controls for one experiment."""
        self.data.ctrl[:] = np.asarray(u, float).reshape(-1)
        for _ in range(self.substeps):
            self._mujoco.mj_step(self.model, self.data)
        self._mujoco.mj_forward(self.model, self.data)  # else sensors show what was before the last of the steps
        return self._shown()

    def _shown(self) -> Float[np.ndarray, " dy"]:
        values = np.array(self.seen(self.data), float).reshape(-1)
        return values + self.noise * self._random.standard_normal(values.shape)
