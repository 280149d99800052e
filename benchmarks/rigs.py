"""Rigs that nobody here wrote: what nestbed's inputs tell beside a chirp and a held binary signal of equal length.

    python benchmarks/rigs.py mujoco   # pendulums of MuJoCo, mass and length drawn for each of 20 runs
    python benchmarks/rigs.py tclab    # the emulator of the temperature-control lab, 20 runs, 85 °C not to be broken

Needs the extras mujoco and tclab. The lab's emulator gets to 81 °C as it is packaged and to 97 °C at its full
strength, near which it is used here; there inputs know of no limit and the session alone keeps it. For each input: how
often the true values are inside the 95 % intervals of a session, how wide these are, how far the means are from the
truth, and the same error by a foreign estimator, scipy's least squares on the equations alone. What is done is kept in
results/rigs and not done again.
"""

import contextlib
import functools
import io
import random
import runpy
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import least_squares

import kept
import nestbed as nb
from nestbed.evaluation.violation import complying
from nestbed.rigs import tclab

PLACE, EXAMPLES = Path("results/rigs"), Path(__file__).parents[1] / "examples" / "rigs"
RUNS, RISK = 20, 0.01
ROUNDS = {"mujoco": 20, "tclab": 4}  # of the search for inputs
HELD = {"mujoco": 8, "tclab": 6}
PARTICLES, LENGTH = {"mujoco": 512, "tclab": 128}, 40
"""Samples for which the binary signal holds a value; particles; samples of a session at the lab."""


@functools.cache
def load(file, name):
    """Return an example's system, the same for all runs: another one would be compiled anew, and kept."""
    return nb.systems.load(f"{file}:{name}")


def pendulum(run):
    """Return a system, the true parameters and a rig that has them."""
    system = load(EXAMPLES / "mujoco_pendulum.py", "Swing")
    draws = np.random.default_rng(run)
    truth = {
        "mass": 1.0 * np.exp(0.3 * draws.standard_normal()),
        "length": 0.74 * np.exp(0.2 * draws.standard_normal()),
    }
    truth["damping"] = 0.22
    make = runpy.run_path(str(EXAMPLES / "mujoco_pendulum.py"))["rig"]
    return system, truth, make(**truth, seed=run)


def lab(run):
    """Return a system, the true parameters, and the emulator: its strength and the room's temperature are drawn.

    In one and the same room what the sensor's steps cut off would be the same in all runs, which would then err alike.
    """
    system = load(EXAMPLES / "temperature_lab.py", "Lab").replace(defaults=nb.Defaults(horizon=LENGTH))
    draws, example = np.random.default_rng(run), runpy.run_path(str(EXAMPLES / "temperature_lab.py"))
    strength, room = draws.uniform(235.0, 255.0), example["ROOM"] - draws.uniform(0.0, tclab.STEP)
    truth = {"gain": strength / 5720, "loss": 1 / 20, "exchange": 1 / 100, "lag": 1 / 140}
    random.seed(run)  # which the emulator draws its noise from
    with contextlib.redirect_stdout(io.StringIO()):
        rig = example["emulator"](strength)
    rig.ambient = rig.lab.Ta = rig.lab._T1 = rig.lab._T2 = rig.lab._H1 = rig.lab._H2 = room
    return system, truth, rig


KINDS = {"mujoco": pendulum, "tclab": lab}


def inputs_of(kind, system):
    """Return the inputs to compare: those of the lab leave limits to the session, others are scaled to keep them."""
    free = type(system)(limits={}, defaults=system.defaults) if kind == "tclab" else system
    file = PLACE / f"{kind}_plan"
    if not (file / "inputs.csv").exists():
        nb.design(jax.random.key(0), free, rounds=ROUNDS[kind]).save(file)
    plan = nb.load_plan(file, free)
    signals = {"chirp": nb.policies.Chirp(free), "held PRBS": nb.policies.MaximumLength(free, hold=HELD[kind])}
    terms = system.horizon, RISK
    named = {name: complying(jax.random.key(9), free, signal, *terms) for name, signal in signals.items()}
    return {"nestbed": plan.policy, **named}


