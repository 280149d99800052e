"""A cooled stirred tank with an exothermic first-order reaction."""

import jax.numpy as jnp
import numpyro.distributions as dist

import nestbed as nb


class Reactor(nb.System):
    """Rate, activation and heat of the reaction; flow and cooling are chosen."""

    state = ("concentration", "temperature")
    designs = nb.Box(flow=(0.2, 2.0), cooling=(-15.0, 15.0))
    prior = {
        "rate": dist.LogNormal(-0.5, 0.3),
        "activation": dist.LogNormal(2.0, 0.2),
        "heat": dist.LogNormal(2.5, 0.2),
        "transfer": dist.LogNormal(-0.5, 0.3),
    }
    step, diffusion = 0.2, (0.01, 0.3)
    start = (0.5, 0.0)
    units = {
        "time": "min",
        "concentration": "mol/l",
        "temperature": "K above feed",
        "flow": "1/min",
        "cooling": "K",
        "rate": "1/min",
        "activation": "1",
        "heat": "K l/mol",
        "transfer": "1/min",
    }
    feed, reference = 1.0, 300.0  # mol/l, K

    def drift(self, x, u, theta):
        """Return the balances of substance and heat."""
        speed = jnp.exp(theta.activation * x.temperature / (self.reference + x.temperature))
        reacted = theta.rate * speed * x.concentration
        concentration = u.flow * (self.feed - x.concentration) - reacted
        cooled = theta.transfer * (x.temperature - u.cooling)
        return concentration, theta.heat * reacted - u.flow * x.temperature - cooled


class LimitedReactor(Reactor):
    """The same, never hotter than 8 K above its feed."""

    limits = {"temperature": (None, 8.0)}
