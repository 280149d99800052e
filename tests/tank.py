"""A system as a user would write it, for the command line to load."""

import jax.numpy as jnp
import numpyro.distributions as dist

import nestbed as nb


class Tank(nb.System):
    """A tank with a pump and a leak."""

    state = ("level",)
    designs = nb.Box(pump=(0.0, 1.0))
    prior = {"area": dist.LogNormal(0.0, 0.2), "leak": dist.LogNormal(-1.0, 0.3)}
    step, diffusion = 0.5, (0.02,)
    start = (1.0,)
    defaults = nb.Defaults(horizon=3, trajectories=8, particles=16, iterations=3)

    def drift(self, x, u, theta):
        """Return the change of the level."""
        return (u.pump - theta.leak * jnp.sqrt(jnp.maximum(x.level, 0.0))) / theta.area
