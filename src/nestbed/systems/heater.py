"""The temperature-control lab: a heater with a temperature sensor glued to it, of which only the sensor is seen."""

from typing import Any

import numpyro.distributions as dist

from nestbed.model.box import Box
from nestbed.model.system import Defaults, System


class Heater(System):
    """Heat flows from the heater to the room and to its sensor, whose temperature is read in steps.

    Heat capacities are given by their inverses. From the power to what is seen there are three coefficients for the
    four parameters, so that one direction of them is known by the prior alone.
    """

    state = ("heater", "sensor")  # above the room's temperature
    designs = Box(power=(0.0, 100.0))
    prior = {
        "ua": dist.LogNormal(-3.2, 0.3),
        "ub": dist.LogNormal(-4.6, 0.3),
        "per_ch": dist.LogNormal(-1.8, 0.3),
        "per_cs": dist.LogNormal(1.7, 0.3),
    }
    start = {"heater": dist.Normal(0.0, 1.0), "sensor": dist.Normal(0.0, 1.0)}
    sensors = {"temperature": 0.05}
    resolution = {"temperature": 0.32}
    limits = {"heater": (None, 60.0)}
    integrator = "rk4"
    step, diffusion = 10.0, (0.01, 0.01)
    units = {
        "time": "s",
        "heater": "K",
        "sensor": "K",
        "temperature": "K",
        "power": "%",
        "ua": "W/K",
        "ub": "W/K",
        "per_ch": "K/J",
        "per_cs": "K/J",
    }
    defaults = Defaults(horizon=60)
    watts = 0.032  # of one per cent of power

    def drift(self, x: Any, u: Any, theta: Any) -> Any:
        """Return how fast heater and sensor warm up."""
        flow = theta.ub * (x.heater - x.sensor)
        return theta.per_ch * (self.watts * u.power - theta.ua * x.heater - flow), theta.per_cs * flow

    def observe(self, x: Any, theta: Any) -> Any:
        """Return the sensor's own temperature."""
        return x.sensor
