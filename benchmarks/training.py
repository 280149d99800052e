"""Seconds per training iteration at the paper's settings, split into sweep, gradient and evaluation.

The history likelihoods of the last sweep are done once more by themselves, as many and as long, to tell their share.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np

import nestbed as nb
from nestbed import likelihood as likelihoods
from nestbed.belief import ibis
from nestbed.likelihood import history
from nestbed.likelihood.base import Record
from nestbed.training.score_climbing import ScoreClimbing

ITERATIONS = 8
TRAININGS = (
    ("linear_pendulum", "exact"),
    *((name, belief) for name in ("linear_pendulum", "nonlinear_pendulum") for belief in ("ibis", "guided")),
    *((name, belief) for name in ("cart_pole", "double_link") for belief in ("ibis", "guided")),
)


def likelihood_seconds(climber, sweep):
    """Return the seconds that the history likelihoods of a sweep take when nothing else is done."""
    system, config = climber.system, climber.config
    rows = max(1, config.trajectories // ibis.CHUNK)
    turns = -(-np.asarray(sweep.info.rejuvenated) // rows)  # chunks rejuvenated before each experiment
    lengths = jnp.array(np.repeat(np.arange(config.horizon), turns * config.moves), jnp.int32)
    table = history.tabulate(Record(sweep.observations[:rows], sweep.designs[:rows]))
    theta = tuple(value[:rows] for value in sweep.belief.theta)

    @jax.jit
    def replay(lengths):
        def once(i, total):
            return total + history.log_likelihood(likelihoods.of(system), table, lengths[i], theta)[1]

        return jax.lax.fori_loop(0, lengths.size, once, jnp.zeros(theta[0].shape))

    jax.block_until_ready(replay(lengths))
    times = []
    for _ in range(5):
        start = time.perf_counter()
        jax.block_until_ready(replay(lengths))
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def measure(name, belief):
    """Return median seconds of each part of an iteration, and of the sweep's history likelihoods."""
    system = nb.systems.load(name)
    climber = ScoreClimbing(system, nb.ScoreClimbingConfig(belief=belief).resolve(system))
    state, _ = climber.begin(jax.random.key(0))
    rows = []
    for i in range(ITERATIONS + 1):
        state, row = climber.iterate(jax.random.fold_in(jax.random.key(1), i), state)
        rows.append(row)
    parts = {part: np.median([row[f"seconds_{part}"] for row in rows[1:]]) for part in PARTS}
    if belief != "ibis":
        return parts, 0.0
    return parts, likelihood_seconds(climber, climber.sweep(jax.random.key(2), state.policy, state.reference))


PARTS = ("sweep", "gradient", "evaluation")


def main():
    print(f"median seconds of {ITERATIONS} iterations at the paper's settings; share: history likelihood in the sweep")
    print(f"{'system':20s} {'belief':6s} {'sweep':>8s} {'gradient':>9s} {'evaluation':>11s} {'all':>7s} {'share':>7s}")
    for name, belief in TRAININGS:
        parts, likelihood = measure(name, belief)
        seconds = [parts[part] for part in PARTS]
        share = f"{100 * likelihood / parts['sweep']:6.0f}%" if likelihood else "      –"
        print(
            f"{name:20s} {belief:6s} {seconds[0]:8.3f} {seconds[1]:9.3f} {seconds[2]:11.3f} {sum(seconds):7.3f} {share}"
        )


if __name__ == "__main__":
    main()
