"""Whether a session says so when its model is wrong, how soon, and how often it says so of a right one.

    python benchmarks/honesty.py wrong    # the rig has friction, the model has none: 20 sessions for each strength
    python benchmarks/honesty.py right    # 200 sessions of the model itself, on two systems

What is done is kept in results/honesty and not done again.
"""

import sys
from pathlib import Path

import jax
import numpy as np
import numpyro.distributions as dist

import kept
import nestbed as nb

PLACE = Path("results/honesty")
STEPS, PARTICLES, ALARM = 50, 512, 0.01
STRENGTHS = (0.1, 0.2, 0.4, 0.8)
"""Friction in N s/m of a cart of about 1 kg."""


class Cart(nb.System):
    """A cart of unknown mass on a track, both states seen; friction is left out."""

    state = ("position", "velocity")
    designs = nb.Box(force=(-1.0, 1.0))
    prior = {"mass": dist.LogNormal(0.0, 0.3)}
    step, diffusion = 0.1, (0.002, 0.02)
    defaults = nb.Defaults(horizon=STEPS)

    def drift(self, x, u, theta):
        return x.velocity, u.force / theta.mass


class Rubbing(Cart):
    """The same with friction: what the rig really is."""

    prior = {"mass": dist.LogNormal(0.0, 0.3), "friction": dist.LogNormal(-1.0, 0.5)}

    def drift(self, x, u, theta):
        return x.velocity, (u.force - theta.friction * x.velocity) / theta.mass


def first_warning(model, rig, seed):
    """Return after how many experiments the first warning came, None if none did, and its sentence."""
    policy = nb.policies.MaximumLength(model)
    session = nb.Session(model, policy, jax.random.key(seed), horizon=STEPS, particles=PARTICLES, alarm=ALARM)
    session.update(rig.reset())
    while session.done is None:
        session.update(rig.apply(session.suggest()))
        if session.warnings:
            return [session.step, session.warnings[0]]
    return [None, ""]


def wrong():
    model, truth = Cart(), Rubbing()
    for strength in STRENGTHS:

        def session(name, strength=strength):
            seed = int(name.rpartition(" ")[2])
            rig = nb.rigs.Simulated(truth, jax.random.key(1000 + seed), {"friction": strength})
            return first_warning(model, rig, seed)

        found = [*kept.each(PLACE / "wrong.jsonl", [f"friction {strength:g} {i}" for i in range(20)], session)]
        steps = [step for step, _ in found if step is not None]
        when = f", after {min(steps)} to {max(steps)}, half of them by {np.median(steps):g}" if steps else ""
        print(f"friction {strength:g} left out, T = {STEPS}: warned in {len(steps)} of {len(found)} sessions{when}")
        print(next((f"  {words}" for _, words in found if words), ""), flush=True)


def right():
    for name, model in (("cart", Cart()), ("nonlinear_pendulum", nb.systems.load("nonlinear_pendulum"))):

        def session(name, model=model):
            seed = int(name.rpartition(" ")[2])
            return first_warning(model, nb.rigs.Simulated(model, jax.random.key(1000 + seed)), seed)

        found = [*kept.each(PLACE / "right.jsonl", [f"{name} {i}" for i in range(200)], session)]
        alarms = [words for step, words in found if step is not None]
        print(f"{name}, T = {STEPS}: {len(alarms)} false alarms in {len(found)} sessions, {ALARM:.0%} asked for")
        for words in alarms:
            print(f"  {words}", flush=True)


if __name__ == "__main__":
    for what in sys.argv[1:] or ["wrong", "right"]:
        {"wrong": wrong, "right": right}[what]()
