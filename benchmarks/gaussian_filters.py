"""The extended Kalman filter of hidden states beside a plain cubature one, with particles for the truth.

python benchmarks/gaussian_filters.py [system ...]     # a few minutes each on two cores
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy import stats

import nestbed as nb
from nestbed.evaluation import experiments
from nestbed.likelihood import Kalman, Particle, history
from nestbed.likelihood.base import Record
from nestbed.model import integration, sensors
from nestbed.policies.base import prepare

RECORDS, DRAWS = 64, 64
TRUTH, STREAMS, JUDGE = 4096, 4, 2048
"""State particles at the true parameters, how often, and at draws of the posterior."""


class Squared(nb.System):
    """A level of unknown sign whose square is seen."""

    state = ("level",)
    designs = nb.Box(push=(-1.0, 1.0))
    prior = {"rate": dist.LogNormal(0.0, 0.3)}
    start = dist.Normal(0.5, 1.0)
    sensors = {"square": 0.3}
    step, diffusion, integrator = 0.5, (0.5,), "euler"
    defaults = nb.Defaults(horizon=30)

    def drift(self, x, u, theta):
        return -theta.rate * x.level + u.push

    def observe(self, x, theta):
        return x.level**2


SYSTEMS = {
    "encoder_pendulum": lambda: nb.systems.load("encoder_pendulum"),
    "encoder_cart_pole": lambda: nb.systems.load("encoder_cart_pole"),
    "double_link": lambda: nb.systems.load("double_link").replace(sensors={"angle_1": 0.001, "angle_2": 0.001}),
    "heater": lambda: nb.systems.load("heater"),
    "squared": Squared,
}


def root(matrix):
    """Return the lower Cholesky factor, 0 where nothing is unknown: known starts leave covariances singular."""
    rows = []
    for i in range(len(matrix)):
        row = []
        for j in range(i):
            rest = matrix[i, j] - sum(a * b for a, b in zip(row, rows[j], strict=False))
            row.append(jnp.where(rows[j][j] > 0.0, rest / jnp.where(rows[j][j] > 0.0, rows[j][j], 1.0), 0.0))
        own = jnp.maximum(matrix[i, i] - sum(value**2 for value in row), 0.0)
        rows.append([*row, jnp.sqrt(jnp.where(own > 0.0, own, 1.0)) * (own > 0.0)])
    return jnp.stack([jnp.stack([*row, *[jnp.zeros(())] * (len(matrix) - len(row))]) for row in rows])


def white(factor, rows):
    """Return L⁻¹ of each row, by substitution."""
    found = []
    for i in range(len(factor)):
        found.append((rows[:, i] - sum(factor[i, j] * each for j, each in enumerate(found))) / factor[i, i])
    return jnp.stack(found, axis=-1)


def cubature(system, observations, designs, theta):
    """Return log p of one record's observations after the first, for one parameter vector: dense, by 2 d points."""
    size, rest = len(system.state), jnp.asarray(system.rest_design)
    units = jnp.sqrt(float(size)) * jnp.concatenate([jnp.eye(size), -jnp.eye(size)])

    def points(mean, covariance):
        return mean + units @ root(covariance).T

    def moments(rows):
        mean = rows.mean(axis=0)
        return mean, (rows - mean).T @ (rows - mean) / len(rows)

    def predicted(mean, covariance, u):
        rows = jax.vmap(lambda x: jnp.stack(system.mean(tuple(x), tuple(u), theta)))(points(mean, covariance))
        at = theta if system.carries_noise else None
        entries = integration.noise(system, tuple(mean), tuple(u), theta, at=at).covariance
        centre, spread = moments(rows)
        return centre, spread + jnp.stack([jnp.stack([jnp.asarray(e, float) for e in row]) for row in entries])

    def corrected(mean, covariance, u, y):
        x = points(mean, covariance)
        rows = jax.vmap(lambda x: jnp.stack(sensors.seen(system, tuple(x), theta)))(x)
        expected, spread = moments(rows)
        own = jnp.stack([jnp.asarray(v, float) for v in sensors.variances(system, tuple(mean), tuple(u), theta)])
        factor = root(spread + jnp.diag(own))
        shared = white(factor, (x - mean).T @ (rows - expected) / len(rows))
        off = white(factor, (y - expected)[None])[0]
        log_density = -0.5 * jnp.sum(off**2 + jnp.log(2.0 * jnp.pi)) - jnp.sum(jnp.log(jnp.diagonal(factor)))
        return mean + shared @ off, covariance - shared @ shared.T, log_density

    def step(so_far, now):
        mean, covariance, log_density = corrected(*predicted(*so_far, now[0]), *now)
        return (mean, covariance), log_density

    start = np.array(sensors.start(system))
    mean, covariance, _ = corrected(jnp.asarray(start[:, 0]), jnp.diag(jnp.asarray(start[:, 1])), rest, observations[0])
    return jax.lax.scan(step, (mean, covariance), (designs, observations[1:]))[1].sum()


def by_cubature(system, record, theta):
    """Return log-densities of records (N) for parameters (N, M)."""
    each = jax.vmap(lambda y, u, theta: cubature(system, y, u, theta), (None, None, 0))
    return jax.vmap(each)(*record, theta)


def by_library(likelihood, record, theta):
    """Return the same by the library's own loop, one record after the other, so that particles fit into memory."""

    def one(row):
        y, u, theta = jax.tree.map(lambda leaf: leaf[None], row)
        return history.log_likelihood(likelihood, history.tabulate(Record(y, u)), jnp.asarray(u.shape[1]), theta)[1][0]

    return jax.lax.map(one, (*record, theta))


