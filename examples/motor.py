"""A DC motor whose current settles within a millisecond, sampled every ten."""

import math

import numpyro.distributions as dist

import nestbed as nb


class Motor(nb.System):
    """Electrical and mechanical parameters from current and speed; stiff, so nestbed takes exponential steps."""

    state = ("current", "speed")
    designs = nb.Box(voltage=(-12.0, 12.0))
    prior = {
        "resistance": dist.LogNormal(0.0, 0.2),
        "torque_constant": dist.LogNormal(math.log(0.05), 0.2),
        "inertia": dist.LogNormal(math.log(2e-4), 0.3),
        "friction": dist.LogNormal(math.log(1e-4), 0.5),
    }
    step, diffusion = 0.01, (5.0, 20.0)
    units = {
        "time": "s",
        "current": "A",
        "speed": "rad/s",
        "voltage": "V",
        "resistance": "Ω",
        "torque_constant": "N m/A",
        "inertia": "kg m²",
        "friction": "N m s",
    }
    inductance = 1e-3  # H

    def time_constant(self, theta):
        """Return the seconds in which the speed settles: `--target time_constant` designs for it."""
        return theta.resistance * theta.inertia / theta.torque_constant**2

    def drift(self, x, u, theta):
        """Return how current and speed change."""
        current = (u.voltage - theta.resistance * x.current - theta.torque_constant * x.speed) / self.inductance
        return current, (theta.torque_constant * x.current - theta.friction * x.speed) / theta.inertia


class LimitedMotor(Motor):
    """The same with a top speed, and a supply that changes by 6 V at most from one sample to the next."""

    limits = {"speed": (-100.0, 100.0)}
    slew = {"voltage": 6.0}
