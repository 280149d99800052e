"""The pendulum of Gymnasium as a rig: how heavy and how long it is, is to be found out by pushing it.

    nestbed run examples/rigs/gymnasium_pendulum.py:GymPendulum --rig examples/rigs/gymnasium_pendulum.py:rig

needs `pip install 'nestbed[gymnasium]'`.
"""

import math

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import nestbed as nb

NOISE = (0.01, 0.05)
"""Standard deviations of what is read of angle and velocity, in rad and rad/s."""


class GymPendulum(nb.System):
    """A rod, upright at angle 0, that a weak motor turns; stepped as the environment does it."""

    state = ("angle", "velocity")
    designs = nb.Box(torque=(-2.0, 2.0))
    prior = {"mass": dist.LogNormal(0.0, 0.3), "length": dist.LogNormal(0.0, 0.2)}
    start = {"angle": dist.Normal(0.0, 2.0), "velocity": dist.Normal(0.0, 1.0)}
    sensors = {"angle": NOISE[0], "velocity": NOISE[1]}
    step, diffusion, integrator = 0.05, (0.0, 0.01), "euler"
    units = {"time": "s", "angle": "rad", "velocity": "rad/s", "torque": "N m", "mass": "kg", "length": "m"}
    defaults = nb.Defaults(horizon=40)

    def drift(self, x, u, theta):
        """Return velocity and acceleration; the environment moves on with the velocity that is reached in the end."""
        fall = 15.0 / theta.length * jnp.sin(x.angle)
        acceleration = fall + 3.0 / (theta.mass * theta.length**2) * u.torque
        return x.velocity + self.step * acceleration, acceleration


class Reading:
    """What is read of the environment's cosine, sine and velocity: an angle that does not jump, and noise."""

    def __init__(self, seed: int):
        self.random, self.angle = np.random.default_rng(seed), 0.0

    def __call__(self, observation):
        """Return angle and velocity."""
        cosine, sine, velocity = map(float, observation)
        turn = math.remainder(math.atan2(sine, cosine) - self.angle, 2.0 * math.pi)
        self.angle += turn
        return np.array([self.angle, velocity]) + NOISE * self.random.standard_normal(2)


def rig(mass: float = 1.2, length: float = 0.9, seed: int = 0) -> nb.rigs.Gymnasium:
    """Return a pendulum with these parameters, which the session does not know."""
    made = nb.rigs.Gymnasium("Pendulum-v1", seed=seed, seen=Reading(seed))
    made.environment.unwrapped.m, made.environment.unwrapped.l = mass, length
    return made
