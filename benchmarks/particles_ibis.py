"""IBIS of the package `particles` on records of the nonlinear pendulum, one after another; prints the least seconds,
resamplings, and each record's log-evidence in each of two runs, as JSON.

Runs in an environment of its own (the package needs numpy < 2): see `against_particles.py`.
"""

import json
import sys
import time

import numpy as np
import particles
from particles import distributions
from particles import smc_samplers as samplers

STEP, GRAVITY, FRICTION = 0.05, 9.81, 0.1
VARIANCES = np.array([1e-8, 0.1**2 * STEP + 1e-8])


class Pendulum(samplers.StaticModel):
    """The same transition density in the same log-coordinates."""

    def logpyt(self, theta, t):
        angle, velocity, torque, next_angle, next_velocity = self.data[t]
        mass, length = np.exp(theta["log_mass"]), np.exp(theta["log_length"])
        swing = -1.5 * GRAVITY / length * np.sin(angle)
        drive = 3.0 * (torque - FRICTION * velocity) / (mass * length**2)
        residual = next_velocity - velocity - STEP * (swing + drive)
        still = next_angle - angle - STEP * velocity
        squares = residual**2 / VARIANCES[1] + still**2 / VARIANCES[0]
        return -0.5 * (squares + np.sum(np.log(2.0 * np.pi * VARIANCES)))


def run(states, designs, count, moves, threshold):
    steps = np.concatenate([states[:-1], designs, states[1:]], axis=1)
    normal = distributions.Normal(loc=0.0, scale=0.1)
    prior = distributions.StructDist({"log_mass": normal, "log_length": normal})
    model = Pendulum(data=steps, prior=prior)
    kernel = samplers.IBIS(model=model, wastefree=False, len_chain=moves + 1)
    filtering = particles.SMC(fk=kernel, N=count, ESSrmin=threshold, resampling="systematic")
    filtering.run()
    return filtering


if __name__ == "__main__":
    file, count, moves, threshold = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    records = np.load(file)
    times, evidence, refreshes = [], [], []
    for _ in range(2):
        start = time.perf_counter()
        runs = [run(s, d, count, moves, threshold) for s, d in zip(records["states"], records["designs"], strict=True)]
        times.append(time.perf_counter() - start)
        evidence.append([float(r.logLt) for r in runs])
        refreshes.append(np.sum([r.summaries.rs_flags for r in runs]))
    print(json.dumps({"seconds": min(times), "refreshes": float(np.mean(refreshes)), "log_evidence": evidence}))
