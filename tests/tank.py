"""A system as a user would write it, for the command line to load."""

import numpyro.distributions as dist

import nestbed as nb


class Tank(nb.System):
    """A tank with a pump and a leak, both of unknown strength."""

    state = ("level",)
    designs = nb.Box(pump=(0.0, 1.0))
    prior = {"pump": dist.Normal(1.0, 0.3), "leak": dist.Normal(0.5, 0.2)}
    step, diffusion = 0.5, (0.1,)
    start = (1.0,)
    defaults = nb.Defaults(horizon=3, trajectories=8, particles=16, iterations=3)

    def drift(self, x, u, theta):
        """Return the change of the level."""
        return theta.pump * u.pump - theta.leak * x.level

    def features(self, x, u):
        """Return the coefficients of both parameters."""
        return ((u.pump, -x.level),)
