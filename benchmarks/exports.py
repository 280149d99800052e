"""Exports of a policy: bytes, and microseconds per call beside the policy itself in jax, all measured in one run.

`python benchmarks/exports.py [RUNTIME]`: RUNTIME is a Python that has onnxruntime, such as that of `make test-export`;
with `sizes` in its place nothing is timed.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp

import nestbed as nb
from nestbed.policies.feedback import Feedback
from nestbed.policies.recurrent import Recurrent

CALLS = 20_000
C = """
#include <stdio.h>
#include <time.h>
#include "policy.h"
static policy p;
int main(void)
{
    static policy_real y[POLICY_OBSERVATIONS], u[POLICY_DESIGNS];
    double best = 1e9;
    for (int turn = 0; turn < 5; ++turn) {
        struct timespec begun, ended;
        policy_init(&p);
        clock_gettime(CLOCK_MONOTONIC, &begun);
        for (int t = 0; t < CALLS; ++t) policy_step(&p, y, u, u);
        clock_gettime(CLOCK_MONOTONIC, &ended);
        const double seconds = (double)(ended.tv_sec - begun.tv_sec) + 1e-9 * (double)(ended.tv_nsec - begun.tv_nsec);
        best = seconds < best ? seconds : best;
    }
    printf("%.3f %zu", 1e6 * best / CALLS, sizeof p);
    return 0;
}
"""
ONNX = """
import json, sys, time
import numpy as np, onnxruntime
about = json.load(open("policy.json"))
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession("policy.onnx", options, providers=["CPUExecutionProvider"])
kind = np.float32 if about["precision"] == "single" else np.float64
carry = {f"carry_{i}": np.array(each["start"], each["type"]) for i, each in enumerate(about["carry"])}
names = {each.name for each in session.get_inputs()}
given = {"y": np.zeros(len(about["y"]), kind), "u_previous": np.zeros(len(about["u"]), kind), **carry}
given = {name: value for name, value in given.items() if name in names}
best = 1e9
for turn in range(5):
    begun = time.perf_counter()
    for t in range(2000):
        session.run(None, given)
    best = min(best, time.perf_counter() - begun)
print(1e6 * best / 2000)
"""
JAX = """
import json, sys, time
import jax, jax.numpy as jnp
about = json.load(open("policy.json"))
wide = about["precision"] == "double"
jax.config.update("jax_enable_x64", wide)
step = jax.jit(jax.export.deserialize(bytearray(open("policy.stablehlo", "rb").read())).call)
carry = tuple(jnp.asarray(each["start"], each["type"]) for each in about["carry"])
y, u = jnp.zeros(len(about["y"])), jnp.zeros(len(about["u"]))
step(carry, y, u)
best = 1e9
for turn in range(5):
    begun = time.perf_counter()
    for t in range(2000):
        found = step(carry, y, u)
    jax.block_until_ready(found)
    best = min(best, time.perf_counter() - begun)
print(1e6 * best / 2000)
"""


def own(policy, system):
    """Return the microseconds per call of the policy itself."""
    step, carry = jax.jit(policy.step), policy.init()
    y, u, key = jnp.zeros(len(system.observation_names)), jnp.array(system.rest_design), jax.random.key(0)
    best = float("inf")
    step(key, carry, y, u)
    for _ in range(5):
        begun = time.perf_counter()
        for _ in range(2000):
            found = step(key, carry, y, u)
        jax.block_until_ready(found)
        best = min(best, time.perf_counter() - begun)
    return 1e6 * best / 2000


def by_c(folder, single, calls):
    """Return microseconds per call, bytes of memory, and bytes of the program's code and tables."""
    (folder / "time.c").write_text(C)
    defined = ["-D_POSIX_C_SOURCE=199309L", f"-DCALLS={calls}", *(["-DPOLICY_SINGLE"] if single else [])]
    subprocess.run(
        ["gcc", "-std=c99", "-O2", *defined, "policy.c", "time.c", "-o", "time", "-lm"], cwd=folder, check=True
    )
    subprocess.run(["gcc", "-std=c99", "-Os", "-c", *defined, "policy.c"], cwd=folder, check=True)
    text, data, *_ = subprocess.check_output(["size", "policy.o"], cwd=folder, text=True).splitlines()[1].split()
    micros, memory = subprocess.check_output([folder / "time"], text=True).split()
    return float(micros), int(memory), int(text) + int(data)


def main(runtime):
    system = nb.systems.load("double_link")
    keys = jax.random.split(jax.random.key(0), 3)
    cases = {
        "feedback on a plan, T = 50, width 32": Feedback(keys[0], system, 50, 32, jnp.zeros((50, 2))).mean(),
        "two GRU layers of 64 between dense ones, as published": Recurrent(keys[1], system).mean(),
        "two LSTM layers of 64 between dense ones (iDAD)": Recurrent(keys[2], system, cell="lstm").mean(),
        "a plan of 50": nb.policies.Replay(system, jax.random.uniform(keys[2], (50, 2))),
    }
    timed = runtime != "sizes"
    print("policy; form, precision: bytes, microseconds per call (of C also the memory that it works in)")
    for name, policy in cases.items():
        print(f"{name}: {f'{own(policy, system):.1f} µs in jax itself' if timed else 'sizes'}", flush=True)
        for single in (False, True):
            precision = "single" if single else "double"
            with tempfile.TemporaryDirectory() as place:
                for form in ("c", "onnx", "jax"):
                    nb.export(policy, system, Path(place) / form, format=form, single=single)
                micros, memory, code = by_c(Path(place) / "c", single, CALLS if timed else 1)
                print(f"  c, {precision}: {code:,} compiled, {told(micros if timed else None)}, memory {memory:,}")
                for form, file, script, python in (
                    ("onnx", "policy.onnx", ONNX, runtime),
                    ("jax", "policy.stablehlo", JAX, sys.executable),
                ):
                    folder, found = Path(place) / form, None
                    if timed and python:
                        found = float(subprocess.check_output([python, "-c", script], cwd=folder, text=True))
                    print(f"  {form}, {precision}: {(folder / file).stat().st_size:,}, {told(found)}", flush=True)


def told(micros):
    return "not timed" if micros is None else f"{micros:.2f} µs"


if __name__ == "__main__":
    given = sys.argv[1] if len(sys.argv) > 1 else None
    main(given if given in (None, "sizes") else str(Path(given).absolute()))  # it is called from other folders
