"""Small systems with answers that can be computed by other means, and the statistics to compare with."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import nestbed as nb


class Leak(nb.System):
    """One state that leaks at an unknown positive rate: wide prior, little data, so coordinates matter."""

    state = ("level",)
    designs = nb.Box(flow=(-1.0, 1.0))
    prior = {"rate": dist.LogNormal(0.0, 0.7)}
    step, diffusion, noise_floor = 0.5, (0.5,), 0.0
    start = (1.0,)
    defaults = nb.Defaults(horizon=4, trajectories=8, particles=64)

    def drift(self, x, u, theta):
        return -theta.rate * x.level + u.flow


class LinearLeak(Leak):
    """The same with a Normal prior, so that its belief is exact."""

    prior = {"rate": dist.Normal(1.0, 0.7)}

    def features(self, x, u):
        return ((-x.level,),)


class Drive(nb.System):
    """One unknown gain of the input: an experiment is worth ½ log(1 + u²), whatever the state."""

    state = ("level",)
    designs = nb.Box(flow=(0.0, 4.0))
    prior = {"gain": dist.Normal(0.0, 1.0)}
    step, diffusion, noise_floor = 1.0, (1.0,), 0.0

    def drift(self, x, u, theta):
        return theta.gain * u.flow

    def features(self, x, u):
        return ((u.flow,),)


class Constant(eqx.Module):
    """The same design always."""

    u: jnp.ndarray

    def __init__(self, *u):
        self.u = jnp.array(u)

    def init(self):
        return None

    def step(self, key, carry, x, u_previous):
        return carry, self.u


class Counter(eqx.Module):
    """A policy whose carry sums the states seen, and whose design follows from it alone."""

    def init(self):
        return jnp.zeros(())

    def step(self, key, carry, x, u_previous):
        carry = carry + x[0]
        return carry, jnp.tanh(carry)[None]


TRAINING = nb.ScoreClimbingConfig(
    iterations=5,
    horizon=3,
    trajectories=12,
    particles=16,
    belief="exact",
    batch=8,
    eta=0.4,
    policy=nb.PolicyConfig(encoder=(6,), recurrent=(5,), head=(4,)),
)
"""Training small enough for a test, of one size for all of them: each new size compiles anew, and exact
beliefs compile fastest."""


def z_score(differences):
    """Return the mean of independent differences in units of its standard error."""
    differences = np.asarray(differences)
    return differences.mean(0) / (differences.std(0, ddof=1) / np.sqrt(len(differences)))
