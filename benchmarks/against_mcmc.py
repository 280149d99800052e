"""`nb.posterior` of heater records beside a long Markov chain on a likelihood that was written apart from nestbed.

    python benchmarks/against_mcmc.py RECORD.csv [RECORD.csv ...]

Each CSV has the columns Time, T1 (the temperature, of which the first is taken off) and Q1 (the power in per cent); a
posterior is made of each, and of all together. Here the filter is a Kalman filter of 2 × 2 matrices in numpy, its steps
exact: matrix exponentials of the drift, and the noise that they carry by Gauss–Legendre quadrature, where nestbed takes
a Runge–Kutta step and its slopes. The chains are random-walk Metropolis in log θ, with a covariance that is learned
from draws that are then thrown away.
"""

import sys
import time
from typing import NamedTuple

import jax
import numpy as np

import nestbed as nb
from nestbed.systems.heater import Heater

NAMES = ("ua", "ub", "per_ch", "per_cs")
CENTRE, SPREAD = np.array([-3.2, -4.6, -1.8, 1.7]), 0.3
WATTS, DIFFUSION, SENSOR, FLOOR = 0.032, 1e-4, 0.05**2 + 0.32**2 / 12.0, 1e-8
CHAINS, LEARNED, KEPT, KEYS = 32, 1500, 4000, 8


class Record(NamedTuple):
    """What one rig was given and showed."""

    times: np.ndarray  # (T+1)
    power: np.ndarray  # (T)
    temperature: np.ndarray  # (T+1), above the first

    @property
    def given(self):
        return self.temperature[:, None], self.power[:, None], self.times


class Chains(NamedTuple):
    """Draws of a posterior by several chains."""

    draws: np.ndarray  # (chains, kept, 4), of θ
    accepted: float

    @property
    def flat(self):
        return self.draws.reshape(-1, len(NAMES))

    @property
    def errors(self):
        """Standard errors of the means, by how far those of the chains lie apart."""
        return self.draws.mean(axis=1).std(axis=0, ddof=1) / np.sqrt(len(self.draws))

    @property
    def rhat(self):
        """Split R-hat of each parameter's logarithm."""
        halves = np.log(self.draws).reshape(2 * len(self.draws), -1, len(NAMES))
        within, between = halves.var(axis=1, ddof=1).mean(axis=0), halves.mean(axis=1).var(axis=0, ddof=1)
        return np.sqrt((halves.shape[1] - 1) / halves.shape[1] + between / within)


def read(path):
    columns = np.genfromtxt(path, delimiter=",", names=True)
    return Record(columns["Time"], columns["Q1"][:-1], columns["T1"] - columns["T1"][0])


def drift(theta):
    """Return the drift's matrix, (C, 2, 2), and what one per cent of power adds to it, (C, 2)."""
    ua, ub, per_ch, per_cs = theta.T
    rows = [[-per_ch * (ua + ub), per_ch * ub], [per_cs * ub, -per_cs * ub]]
    return np.moveaxis(np.array(rows), -1, 0), np.stack([WATTS * per_ch, 0.0 * per_ch], axis=-1)


def exponential(matrix, lengths):
    """Return exp(A s) for each of C matrices with real eigenvalues and each of K lengths, (K, C, 2, 2)."""
    half = 0.5 * np.trace(matrix, axis1=1, axis2=2)
    root = np.sqrt(half**2 - np.linalg.det(matrix))
    grow, s = np.exp(half * lengths[:, None]), root * lengths[:, None]
    off = matrix - half[:, None, None] * np.eye(2)
    return (grow * np.cosh(s))[..., None, None] * np.eye(2) + (grow * np.sinh(s) / root)[..., None, None] * off


def steps(theta, lengths):
    """Return how states move within each length: F, what a design adds, and the covariance of the noise."""
    matrix, push = drift(theta)
    moved = exponential(matrix, lengths)
    added = np.linalg.solve(matrix, ((moved - np.eye(2)) @ push[..., None]))[..., 0]
    nodes, weights = np.polynomial.legendre.leggauss(4)
    parts = [exponential(matrix, 0.5 * lengths * (1.0 + node)) for node in nodes]
    noise = sum(w * part @ np.swapaxes(part, -1, -2) for w, part in zip(weights, parts, strict=True))
    return moved, added, 0.5 * DIFFUSION * lengths[:, None, None, None] * noise + FLOOR * np.eye(2)


def log_likelihood(theta, record):
    """Return log p(all but the first temperature | θ), for each of C rows, by a Kalman filter."""
    lengths, which = np.unique(np.diff(record.times), return_inverse=True)
    moved, added, noise = steps(theta, lengths)
    covariance = np.broadcast_to(np.eye(2), (len(theta), 2, 2))
    mean, total = np.zeros((len(theta), 2)), np.zeros(len(theta))
    for t, y in enumerate(record.temperature):
        if t:
            step = which[t - 1]
            mean = np.einsum("cij,cj->ci", moved[step], mean) + added[step] * record.power[t - 1]
            covariance = moved[step] @ covariance @ np.swapaxes(moved[step], 1, 2) + noise[step]
        variance, off = covariance[:, 1, 1] + SENSOR, y - mean[:, 1]
        if t:
            total -= 0.5 * (np.log(2.0 * np.pi * variance) + off**2 / variance)
        gain = covariance[:, :, 1] / variance[:, None]
        mean = mean + gain * off[:, None]
        covariance = covariance - gain[:, :, None] * covariance[:, 1:, :]
    return total


