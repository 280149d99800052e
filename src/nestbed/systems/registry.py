"""The built-in systems, by name."""

from nestbed.numerics.registry import Entry, Registry

SYSTEMS = Registry(
    "built-in system",
    Entry("linear_pendulum", "nestbed.systems.pendulum:LinearPendulum", "small angles, linear in its parameters"),
    Entry("nonlinear_pendulum", "nestbed.systems.pendulum:NonlinearPendulum", "mass and length unknown"),
    Entry("cart_pole", "nestbed.systems.cart_pole:CartPole", "a pole on a cart that is pushed"),
    Entry("double_link", "nestbed.systems.double_link:DoubleLink", "a double pendulum with two motors"),
)
