"""A tank with a pump and a leak at the bottom, both of unknown strength."""

import jax.numpy as jnp
import numpyro.distributions as dist

import nestbed as nb


class Tank(nb.System):
    """How wide is the tank, and how fast does it leak?"""

    state = ("level",)
    designs = nb.Box(pump=(0.0, 1.0))
    prior = {"area": dist.LogNormal(0.0, 0.2), "leak": dist.LogNormal(-1.0, 0.3)}
    step, diffusion = 0.5, (0.02,)
    start = (1.0,)
    units = {"time": "s", "level": "m", "pump": "m³/s", "area": "m²", "leak": "m²·⁵/s"}
    defaults = nb.Defaults(horizon=30)

    def drift(self, x, u, theta):
        """Return how fast the level rises: Torricelli's leak."""
        return (u.pump - theta.leak * jnp.sqrt(jnp.maximum(x.level, 0.0))) / theta.area
