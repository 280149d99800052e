"""The built-in systems, by name: `load("cart_pole")`."""

from typing import TYPE_CHECKING, Any

from nestbed.numerics.lazy import exported
from nestbed.systems.registry import SYSTEMS

if TYPE_CHECKING:
    from nestbed.systems.cart_pole import CartPole
    from nestbed.systems.double_link import DoubleLink
    from nestbed.systems.loading import load, name_of
    from nestbed.systems.pendulum import LinearPendulum, NonlinearPendulum

_HOMES = {
    "CartPole": "cart_pole",
    "DoubleLink": "double_link",
    "LinearPendulum": "pendulum",
    "NonlinearPendulum": "pendulum",
    "load": "loading",
    "name_of": "loading",
}

__all__ = ["SYSTEMS", "CartPole", "DoubleLink", "LinearPendulum", "NonlinearPendulum", "load", "name_of"]


def __getattr__(name: str) -> Any:
    return exported(__name__, name, _HOMES)


def __dir__() -> list[str]:
    return __all__
