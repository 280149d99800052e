"""Random and PRBS (joint) on all four systems beside the paper's tables: 25 seeds, N = 16, M = 1024, T = 50."""

import time

import jax
import numpy as np

import nestbed as nb
from nestbed import published

SEEDS = 25


def rows(seed=2024):
    """Yield system, policy, our mean and sd, the paper's, and the difference in combined standard errors."""
    reference = published.policy_table()
    for name in nb.systems.CATALOGUE:
        system = nb.systems.load(name)
        policies = {"random": nb.policies.Random(system), "prbs": nb.policies.PRBS(system)}
        for score in nb.compare(jax.random.key(seed), system, policies, seeds=SEEDS):
            mean, sd = reference[name, score.policy]
            error = np.hypot(sd, score.sd) / np.sqrt(SEEDS)
            yield name, score.policy, score.mean, score.sd, mean, sd, (score.mean - mean) / error


def main():
    start = time.perf_counter()
    print(f"{'system':20s} {'policy':8s} {'nestbed':>14s} {'paper':>14s} {'difference / error':>20s}")
    for name, policy, mean, sd, theirs, their_sd, score in rows():
        print(f"{name:20s} {policy:8s} {mean:6.2f} ± {sd:5.2f} {theirs:6.2f} ± {their_sd:5.2f} {score:+20.2f}")
    print(f"{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
