"""Time of `nb.eig` against N, M and T, with the exponents that fit: about 1, about 1, at most 2."""

import time

import jax
import numpy as np

import nestbed as nb

BASE = {"trajectories": 64, "particles": 2048, "horizon": 50, "belief": "ibis"}
RANGES = {"trajectories": (32, 64, 128, 256), "particles": (1024, 2048, 4096, 8192), "horizon": (25, 50, 100, 200)}


def main():
    system = nb.systems.load("nonlinear_pendulum")
    policy = nb.policies.PRBS(system)
    print("nonlinear pendulum, PRBS, three moves; otherwise", BASE)
    for name, values in RANGES.items():
        seconds, compiling = [], []
        for value in values:
            settings = {**BASE, name: value}
            start = time.perf_counter()
            nb.eig(jax.random.key(0), system, policy, **settings)
            compiling.append(time.perf_counter() - start)
            runs = []
            for seed in range(4):
                start = time.perf_counter()
                nb.eig(jax.random.key(seed), system, policy, **settings)
                runs.append(time.perf_counter() - start)
            seconds.append(min(runs))
        exponent = np.polyfit(np.log(values), np.log(seconds), 1)[0]
        told = ", ".join(
            f"{v}: {s:.3f} s (first call {c:.1f} s)" for v, s, c in zip(values, seconds, compiling, strict=True)
        )
        print(f"  {name:13s} exponent {exponent:.2f}   {told}")


if __name__ == "__main__":
    main()
