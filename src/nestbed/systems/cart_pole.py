"""A pole hung on a cart that a force pushes along a spring-loaded track."""

from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist

from nestbed.model.box import Box
from nestbed.model.system import Defaults, System


class CartPole(System):
    """The cart-pole; noise acts on the cart's velocity, so the pole is known up to the noise floor."""

    state = ("position", "angle", "velocity", "angular_velocity")
    designs = Box(force=(-5.0, 5.0))
    prior = {
        "length": dist.LogNormal(0.0, 0.1),
        "pole_mass": dist.LogNormal(0.0, 0.1),
        "cart_mass": dist.LogNormal(0.0, 0.1),
    }
    integrator = "euler"  # as published
    step, diffusion = 0.05, (0.0, 0.0, 0.1, 0.0)
    units = {
        "time": "s",
        "position": "m",
        "angle": "rad",
        "velocity": "m/s",
        "angular_velocity": "rad/s",
        "force": "N",
        "length": "m",
        "pole_mass": "kg",
        "cart_mass": "kg",
    }
    defaults = Defaults(
        particles=1024, eta=0.25, slew_penalty=0.1, penalty_units=(1.0,), learning_rate=5e-4, iterations=15
    )
    gravity = 9.81
    stiffness, damping = 0.01, 0.01  # of the track, linear
    hinge_stiffness, hinge_damping = 0.01, 0.01  # of the hinge, torsional

    def view(self, x: Any) -> Any:
        """Return what policies see: the state in its own units, as published."""
        return x

    def drift(self, x: Any, u: Any, theta: Any) -> Any:
        """Return the velocities and accelerations of cart and pole."""
        sine, cosine = jnp.sin(x.angle), jnp.cos(x.angle)
        track = self.stiffness * x.position + self.damping * x.velocity
        hinge = (self.hinge_stiffness * x.angle + self.hinge_damping * x.angular_velocity) * cosine
        swing = x.angular_velocity**2 * sine
        per_inertia = 1.0 / (theta.cart_mass + theta.pole_mass * sine**2)
        per_length = 1.0 / theta.length
        cart = (
            (u.force - track)
            - hinge * per_length
            + theta.pole_mass * (theta.length * swing + self.gravity * cosine * sine)
        ) * per_inertia
        pole = (
            -(u.force + track) * cosine
            - theta.pole_mass * theta.length * (swing * cosine)
            - (theta.cart_mass + theta.pole_mass) * (self.gravity * sine)
            - (hinge * cosine) * per_length
        ) * (per_inertia * per_length)
        return x.velocity, x.angular_velocity, cart, pole


class EncoderCartPole(CartPole):
    """The same, of which encoders show position and angle, to a millimetre and a milliradian; velocities are hidden."""

    sensors = {"position": 0.001, "angle": 0.001}
