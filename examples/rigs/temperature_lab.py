"""The temperature-control lab: two heaters side by side, of which one is heated and its sensor read.

    nestbed run examples/rigs/temperature_lab.py:Lab --rig examples/rigs/temperature_lab.py:emulator
    nestbed run examples/rigs/temperature_lab.py:Lab --rig examples/rigs/temperature_lab.py:board

needs `pip install 'nestbed[tclab]'`; the second one needs the board itself.
"""

import numpyro.distributions as dist

import nestbed as nb

ROOM, HOTTEST = 21.0, 85.0
"""Temperatures in °C: of the emulator's room, and what the board must not exceed."""


class Lab(nb.System):
    """Heat flows from a heater to the room and to its neighbour; the sensor lags behind and is read in steps."""

    state = ("heater", "neighbour", "sensor")  # above the room's temperature
    designs = nb.Box(power=(0.0, 100.0))
    prior = {
        "gain": dist.LogNormal(-3.3, 0.4),
        "loss": dist.LogNormal(-3.0, 0.4),
        "exchange": dist.LogNormal(-4.6, 0.4),
        "lag": dist.LogNormal(-4.9, 0.4),
        "offset": dist.Normal(0.0, 0.2),
    }
    start = {"heater": dist.Normal(0.0, 0.3), "neighbour": dist.Normal(0.0, 0.3), "sensor": dist.Normal(0.0, 0.3)}
    sensors = {"temperature": 0.05}
    resolution = {"temperature": 0.3223}
    limits = {"heater": (None, HOTTEST - ROOM)}
    step, diffusion = 10.0, (0.01, 0.01, 0.002)
    units = {
        "time": "s",
        "heater": "K",
        "neighbour": "K",
        "sensor": "K",
        "temperature": "K",
        "power": "%",
        "gain": "K/(s %)",
        "loss": "1/s",
        "exchange": "1/s",
        "lag": "1/s",
        "offset": "K",
    }
    defaults = nb.Defaults(horizon=60)

    def drift(self, x, u, theta):
        """Return how fast heater, neighbour and sensor warm up."""
        flow = theta.exchange * (x.heater - x.neighbour)
        heater = theta.gain * u.power - theta.loss * x.heater - flow
        return heater, flow - theta.loss * x.neighbour, theta.lag * (x.heater - x.sensor)

    def observe(self, x, theta):
        """Return what is read: the room's temperature is known but for the steps of the first reading."""
        return x.sensor + theta.offset


def emulator(strength: float = 255.0) -> nb.rigs.TemperatureLab:
    """Return the package's emulator at its full strength, at which full power leads beyond 85 °C."""
    made = nb.rigs.TemperatureLab(emulated=True, seconds=Lab.step, ambient=ROOM)
    made.lab.P1 = strength
    return made


def board() -> nb.rigs.TemperatureLab:
    """Return the board itself, as it is plugged in."""
    return nb.rigs.TemperatureLab(seconds=Lab.step)
