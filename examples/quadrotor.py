"""One axis of a quadrotor: height under its thrust, with rotors that lag and air that drags."""

import jax.numpy as jnp
import numpyro.distributions as dist

import nestbed as nb


class Quadrotor(nb.System):
    """Mass, drag, and the time that rotors need; thrust is commanded around hovering."""

    state = ("height", "velocity", "thrust")
    designs = nb.Box(command=(-5.0, 5.0))
    prior = {
        "mass": dist.LogNormal(0.0, 0.15),
        "drag": dist.LogNormal(-1.5, 0.4),
        "lag": dist.LogNormal(-2.0, 0.3),
    }
    step, diffusion = 0.05, (0.005, 0.1, 0.2)
    units = {
        "time": "s",
        "height": "m",
        "velocity": "m/s",
        "thrust": "N",
        "command": "N",
        "mass": "kg",
        "drag": "N s²/m²",
        "lag": "s",
    }

    def drift(self, x, u, theta):
        """Return the changes of height, velocity and thrust."""
        fall = (x.thrust - theta.drag * x.velocity * jnp.abs(x.velocity)) / theta.mass
        return x.velocity, fall, (u.command - x.thrust) / theta.lag