def by_extended(system, record, theta):
    """Return the same of all records at once."""
    table = history.tabulate(Record(*record))
    return history.log_likelihood(Kalman(system), table, jnp.asarray(record[1].shape[1]), theta)[1]


def weighed(log_weights, theta, truth):
    """Return means, deviations and ranks of the truth under weighted draws, and the draws' effective share."""
    weights = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    mean = np.einsum("nm,knm->kn", weights, theta)
    sd = np.sqrt(np.einsum("nm,knm->kn", weights, (theta - mean[:, :, None]) ** 2))
    ranks = np.einsum("nm,knm->kn", weights, theta < truth[:, :, None])
    return mean, sd, ranks, 1.0 / (weights**2).sum(axis=1).mean() / weights.shape[1]


def apart(system, record, theta):
    """Print how far the two filters are apart, at the true parameters and at others of the prior."""
    others = system.parameters.draw(jax.random.key(2), (RECORDS, 16))
    at = tuple(jnp.concatenate([own[:, None], other], axis=1) for own, other in zip(theta, others, strict=True))
    both = [np.asarray(jax.jit(each, static_argnums=0)(system, record, at)) for each in (by_extended, by_cubature)]
    far = np.abs(both[0] - both[1])
    print(f"  extended and cubature  {far[:, 0].mean():.2g} nats apart at the truth, {far[:, 1:].mean():.2g} elsewhere")


def at_the_truth(system, record, theta):
    """Print by how many nats each filter misses the density of records at their own parameters."""
    own = tuple(value[:, None] for value in theta)
    particles = system.replace(state_particles=TRUTH)
    streams = np.stack(
        [
            np.asarray(jax.jit(by_library, static_argnums=0)(Particle(particles, stream=i), record, own))[:, 0]
            for i in range(STREAMS)
        ]
    )
    truth = np.logaddexp.reduce(streams, axis=0) - np.log(STREAMS)
    print(f"  particles' own error   {streams.std(axis=0, ddof=1).mean() / STREAMS**0.5:8.3f} nats per record")
    for name, filtered in (("extended", by_extended), ("cubature", by_cubature)):
        missed = truth - np.asarray(jax.jit(filtered, static_argnums=0)(system, record, own))[:, 0]
        error = missed.std(ddof=1) / len(missed) ** 0.5
        print(
            f"  {name} misses       {missed.mean():8.3f} ± {error:.3f} nats per record, root mean square "
            f"{np.sqrt(np.mean(missed**2)):.3f}, most {np.abs(missed).max():.2f}"
        )


def over_the_posterior(system, record, theta):
    """Print how posteriors by each filter lie beside those by particles, and how the truth lies in each."""
    found = nb.posterior(jax.random.key(1), system, *record, particles=DRAWS)
    draws = tuple(jnp.asarray(value) for value in found.belief.theta)
    extended = np.asarray(jax.jit(by_extended, static_argnums=0)(system, record, draws))
    reference = np.asarray(found.belief.log_weights) - extended
    judge = Particle(system.replace(state_particles=JUDGE))
    logs = {
        "extended": extended,
        "cubature": np.asarray(jax.jit(by_cubature, static_argnums=0)(system, record, draws)),
        "particles": np.asarray(jax.jit(by_library, static_argnums=0)(judge, record, draws)),
    }
    values, truth = np.stack(draws), np.stack([np.asarray(value) for value in theta])
    seen = {name: weighed(reference + found, values, truth) for name, found in logs.items()}
    centre, width = seen["particles"][:2]
    for name, (mean, sd, ranks, share) in seen.items():
        off, z = (np.sqrt(np.mean(values**2)) for values in ((mean - centre) / width, (truth - mean) / sd))
        p = min(1.0, len(truth) * min(stats.kstest(row, "uniform").pvalue for row in ranks))
        print(
            f"  posterior by {name:9s} means off by {off:.3f} deviations, which are × "
            f"{np.exp(np.mean(np.log(sd / width))):.3f}; truth off by {z:.2f}, ranks p {p:.2g}, draws left {share:.2f}"
        )


def cost(system, record):
    """Print what a step of each filter costs, in one run."""
    theta = system.parameters.draw(jax.random.key(2), (RECORDS, 128))
    times = {}
    for name, filtered in (("extended", by_extended), ("cubature", by_cubature)):
        run = jax.jit(filtered, static_argnums=0)
        jax.block_until_ready(run(system, record, theta))
        rounds = []
        for _ in range(3):
            start = time.perf_counter()
            jax.block_until_ready(run(system, record, theta))
            rounds.append(time.perf_counter() - start)
        times[name] = min(rounds) / (RECORDS * 128 * record[1].shape[1]) * 1e9
    ratio = times["cubature"] / times["extended"]
    print(f"  ns per step            extended {times['extended']:.0f}, cubature {times['cubature']:.0f}: × {ratio:.1f}")


def main():
    for name in sys.argv[1:] or SYSTEMS:
        system = SYSTEMS[name]()
        policy = prepare(nb.policies.PRBS(system), system, system.horizon)
        theta, record = experiments.simulated(jax.random.key(0), system, policy, system.horizon, RECORDS)
        print(f"{name}, {RECORDS} records of {system.horizon} experiments", flush=True)
        for part in (apart, at_the_truth, over_the_posterior):
            part(system, tuple(record), theta)
            sys.stdout.flush()
        cost(system, tuple(record))


if __name__ == "__main__":
    main()
