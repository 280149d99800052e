"""A robot's joint with a load, viscous and dry friction, under gravity."""

import jax.numpy as jnp
import numpyro.distributions as dist

import nestbed as nb


class Joint(nb.System):
    """Inertia, load and both kinds of friction; dry friction only shows while the joint moves, either way."""

    state = ("angle", "velocity")
    designs = nb.Box(torque=(-8.0, 8.0))
    prior = {
        "inertia": dist.LogNormal(-0.7, 0.2),
        "load": dist.LogNormal(1.0, 0.2),
        "viscous": dist.LogNormal(-0.7, 0.4),
        "dry": dist.LogNormal(-0.3, 0.4),
    }
    step, diffusion = 0.02, (0.002, 0.2)
    units = {
        "time": "s",
        "angle": "rad",
        "velocity": "rad/s",
        "torque": "N m",
        "inertia": "kg m²",
        "load": "N m",
        "viscous": "N m s/rad",
        "dry": "N m",
    }
    defaults = nb.Defaults(horizon=100)

    def drift(self, x, u, theta):
        """Return velocity and acceleration; the dry friction is smooth within 0.05 rad/s."""
        friction = theta.viscous * x.velocity + theta.dry * jnp.tanh(x.velocity / 0.05)
        return x.velocity, (u.torque - theta.load * jnp.sin(x.angle) - friction) / theta.inertia
