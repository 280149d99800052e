"""`nb.eig` beside IBIS of the package `particles`: same model, M, T, moves and ESS threshold, in one run.

nestbed simulates 16 records and filters them; `particles` filters 16 such records one after another. It runs in an
environment of its own under build/, which this script sets up, because it needs numpy < 2.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

import nestbed as nb

HERE = Path(__file__).parent
ENVIRONMENT = HERE.parent / "build" / "particles"
N, M, T, MOVES, THRESHOLD = 16, 1024, 50, 3, 0.75
ROUNDS, REPEATS = 3, 15
INNER = {"particles": M, "moves": MOVES, "belief": "ibis"}
SIZES = {"horizon": T, "trajectories": N, **INNER}


def environment():
    python = ENVIRONMENT / "bin" / "python"
    if not (ENVIRONMENT / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "particles==0.4", "numpy<2"], check=True)
        (ENVIRONMENT / "ready").touch()
    return python


def main():
    python = environment()
    system = nb.systems.load("nonlinear_pendulum")
    policy = nb.policies.PRBS(system)
    start = time.perf_counter()
    nb.eig(jax.random.key(0), system, policy, **SIZES)
    first = time.perf_counter() - start
    records = nb.sweep(jax.random.key(0), system, policy, **SIZES, eta=0.0)
    theirs, ours, evidence = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "records.npz"
        np.savez(file, states=np.asarray(records.observations), designs=np.asarray(records.designs))
        command = [str(python), str(HERE / "particles_ibis.py"), str(file), str(M), str(MOVES), str(THRESHOLD)]
        for _ in range(ROUNDS):
            best, _, logs, refreshes = map(
                float, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
            )
            theirs.append(best)
            evidence.append(logs)
            for seed in range(REPEATS):
                start = time.perf_counter()
                nb.eig(jax.random.key(seed), system, policy, **SIZES)
                ours.append(time.perf_counter() - start)
    own = nb.posterior(jax.random.key(1), system, records.observations, records.designs, **INNER)
    print(f"nonlinear pendulum, {N} records, M = {M}, T = {T}, {MOVES} moves, ESS < {THRESHOLD} M (best of all runs)")
    print(f"  particles  {min(theirs):.4f} s   mean log-evidence {np.mean(evidence):.2f}, {refreshes:.0f} resamplings")
    logs = float(own.log_predictive.sum(1).mean())
    print(f"  nestbed    {min(ours):.4f} s   mean log-evidence {logs:.2f}")
    print(f"             (median {np.median(ours):.4f} s, first call {first:.2f} s)")
    print(f"  ratio      {min(theirs) / min(ours):.1f}   (wanted: at least 15)")


if __name__ == "__main__":
    main()
