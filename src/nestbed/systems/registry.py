"""The built-in systems, by name."""

from nestbed.numerics.registry import Entry, Registry

SYSTEMS = Registry(
    "built-in system",
    Entry("linear_pendulum", "nestbed.systems.pendulum:LinearPendulum", "small angles, linear in its parameters"),
    Entry("nonlinear_pendulum", "nestbed.systems.pendulum:NonlinearPendulum", "mass and length unknown"),
    Entry("cart_pole", "nestbed.systems.cart_pole:CartPole", "a pole on a cart that is pushed"),
    Entry("double_link", "nestbed.systems.double_link:DoubleLink", "a double pendulum with two motors"),
    Entry("encoder_pendulum", "nestbed.systems.pendulum:EncoderPendulum", "the nonlinear one, only its angle measured"),
    Entry("encoder_cart_pole", "nestbed.systems.cart_pole:EncoderCartPole", "the same cart, positions measured"),
    Entry("heater", "nestbed.systems.heater:Heater", "a heater seen through its sensor"),
)
