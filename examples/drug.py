"""A drug given by infusion that spreads into tissue and is cleared: two compartments."""

import numpyro.distributions as dist

import nestbed as nb


class Drug(nb.System):
    """Clearance, volumes and exchange of one patient, from concentrations in blood and tissue every half hour."""

    state = ("blood", "tissue")
    designs = nb.Box(infusion=(0.0, 100.0))
    prior = {
        "clearance": dist.LogNormal(1.6, 0.3),
        "volume": dist.LogNormal(2.3, 0.2),
        "exchange": dist.LogNormal(2.0, 0.3),
        "tissue_volume": dist.LogNormal(3.0, 0.3),
    }
    step, diffusion = 0.5, (0.3, 0.15)
    units = {
        "time": "h",
        "blood": "mg/l",
        "tissue": "mg/l",
        "infusion": "mg/h",
        "clearance": "l/h",
        "volume": "l",
        "exchange": "l/h",
        "tissue_volume": "l",
    }
    defaults = nb.Defaults(horizon=48)

    def drift(self, x, u, theta):
        """Return how the concentrations change."""
        across = theta.exchange * (x.blood - x.tissue)
        blood = (u.infusion - theta.clearance * x.blood - across) / theta.volume
        return blood, across / theta.tissue_volume
