"""The built-in systems, by name: `load("cart_pole")`."""

from typing import TYPE_CHECKING, Any

from nestbed.numerics.lazy import exported
from nestbed.systems.registry import SYSTEMS

if TYPE_CHECKING:
    from nestbed.systems.cart_pole import CartPole, EncoderCartPole
    from nestbed.systems.double_link import DoubleLink
    from nestbed.systems.heater import Heater
    from nestbed.systems.loading import load, name_of
    from nestbed.systems.pendulum import EncoderPendulum, LinearPendulum, NonlinearPendulum

_HOMES = {
    "CartPole": "cart_pole",
    "DoubleLink": "double_link",
    "EncoderCartPole": "cart_pole",
    "EncoderPendulum": "pendulum",
    "Heater": "heater",
    "LinearPendulum": "pendulum",
    "NonlinearPendulum": "pendulum",
    "load": "loading",
    "name_of": "loading",
}

__all__ = [
    "SYSTEMS",
    "CartPole",
    "DoubleLink",
    "EncoderCartPole",
    "EncoderPendulum",
    "Heater",
    "LinearPendulum",
    "NonlinearPendulum",
    "load",
    "name_of",
]


def __getattr__(name: str) -> Any:
    return exported(__name__, name, _HOMES)


def __dir__() -> list[str]:
    return __all__
