"""A mass on a spring that hardens: Duffing's oscillator."""

import numpyro.distributions as dist

import nestbed as nb


class Spring(nb.System):
    """Linear and cubic stiffness, and damping; large swings are needed to see the cubic part."""

    state = ("place", "velocity")
    designs = nb.Box(force=(-2.0, 2.0))
    prior = {
        "stiffness": dist.LogNormal(1.0, 0.3),
        "hardening": dist.LogNormal(0.0, 0.5),
        "damping": dist.LogNormal(-1.5, 0.4),
    }
    step, diffusion = 0.1, (0.005, 0.1)
    units = {
        "time": "s",
        "place": "m",
        "velocity": "m/s",
        "force": "N/kg",
        "stiffness": "1/s²",
        "hardening": "1/(m² s²)",
        "damping": "1/s",
    }
    defaults = nb.Defaults(horizon=60)

    def drift(self, x, u, theta):
        """Return velocity and acceleration."""
        pull = theta.stiffness * x.place + theta.hardening * x.place**3
        return x.velocity, u.force - pull - theta.damping * x.velocity
