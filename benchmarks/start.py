"""Time from a new process to the first result, without and with compiled programs in the cache."""

import os
import subprocess
import sys
import tempfile

PROGRAM = """
import time; start = time.perf_counter()
import jax, nestbed as nb
system = nb.systems.load("{name}"); policy = nb.policies.PRBS(system); loaded = time.perf_counter()
nb.eig(jax.random.key(0), system, policy); first = time.perf_counter()
nb.eig(jax.random.key(1), system, policy); second = time.perf_counter()
print(loaded - start, first - loaded, second - first)
"""


def main():
    print("import and load, first nb.eig, second nb.eig (seconds), in a new process each")
    for name in ("nonlinear_pendulum", "cart_pole"):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "XDG_CACHE_HOME": folder}
            for cache in ("empty cache", "filled cache"):
                command = [sys.executable, "-c", PROGRAM.format(name=name)]
                told = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
                loading, first, second = map(float, told.split())
                print(f"  {name:19s} {cache:12s} {loading:6.2f} {first:6.2f} {second:7.3f}")


if __name__ == "__main__":
    main()
