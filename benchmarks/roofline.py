"""The history likelihood of the cart-pole beside the same computation in C, in one run.

python benchmarks/roofline.py [N M T]
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp

import nestbed as nb
from nestbed import likelihood as likelihoods
from nestbed.likelihood import history
from nestbed.likelihood.base import Record

ROUNDS, REPEATS = 6, 12


def build(folder):
    program = Path(folder) / "history_likelihood"
    source = Path(__file__).with_name("history_likelihood.c")
    flags = ["-O3", "-march=native", "-ffast-math", "-fopenmp"]
    subprocess.run(["cc", *flags, str(source), "-o", str(program), "-lm"], check=True)
    return program


def inputs(system, N, M, T):
    keys = jax.random.split(jax.random.key(0), 3)
    theta = system.parameters.constrain(system.parameters.sample(keys[0], (N, M)))
    states, designs = (
        jax.random.uniform(k, s) - 0.5 for k, s in zip(keys[1:], ((N, T + 1, 4), (N, T, 1)), strict=True)
    )
    return history.tabulate(Record(states, designs)), jnp.int32(T), theta


def main(N=256, M=256, T=50):
    system = nb.systems.load("cart_pole")
    kernel = jax.jit(lambda *a: history.log_likelihood(likelihoods.of(system), *a)[1])
    arguments = inputs(system, N, M, T)
    start = time.perf_counter()
    jax.block_until_ready(kernel(*arguments))
    compiling = time.perf_counter() - start
    ours, floor = [], []
    with tempfile.TemporaryDirectory() as folder:
        program = build(folder)
        for _ in range(ROUNDS):
            command = [str(program), str(N), str(M), str(T)]
            floor.append(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
            for _ in range(REPEATS):
                start = time.perf_counter()
                jax.block_until_ready(kernel(*arguments))
                ours.append((time.perf_counter() - start) * 1e9 / (N * M * T))
    print(f"history likelihood, cart-pole, N = {N}, M = {M}, T = {T}, float64, ns per evaluation (best)")
    print(f"  C        {min(floor):.3f}")
    print(f"  nestbed  {min(ours):.3f}   (compiled in {compiling:.2f} s)")
    print(f"  ratio    {min(ours) / min(floor):.2f}   (wanted: at most 1.5)")


if __name__ == "__main__":
    main(*(int(value) for value in sys.argv[1:]))
