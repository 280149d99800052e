"""An epidemic in a closed population, where contacts can be reduced."""

import jax.numpy as jnp
import numpyro.distributions as dist

import nestbed as nb


class Epidemic(nb.System):
    """How fast it spreads, how long people are ill: from shares of the population, week by week."""

    state = ("susceptible", "infected")
    designs = nb.Box(distancing=(0.0, 0.9))
    prior = {"transmission": dist.LogNormal(0.4, 0.3), "recovery": dist.LogNormal(-0.5, 0.3)}
    step, diffusion = 0.5, (0.004, 0.004)
    start = (0.95, 0.05)
    units = {"time": "week", "distancing": "share of contacts", "transmission": "1/week", "recovery": "1/week"}
    defaults = nb.Defaults(horizon=40)

    def drift(self, x, u, theta):
        """Return the flows of the SIR model."""
        infected = jnp.maximum(x.infected, 0.0)
        new = theta.transmission * (1.0 - u.distancing) * jnp.maximum(x.susceptible, 0.0) * infected
        return -new, new - theta.recovery * x.infected
