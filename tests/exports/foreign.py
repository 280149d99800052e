"""Exports run as those who receive them do: by a C compiler, plain jax, ONNX's reference; nestbed is not imported."""

import functools
import json
import os
import subprocess
import sys

import numpy as np

FLAGS = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O0")
DEFINED = ("-fsanitize=undefined,float-cast-overflow", "-fno-sanitize-recover=all")
"""What ends a program where C does not say what it does."""
MAIN = """
#include <stdio.h>
#include "policy.h"
static policy p;
static double read(void) { double x; return scanf("%lf", &x) == 1 ? x : 0.0 / 0.0; }
int main(void)
{
    static policy_real y[POLICY_OBSERVATIONS], u[POLICY_DESIGNS], noise[NOISE + 1];
    int steps = (int)read();
    policy_init(&p);
    for (int i = 0; i < POLICY_DESIGNS; ++i) u[i] = policy_rest[i];
    while (steps-- > 0) {
        for (int i = 0; i < POLICY_OBSERVATIONS; ++i) y[i] = (policy_real)read();
        for (int i = 0; i < NOISE; ++i) noise[i] = (policy_real)read();
#if NOISE
        policy_step(&p, y, u, noise, u);
#else
        (void)noise;
        policy_step(&p, y, u, u);
#endif
        for (int i = 0; i < POLICY_DESIGNS; ++i) printf("%.17g ", (double)u[i]);
    }
    return 0;
}
"""
JAX = """
import json, sys
import jax, numpy as np
import jax.numpy as jnp
for folder, wide in json.loads(sys.argv[1]):
    with jax.enable_x64(wide):
        about, given = json.load(open(folder + "/policy.json")), np.load(folder + "/given.npz")
        step = jax.jit(jax.export.deserialize(bytearray(open(folder + "/policy.stablehlo", "rb").read())).call)
        kind = np.float64 if wide else np.float32
        carry = tuple(jnp.asarray(each["start"], each["type"]) for each in about["carry"])
        u, found = jnp.asarray([each["rest"] for each in about["u"]], kind), []
        for y, noise in zip(given["y"], given["noise"]):
            drawn = [jnp.asarray(noise, kind)] if len(noise) else []
            carry, u = step(carry, jnp.asarray(y, kind), u, *drawn)
            found.append(np.asarray(u))
        np.save(folder + "/found.npy", np.array(found))
assert "nestbed" not in sys.modules
"""
PLAIN = {"PATH": os.environ.get("PATH", ""), "HOME": os.environ.get("HOME", "/"), "JAX_PLATFORMS": "cpu"}


def by_c(folder, y, noise, single):
    """Return the designs of a policy in C, compiled with every warning an error."""
    (folder / "main.c").write_text(MAIN)
    define = [f"-DNOISE={noise.shape[1]}", *(["-DPOLICY_SINGLE"] if single else [])]
    program = folder / ("single" if single else "double")
    files = "policy.c", "main.c", "-o", program, "-lm"
    built = run("gcc", *FLAGS, *watched(), *define, *files, cwd=folder)
    assert built.returncode == 0, built.stderr
    given = " ".join(repr(float(x)) for row in np.hstack([y, noise]) for x in row)
    found = run(program, input=f"{len(y)} {given}")
    assert found.returncode == 0, found.stderr
    return np.array([float(x) for x in found.stdout.split()]).reshape(len(y), -1)


@functools.cache
def watched():
    """Return flags by which undefined behaviour ends a program, where the compiler has them."""
    tried = run("gcc", *DEFINED, "-x", "c", "-", "-o", os.devnull, input="int main(void) { return 0; }")
    return DEFINED if tried.returncode == 0 else ()


def by_jax(folders):
    """Return the designs of policies in StableHLO, by one process of plain jax; each folder has its given.npz."""
    asked = json.dumps([(str(folder), wide) for folder, wide in folders])
    done = run(sys.executable, "-c", JAX, asked)
    assert done.returncode == 0, done.stderr
    return [np.load(folder / "found.npy") for folder, _ in folders]


def by_onnx(session, folder, y, noise, single):
    """Return the designs of a policy in ONNX, by anything that has `run` and the names of its inputs."""
    about, kind = json.loads((folder / "policy.json").read_text()), np.float32 if single else np.float64
    carry = [np.array(each["start"], each["type"]) for each in about["carry"]]
    u, found = np.array([each["rest"] for each in about["u"]], kind), []
    for seen, drawn in zip(y, noise, strict=True):
        given = {f"carry_{i}": each for i, each in enumerate(carry)}
        given |= {"y": seen.astype(kind), "u_previous": u} | ({"noise": drawn.astype(kind)} if len(drawn) else {})
        *carry, u = session.run(None, given)
        found.append(u)
    return np.array(found)


def run(*command, **options):
    """Run a command that knows nothing of nestbed."""
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=600, env=PLAIN, **options)