def sampled(seed, records, chains=CHAINS, learned=LEARNED, kept=KEPT):
    """Return draws of the posterior: chains from all over the prior, led there by a rising power of the likelihood."""
    rng, size = np.random.default_rng(seed), len(NAMES)

    def measured(z):
        return -0.5 * (((z - CENTRE) / SPREAD) ** 2).sum(axis=1), sum(log_likelihood(np.exp(z), r) for r in records)

    z = CENTRE + SPREAD * rng.normal(size=(chains, size))
    prior, likely = measured(z)
    draws, accepted, factor = np.empty((chains, kept, size)), 0.0, None
    for n in range(learned + kept):
        power = min(1.0, 1e-3 * 1e3 ** (2.0 * n / learned))
        if n < learned:  # the difference of two other chains is a step as long as the posterior is wide
            one, other = (z[np.roll(rng.permutation(chains), 1)] for _ in range(2))
            move = rng.choice([2.38 / np.sqrt(2.0 * size), 0.3]) * (one - other) + 1e-4 * rng.normal(size=z.shape)
        else:
            factor = np.linalg.cholesky(np.cov(z.T) if factor is None else factor @ factor.T)
            move = 2.38 / np.sqrt(size) * rng.normal(size=z.shape) @ factor.T
        proposed = z + move
        new_prior, new_likely = measured(proposed)
        taken = np.log(rng.uniform(size=chains)) < new_prior - prior + power * (new_likely - likely)
        z, prior, likely = (
            np.where(taken[:, None], proposed, z),
            *np.where(taken, (new_prior, new_likely), (prior, likely)),
        )
        if n >= learned:
            draws[:, n - learned], accepted = np.exp(z), accepted + taken.mean() / kept
    return Chains(draws, accepted)


def inferred(records, keys=KEYS):
    """Return nestbed's posteriors of the records by several keys."""
    given = [list(part) for part in zip(*(record.given for record in records), strict=True)]
    keys = [jax.random.key(seed) for seed in range(keys)]
    return [nb.posterior(key, Heater(), given[0], given[1], times=given[2]) for key in keys]


def compared(found, chains):
    """Return for each parameter: mean and deviation of the first key and of the chains, and three differences of means.

    That of the first key in deviations and in errors of both, and that of all keys together in errors of both.
    """
    means, covariance = np.array([one.mean for one in found]), np.asarray(found[0].covariance)
    sd, other = np.sqrt(np.diagonal(covariance)), chains.flat.mean(axis=0)
    one = np.hypot(sd / np.sqrt(float(found[0].belief.ess)), chains.errors)
    every = np.hypot(means.std(axis=0, ddof=1) / np.sqrt(len(means)), chains.errors)
    off, together = means[0] - other, means.mean(axis=0) - other
    columns = NAMES, means[0], sd, other, chains.flat.std(axis=0), off / sd, off / one, together / sd, together / every
    return list(zip(*columns, strict=True))


def correlations(covariance):
    sd = np.sqrt(np.diagonal(covariance))
    return (covariance / np.outer(sd, sd))[np.tril_indices(len(sd), -1)]


def untold(chains):
    """Return the direction of log θ of which the data tell least, and the share of the prior's spread that is left."""
    left, directions = np.linalg.eigh(np.cov(np.log(chains.flat).T) / SPREAD**2)
    return np.sqrt(left), directions[:, -1] * np.sign(directions[-1, -1])


def main(paths):
    records = [read(path) for path in paths]
    sets = [(path.rsplit("/", 1)[-1], [record]) for path, record in zip(paths, records, strict=True)]
    for name, chosen in sets + ([("all together", records)] if len(records) > 1 else []):
        start = time.process_time()
        chains = sampled(0, chosen)
        seconds, found = time.process_time() - start, inferred(chosen)
        print(f"{name}: {len(chains.flat)} draws of {CHAINS} chains, R-hat {chains.rhat.max():.4f}, ", end="")
        print(f"{chains.accepted:.2f} accepted, {seconds:.0f} CPU s; nestbed's ESS {float(found[0].belief.ess):.0f}")
        print(f"  parameter        nestbed                 chains      off / sd  / errors   {KEYS} keys / sd  / errors")
        for row in compared(found, chains):
            print("  {:8} {:9.5g} ± {:8.3g}   {:9.5g} ± {:8.3g}   {:+7.3f} {:+10.2f} {:+13.3f} {:+10.2f}".format(*row))
        both = correlations(np.asarray(found[0].covariance)), correlations(np.cov(chains.flat.T))
        print("  correlations", *("  ".join(f"{value:+.3f}" for value in values) for values in both), sep="\n    ")
        left, direction = untold(chains)
        words = "  ".join(f"{weight:+.2f} log {name}" for weight, name in zip(direction, NAMES, strict=True))
        print(
            f"  left of the prior's spread {np.array2string(left, precision=4)}; least is told of {words}", flush=True
        )


if __name__ == "__main__":
    main(sys.argv[1:])
