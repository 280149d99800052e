"""The Gaussian filter of the position-only pendulum beside the same filter in C, and `nb.eig` with hidden states beside
that with all states seen, in one run.

python benchmarks/filters.py [N M T]
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import nestbed as nb
from nestbed import likelihood as likelihoods
from nestbed.likelihood import history
from nestbed.likelihood.base import Record
from nestbed.numerics import blocks

ROUNDS, REPEATS, CLOSE = 6, 12, 1e-8


def build(folder):
    program = Path(folder) / "history_filter"
    source = Path(__file__).with_name("history_filter.c")
    flags = ["-O3", "-march=native", "-ffast-math", "-fopenmp"]
    subprocess.run(["cc", *flags, str(source), "-o", str(program), "-lm"], check=True)
    return program


def inputs(system, N, M, T):
    """Return records and parameters; angles are a step's noise around where a pendulum at rest would be seen."""
    keys = jax.random.split(jax.random.key(0), 3)
    theta = system.parameters.constrain(system.parameters.sample(keys[0], (N, M)))
    observations = 0.1 * (jax.random.uniform(keys[1], (N, T + 1, 1)) - 0.5)
    return Record(observations, jax.random.uniform(keys[2], (N, T, 1)) - 0.5), theta


def spread(kernel, record, theta):
    """Return log-densities, records in as many blocks as there are cores: as `nb.eig` spreads trajectories."""
    size = -(-theta[0].shape[0] // blocks.cores())

    def work(index):
        mine = slice(index * size, (index + 1) * size)
        return np.asarray(kernel(*jax.tree.map(lambda leaf: leaf[mine], (record, theta))))

    return np.concatenate(blocks.run(theta[0].shape[0], size, work))


def seconds(work):
    start = time.perf_counter()
    found = work()
    return time.perf_counter() - start, found


def beside_c(N, M, T):
    """Print nanoseconds per record, particle and step of both; their log-densities must agree."""
    system = nb.systems.load("encoder_pendulum")
    record, theta = inputs(system, N, M, T)

    @jax.jit
    def kernel(record, theta):
        return history.log_likelihood(likelihoods.of(system), history.tabulate(record), jnp.asarray(T), theta)[1]

    compiling, ours = seconds(lambda: spread(kernel, record, theta))
    numbers = b"".join(np.asarray(values).tobytes() for values in (*record, *theta))
    times, floor = [], []
    with tempfile.TemporaryDirectory() as folder:
        command = [str(build(folder)), str(N), str(M), str(T)]
        for _ in range(ROUNDS):
            run = subprocess.run(command, input=numbers, capture_output=True, check=True)
            floor.append(float(run.stderr))
            times += [seconds(lambda: spread(kernel, record, theta))[0] for _ in range(REPEATS)]
    np.testing.assert_allclose(ours, np.frombuffer(run.stdout).reshape(N, M), rtol=CLOSE)
    best = min(times) * 1e9 / (N * M * T)
    print(f"history filter, position-only pendulum, N = {N}, M = {M}, T = {T}, float64, ns per evaluation (best)")
    print(f"  C        {min(floor):.3f}   (the same log-densities, to {CLOSE:g})")
    print(f"  nestbed  {best:.3f}   (compiled in {compiling:.2f} s)")
    print(f"  ratio    {best / min(floor):.2f}   (wanted: at most 2)", flush=True)


def beside_seen(M):
    """Print the milliseconds of `nb.eig` with the velocity hidden, and with it seen."""
    names, found = ("nonlinear_pendulum", "encoder_pendulum"), {}
    for name in names:
        system = nb.systems.load(name)
        policy = nb.policies.PRBS(system)

        def work(seed, system=system, policy=policy):
            return nb.eig(jax.random.key(seed), system, policy, trajectories=256, particles=M)

        found[name] = work, seconds(lambda: work(0))[0], []
    for seed in range(REPEATS):
        for work, _, times in found.values():
            times.append(seconds(lambda: work(seed))[0])  # noqa: B023
    print(f"nb.eig, PRBS, 256 trajectories, M = {M}, milliseconds (best)")
    for name in names:
        print(
            f"  {name:18s} {1e3 * min(found[name][2]):7.1f}   (first call, compiling included: {found[name][1]:.1f} s)"
        )
    print(f"  ratio              {min(found[names[1]][2]) / min(found[names[0]][2]):7.2f}   (wanted: at most 2)")


def main(N=256, M=256, T=50):
    beside_c(N, M, T)
    beside_seen(M)


if __name__ == "__main__":
    main(*(int(value) for value in sys.argv[1:]))
