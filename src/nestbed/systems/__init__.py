"""The built-in systems, by name: `load("cart_pole")`."""

from functools import cache

from nestbed.errors import NestbedError, did_you_mean
from nestbed.system import BaseSystem
from nestbed.systems.cart_pole import CartPole
from nestbed.systems.double_link import DoubleLink
from nestbed.systems.pendulum import LinearPendulum, NonlinearPendulum

CATALOGUE: dict[str, type[BaseSystem]] = {
    "linear_pendulum": LinearPendulum,
    "nonlinear_pendulum": NonlinearPendulum,
    "cart_pole": CartPole,
    "double_link": DoubleLink,
}

__all__ = ["CATALOGUE", "CartPole", "DoubleLink", "LinearPendulum", "NonlinearPendulum", "load"]


@cache
def load(name: str) -> BaseSystem:
    """Return the built-in system of that name, with the paper's settings as its defaults."""
    if name not in CATALOGUE:
        raise NestbedError(f"there is no built-in system {name!r}; {did_you_mean(str(name), CATALOGUE)}.")
    return CATALOGUE[name]()
