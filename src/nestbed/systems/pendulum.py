"""A compound pendulum driven by a torque: linear in its lumped parameters, or nonlinear in mass and length."""

from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist

from nestbed.model.box import Box
from nestbed.model.system import Defaults, System


class LinearPendulum(System):
    """The pendulum in lumped parameters: gravity 3g/2l, damping 3d/ml² and drive 3/ml²."""

    state = ("angle", "velocity")
    designs = Box(torque=(-1.0, 1.0))
    prior = {
        "gravity": dist.Normal(14.7, 0.1**0.5),
        "damping": dist.Normal(0.0, 0.1),
        "drive": dist.Normal(3.0, 0.1**0.5),
    }
    integrator = "euler"  # as published
    step, diffusion = 0.05, (0.0, 0.1)
    units = {
        "time": "s",
        "angle": "rad",
        "velocity": "rad/s",
        "torque": "N m",
        "gravity": "1/s²",
        "damping": "1/s",
        "drive": "1/(kg m²)",
    }
    defaults = Defaults(slew_penalty=0.1, learning_rate=1e-3)

    def view(self, x: Any) -> Any:
        """Return what policies see: the state in its own units, as published."""
        return x

    def drift(self, x: Any, u: Any, theta: Any) -> Any:
        """Return the velocity and the angular acceleration."""
        acceleration = -theta.gravity * jnp.sin(x.angle) - theta.damping * x.velocity + theta.drive * u.torque
        return x.velocity, acceleration

    def features(self, x: Any, u: Any) -> Any:
        """Return the coefficient of each parameter in each state's drift."""
        return (0.0, 0.0, 0.0), (-jnp.sin(x.angle), -x.velocity, u.torque)


class NonlinearPendulum(System):
    """The pendulum in its mass and length."""

    state = ("angle", "velocity")
    designs = Box(torque=(-1.0, 1.0))
    prior = {"mass": dist.LogNormal(0.0, 0.1), "length": dist.LogNormal(0.0, 0.1)}
    integrator = "euler"  # as published
    step, diffusion = 0.05, (0.0, 0.1)
    units = {"time": "s", "angle": "rad", "velocity": "rad/s", "torque": "N m", "mass": "kg", "length": "m"}
    defaults = Defaults(slew_penalty=0.2, learning_rate=1e-3)
    gravity, friction = 9.81, 0.1

    def view(self, x: Any) -> Any:
        """Return what policies see: the state in its own units, as published."""
        return x

    def drift(self, x: Any, u: Any, theta: Any) -> Any:
        """Return the velocity and the angular acceleration of a uniform rod hung at one end."""
        swing = -1.5 * self.gravity / theta.length * jnp.sin(x.angle)
        drive = 3.0 * (u.torque - self.friction * x.velocity) / (theta.mass * theta.length**2)
        return x.velocity, swing + drive


class EncoderPendulum(NonlinearPendulum):
    """The same, of which an encoder shows the angle, to a milliradian; its velocity is hidden."""

    sensors = {"angle": 0.001}
