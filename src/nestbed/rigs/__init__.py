"""Rigs to run experiments on: any object with `reset() → y`, `apply(u) → y` and, if it must be let go, `close()`."""

from typing import TYPE_CHECKING, Any

from nestbed.numerics.lazy import exported

if TYPE_CHECKING:
    from nestbed.rigs.base import Rig
    from nestbed.rigs.environment import Environment
    from nestbed.rigs.gymnasium import Gymnasium
    from nestbed.rigs.mujoco import Mujoco
    from nestbed.rigs.simulated import Simulated
    from nestbed.rigs.tclab import TemperatureLab

_HOMES = {
    "Environment": "environment",
    "Gymnasium": "gymnasium",
    "Mujoco": "mujoco",
    "Rig": "base",
    "Simulated": "simulated",
    "TemperatureLab": "tclab",
}

__all__ = ["Environment", "Gymnasium", "Mujoco", "Rig", "Simulated", "TemperatureLab"]


def __getattr__(name: str) -> Any:
    return exported(__name__, name, _HOMES)


def __dir__() -> list[str]:
    return __all__