def session(kind, policies, name, run):
    """Do one session, and the foreign fit to the same record."""
    system, truth, rig = KINDS[kind](run)
    now = nb.Session(system, policies[name], jax.random.key(run), risk=RISK, particles=PARTICLES[kind])
    hottest = -np.inf
    now.update(rig.reset())
    while now.done is None:
        now.update(rig.apply(now.suggest()))
        if kind == "tclab":
            hottest = max(hottest, rig.lab._H1, rig.lab._T1)
    ends = now.posterior.quantiles([0.025, 0.975])
    (record,) = now.records
    return {
        "truth": truth,
        "ends": ends,
        "mean": now.posterior.mean,
        "foreign": fitted(system, record),
        "hottest": None if kind == "mujoco" else float(hottest),
        "warnings": now.warnings,
    }


def fitted(system, record):
    """Return parameters by least squares on a simulation without noise from the middle of the start."""
    middle = np.array([float(value) for value in system.parameters.middle])
    positive = middle > 0.0
    u = np.asarray(record.designs)
    seen = np.asarray(record.observations)[1:]
    follow = jax.jit(lambda theta: simulated(system, theta, u))

    def residuals(w):
        theta = np.where(positive, middle * np.exp(np.where(positive, w, 0.0)), middle + w)
        return np.asarray(follow(theta) - seen).ravel()

    found = least_squares(residuals, np.zeros(len(middle)), x_scale="jac").x
    return dict(
        zip(system.parameter_names, np.where(positive, middle * np.exp(found), middle + found).tolist(), strict=True)
    )


def simulated(system, theta, u):
    """Return what sensors show without noise, by small Runge–Kutta steps, written apart from nestbed's own."""
    parts, named = 10, system.Theta(*theta)
    h = system.step / parts

    def step(x, design):
        def rates(x):
            return jnp.stack(system.drift(system.State(*x), system.Design(*design), named))

        def part(x, _):
            a = rates(x)
            b = rates(x + 0.5 * h * a)
            c = rates(x + 0.5 * h * b)
            return x + h / 6.0 * (a + 2.0 * b + 2.0 * c + rates(x + h * c)), None

        x, _ = jax.lax.scan(part, x, None, length=parts)
        shown = system.observe(system.State(*x), named) if hasattr(system, "observe") else x[0]
        return x, jnp.atleast_1d(shown)

    return jax.lax.scan(step, jnp.zeros(len(system.state)), jnp.asarray(u))[1]


def table(kind):
    system, truth, _ = KINDS[kind](0)
    names, policies = [*truth], inputs_of(kind, system)
    for name in policies:

        def once(label, name=name):
            return session(kind, policies, name, int(label.rpartition(" ")[2]))

        found = [*kept.each(PLACE / f"{kind}.jsonl", [f"{name} {i}" for i in range(RUNS)], once)]
        for each in names:
            ends = np.array([row["ends"][each] for row in found])
            real = np.array([row["truth"][each] for row in found])
            inside = int(((ends[:, 0] <= real) & (real <= ends[:, 1])).sum())
            width = np.median((ends[:, 1] - ends[:, 0]) / real)
            own, foreign = (
                np.sqrt(np.median((np.array([row[who][each] for row in found]) / real - 1.0) ** 2))
                for who in ("mean", "foreign")
            )
            print(
                f"{kind}, {name}, {each}: true value inside in {inside} of {len(found)}, intervals {100 * width:.2f} % "
                f"wide, means off by {100 * own:.2f} %, least squares off by {100 * foreign:.2f} % (medians)",
                flush=True,
            )
        warned = sum(
            bool([words for words in row["warnings"] if "the design is changed" not in words]) for row in found
        )
        hot = "" if kind == "mujoco" else f", never above {max(row['hottest'] for row in found):.1f} °C"
        changed = sum(sum("the design is changed" in words for words in row["warnings"]) for row in found)
        print(
            f"{kind}, {name}: {warned} of {len(found)} sessions called the model wrong; {changed} designs changed "
            f"to keep limits{hot}",
            flush=True,
        )


if __name__ == "__main__":
    for what in sys.argv[1:] or [*KINDS]:
        table(what)
