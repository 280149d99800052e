"""sPCE and sNMC of the cart-pole beside the history likelihood in C, in one run, and their memory against L.

python benchmarks/bounds.py
"""

import resource
import subprocess
import sys
import tempfile
import time

import jax

import nestbed as nb
from nestbed.evaluation.contrastive_bounds import bounds
from roofline import build

OUTER, CONTRASTIVE, STEPS, ROUNDS = 32, 1_000_000, 50, 5


def peak(contrastive):
    """Return the peak memory of a process that computes the bounds with so many draws, in MiB."""
    told = subprocess.run([sys.executable, __file__, str(contrastive)], capture_output=True, text=True, check=True)
    return float(told.stdout)


def once(seed, contrastive):
    system = nb.systems.load("cart_pole")
    return bounds(jax.random.key(seed), system, nb.policies.PRBS(system), outer=OUTER, contrastive=contrastive)


def main():
    once(0, CONTRASTIVE)
    ours, floor = [], []
    with tempfile.TemporaryDirectory() as folder:
        program = build(folder)
        for seed in range(ROUNDS):
            command = [str(program), "256", "256", str(STEPS)]
            floor.append(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
            start = time.perf_counter()
            once(seed, CONTRASTIVE)
            ours.append((time.perf_counter() - start) * 1e9 / (OUTER * CONTRASTIVE * STEPS))
    print(f"both bounds, cart-pole, {OUTER} records, L = {CONTRASTIVE:,}, T = {STEPS}, ns per evaluation (best)")
    print(f"  C        {min(floor):.3f}   (history likelihood alone)")
    print(f"  nestbed  {min(ours):.3f}   (records, draws and sums included)")
    print(f"  ratio    {min(ours) / min(floor):.2f}   (wanted: at most 2)")
    few, many = peak(10_000), peak(CONTRASTIVE)
    print(f"peak memory of the process: {few:.0f} MiB at L = 10,000, {many:.0f} MiB at L = {CONTRASTIVE:,}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        once(0, int(sys.argv[1]))
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    else:
        main()
