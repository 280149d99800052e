"""Small systems with answers that can be computed by other means, and the statistics to compare with."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import nestbed as nb


class Leak(nb.System):
    """One state that leaks at an unknown positive rate: wide prior, little data, so coordinates matter."""

    state = ("level",)
    designs = nb.Box(flow=(-1.0, 1.0))
    prior = {"rate": dist.LogNormal(0.0, 0.7)}
    step, diffusion, noise_floor, integrator = 0.5, (0.5,), 0.0, "euler"
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


class Follow(nb.System):
    """An input tells of the gain where it is near the level, which noise moves: best designs are the level itself.

    Then two experiments are worth ½ log(1 + 2 · 2²), whatever happens.
    """

    state = ("level",)
    designs = nb.Box(flow=(-4.0, 4.0))
    prior = {"gain": dist.Normal(0.0, 1.0)}
    step, diffusion, noise_floor, integrator = 1.0, (1.0,), 0.0, "euler"
    defaults = nb.Defaults(horizon=2)
    best = 0.5 * np.log(9.0)

    def drift(self, x, u, theta):
        return 2.0 * theta.gain * jnp.exp(-0.5 * (u.flow - x.level) ** 2)


class Bounded(nb.System):
    """A cart whose speed is limited, on a slew."""

    state = ("speed",)
    designs = nb.Box(force=(-4.0, 4.0))
    prior = {"drag": dist.LogNormal(0.0, 0.3), "drive": dist.LogNormal(0.0, 0.3)}
    step, diffusion = 0.2, (0.05,)
    limits = {"speed": (-1.0, 1.0)}
    slew = {"force": 3.0}
    defaults = nb.Defaults(horizon=12)

    def drift(self, x, u, theta):
        return theta.drive * u.force - theta.drag * x.speed


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


class Squared(nb.System):
    """Only the square of the parameter acts, so that its sign never shows: a posterior of two modes."""

    state = ("level",)
    designs = nb.Box(flow=(-1.0, 1.0))
    prior = {"root": dist.Normal(0.0, 1.0)}
    step, diffusion = 0.1, (0.3,)
    defaults = nb.Defaults(horizon=10)

    def drift(self, x, u, theta):
        return theta.root**2 * u.flow


class Banana(nb.System):
    """Only a + b² acts: a posterior like a banana."""

    state = ("level",)
    designs = nb.Box(flow=(-1.0, 1.0))
    prior = {"a": dist.Normal(0.0, 1.0), "b": dist.Normal(0.0, 1.0)}
    step, diffusion = 0.1, (0.1,)
    defaults = nb.Defaults(horizon=10)

    def drift(self, x, u, theta):
        return (theta.a + theta.b**2) * u.flow


def gains_by_quadrature(system, policy, count, points=300):
    """Return log p(z | θ₀) − log p(z) of simulated records, the latter from a grid over the Normal parameters."""
    from nestbed import likelihood as likelihoods
    from nestbed.evaluation import experiments
    from nestbed.likelihood import history
    from nestbed.policies.base import prepare

    ready = prepare(policy, system, system.horizon)
    theta, record = experiments.simulated(jax.random.key(99), system, ready, system.horizon, count)
    axis = np.linspace(-5.5, 5.5, points)
    grid = [values.ravel() for values in np.meshgrid(*[axis] * len(theta))]
    volume = np.log(axis[1] - axis[0]) * len(theta)
    log_prior = sum(d.log_prob(values) for d, values in zip(system.prior.values(), grid, strict=True)) + volume

    def likely(at):
        return history.log_likelihood(
            likelihoods.of(system), history.tabulate(record), jnp.asarray(system.horizon), at
        )[1]

    own = likely(tuple(value[:, None] for value in theta))[:, 0]
    total = likely(tuple(jnp.asarray(values)[None] for values in grid)) + log_prior
    return np.asarray(own - jax.nn.logsumexp(total, axis=1))


class Pair(nb.System):
    """Two gains, each of an input of its own, the first of both levels: linear, so that all is known in closed form."""

    state = ("a", "b")
    designs = nb.Box(push=(-2.0, 2.0), pull=(-2.0, 2.0))
    prior = {"ua": dist.Normal(1.0, 0.5), "ub": dist.Normal(-0.5, 0.8)}
    step, diffusion, noise_floor, integrator = 0.5, (0.6, 0.9), 0.0, "euler"
    defaults = nb.Defaults(horizon=4)

    def drift(self, x, u, theta):
        return theta.ua * u.push, theta.ub * u.pull + 0.4 * theta.ua * u.push

    def features(self, x, u):
        return (u.push, 0.0), (0.4 * u.push, u.pull)


INPUTS = np.array([[1.5, 0.2], [-0.7, 1.8], [0.4, -1.1], [2.0, 0.9]])
"""Designs of `Pair`."""


def pair_information(noise, inputs=INPUTS):
    """Return the information that records of `Pair` have about its gains, for steps whose noise has a covariance."""
    rows = [0.5 * np.array([[push, 0.0], [0.4 * push, pull]]) for push, pull in inputs]
    return sum(h.T @ np.linalg.solve(noise, h) for h in rows)


def pair_posterior(mean, covariance, noise, observations, inputs=INPUTS):
    """Return the mean and the covariance of the gains of `Pair` given one record."""
    precision = np.linalg.inv(covariance)
    score = precision @ mean
    for (push, pull), moved in zip(inputs, np.diff(np.asarray(observations), axis=0), strict=True):
        h = 0.5 * np.array([[push, 0.0], [0.4 * push, pull]])
        precision, score = precision + h.T @ np.linalg.solve(noise, h), score + h.T @ np.linalg.solve(noise, moved)
    return np.linalg.solve(precision, score), np.linalg.inv(precision)


class Draining(nb.System):
    """Two tanks in a row; the upper one runs empty while the pump rests, where √ is as steep as one likes."""

    state = ("upper", "lower")
    designs = nb.Box(pump=(0.0, 8.0))
    prior = {"out": dist.LogNormal(-1.0, 0.25), "off": dist.LogNormal(-1.2, 0.25)}
    start = {"upper": dist.Normal(4.0, 0.7), "lower": dist.Normal(4.0, 0.7)}
    sensors = {"level": 0.22}
    step, diffusion = 1.0, (0.02, 0.02)
    defaults = nb.Defaults(horizon=50)

    def drift(self, x, u, theta):
        first, second = (k * jnp.sqrt(jnp.maximum(h, 0.0)) for k, h in ((theta.out, x.upper), (theta.off, x.lower)))
        return 0.2 * u.pump - first, first - second

    def observe(self, x, theta):
        return x.lower
