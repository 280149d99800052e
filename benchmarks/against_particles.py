"""nestbed beside IBIS of the package `particles` on the nonlinear pendulum, in one run.

Twice: the same algorithm (M, T, moves, ESS threshold), `nb.eig` simulating records and filtering them where
`particles` only filters them; and the same error, guided beliefs filtering the same records. The error is that of a
record's log-evidence, root mean square over records and runs, from that of 16 runs with 4096 guided particles. The
package runs in an environment of its own under build/, which this script sets up, because it needs numpy < 2.
"""

import json
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
M, T, MOVES, THRESHOLD = 1024, 50, 3, 0.75
RECORDS = (16, 128)
ROUNDS, REPEATS = 3, 15
INNER = {"particles": M, "moves": MOVES, "belief": "ibis"}
SIZES = {"horizon": T, **INNER}
FEW = (64,)


def environment():
    python = ENVIRONMENT / "bin" / "python"
    if not (ENVIRONMENT / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "particles==0.4", "numpy<2"], check=True)
        (ENVIRONMENT / "ready").touch()
    return python


def timed(work, key):
    """Return what some work gives, on the host, and its seconds."""
    start = time.perf_counter()
    found = jax.block_until_ready(work(key))
    return found, time.perf_counter() - start


def beside(python, count):
    system = nb.systems.load("nonlinear_pendulum")
    policy = nb.policies.PRBS(system)
    records = nb.sweep(jax.random.key(0), system, policy, trajectories=count, **SIZES, eta=0.0)

    def evidence(particles):
        settings = {"particles": particles, "belief": "guided"}
        return lambda key: nb.posterior(
            key, system, records.observations, records.designs, **settings
        ).log_predictive.sum(1)

    truth = np.mean([evidence(4096)(jax.random.key(seed)) for seed in range(16)], axis=0)
    ways = {f"guided, M = {few}": evidence(few) for few in FEW}
    ways["nb.eig, IBIS"] = lambda key: nb.eig(key, system, policy, trajectories=count, **SIZES).values
    first = {way: timed(work, jax.random.key(0))[1] for way, work in ways.items()}
    found = {way: [] for way in ways}
    seconds = {way: [] for way in ways}
    theirs = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "records.npz"
        np.savez(file, states=np.asarray(records.observations), designs=np.asarray(records.designs))
        command = [str(python), str(HERE / "particles_ibis.py"), str(file), str(M), str(MOVES), str(THRESHOLD)]
        for turn in range(ROUNDS):
            theirs.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
            for way, work in ways.items():
                for seed in range(REPEATS):
                    values, spent = timed(work, jax.random.key(1 + seed + REPEATS * turn))
                    found[way].append(np.asarray(values))
                    seconds[way].append(spent)
    whole = min(one["seconds"] for one in theirs)
    off = np.concatenate([one["log_evidence"] for one in theirs]) - truth
    print(
        f"nonlinear pendulum, {count} records, T = {T}, best seconds; IBIS: M = {M}, {MOVES} moves, ESS < {THRESHOLD} M"
    )
    print(
        f"  particles, IBIS   {whole:.4f} s   error of the log-evidence {np.sqrt(np.mean(off**2)):.4f}, "
        f"{theirs[0]['refreshes']:.0f} resamplings"
    )
    for way in ways:
        line = f"  {way:17s} {min(seconds[way]):.4f} s   "
        if way.startswith("guided"):
            line += f"error of the log-evidence {np.sqrt(np.mean((found[way] - truth) ** 2)):.4f}, "
        print(f"{line}{whole / min(seconds[way]):.0f} times faster (first call {first[way]:.1f} s)")


if __name__ == "__main__":
    for count in RECORDS:
        beside(environment(), count)
