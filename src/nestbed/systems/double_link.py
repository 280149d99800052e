"""Two links with a motor at each joint."""

from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist

from nestbed.model.box import Box
from nestbed.model.system import Defaults, System


class DoubleLink(System):
    """A double pendulum of point masses; the second angle is measured from the first link."""

    state = ("angle_1", "angle_2", "velocity_1", "velocity_2")
    designs = Box(torque_1=(-4.0, 4.0), torque_2=(-2.0, 2.0))
    prior = {
        "mass_1": dist.LogNormal(0.0, 0.1),
        "mass_2": dist.LogNormal(0.0, 0.1),
        "length_1": dist.LogNormal(0.0, 0.1),
        "length_2": dist.LogNormal(0.0, 0.1),
    }
    integrator = "euler"  # as published
    step, diffusion = 0.05, (0.0, 0.0, 0.1, 0.1)
    units = {
        "time": "s",
        "angle_1": "rad",
        "angle_2": "rad",
        "velocity_1": "rad/s",
        "velocity_2": "rad/s",
        "torque_1": "N m",
        "torque_2": "N m",
        "mass_1": "kg",
        "mass_2": "kg",
        "length_1": "m",
        "length_2": "m",
    }
    defaults = Defaults(eta=0.25, slew_penalty=0.1, penalty_units=(1.0, 1.0), learning_rate=5e-4)
    gravity, friction = 9.81, 0.1

    def view(self, x: Any) -> Any:
        """Return what policies see: the state in its own units, as published."""
        return x

    def drift(self, x: Any, u: Any, theta: Any) -> Any:
        """Return velocities and accelerations, solving the 2 × 2 inertia matrix by hand."""
        sine_2, cosine_2 = jnp.sin(x.angle_2), jnp.cos(x.angle_2)
        sine_1, sine_12 = jnp.sin(x.angle_1), jnp.sin(x.angle_1 + x.angle_2)
        inertia_2 = theta.mass_2 * theta.length_2**2
        coupling = theta.mass_2 * theta.length_1 * theta.length_2
        total = (theta.mass_1 + theta.mass_2) * theta.length_1

        cross = inertia_2 + coupling * cosine_2
        inertia_1 = total * theta.length_1 + cross + coupling * cosine_2
        determinant = inertia_1 * inertia_2 - cross**2

        weight_2 = theta.mass_2 * theta.length_2 * (self.gravity * sine_12)
        weight_1 = total * (self.gravity * sine_1) + weight_2
        whirl_1 = coupling * ((2.0 * x.velocity_1 + x.velocity_2) * x.velocity_2 * sine_2)
        whirl_2 = coupling * (x.velocity_1**2 * sine_2)
        torque_1 = u.torque_1 - self.friction * x.velocity_1 - weight_1 + whirl_1
        torque_2 = u.torque_2 - self.friction * x.velocity_2 - weight_2 - whirl_2

        scale = 1.0 / determinant
        acceleration_1 = (inertia_2 * torque_1 - cross * torque_2) * scale
        acceleration_2 = (inertia_1 * torque_2 - cross * torque_1) * scale
        return x.velocity_1, x.velocity_2, acceleration_1, acceleration_2
