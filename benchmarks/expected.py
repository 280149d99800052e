"""Whether sessions gain what they expect: on average at their start, and from halfway on.

    python benchmarks/expected.py [SESSIONS]

50 sessions by default of 20 experiments on each of four rigs, with full power by coin toss: a fan, a motor, a
greenhouse, and the oven of `shield.py`, whose limit is kept. What is done is kept in results/expected.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import kept
import nestbed as nb
from shield import Oven

PLACE, PARTICLES = Path("results/expected"), 128


class Fan(nb.System):
    """A fan that is slowed by friction and by the air; its speed is seen."""

    state = ("speed",)
    designs = nb.Box(voltage=(0.0, 12.0))
    prior = {"gain": dist.LogNormal(0.0, 0.4), "drag": dist.LogNormal(-2.5, 0.5), "friction": dist.LogNormal(-1.0, 0.5)}
    sensors = {"speed": 0.2}
    step, diffusion = 0.2, (0.3,)
    defaults = nb.Defaults(horizon=20)

    def drift(self, x, u, theta):
        return (theta.gain * u.voltage - theta.friction * x.speed - theta.drag * x.speed * jnp.abs(x.speed),)


class Motor(nb.System):
    """A motor of which speed and current are seen as they are."""

    state = ("speed", "current")
    designs = nb.Box(voltage=(-6.0, 6.0))
    prior = {
        "inertia": dist.LogNormal(-1.0, 0.4),
        "constant": dist.LogNormal(-0.5, 0.3),
        "resistance": dist.LogNormal(0.0, 0.3),
    }
    step, diffusion = 0.05, (0.05, 0.05)
    defaults = nb.Defaults(horizon=20)

    def drift(self, x, u, theta):
        turning = (theta.constant * x.current - 0.1 * x.speed) / theta.inertia
        return turning, (u.voltage - theta.resistance * x.current - theta.constant * x.speed) / 0.2


class Greenhouse(nb.System):
    """Air that is heated, above soil that is hidden."""

    state = ("air", "soil")
    designs = nb.Box(heat=(0.0, 3.0))
    prior = {
        "loss": dist.LogNormal(-1.5, 0.5),
        "exchange": dist.LogNormal(-1.5, 0.5),
        "capacity": dist.LogNormal(1.0, 0.4),
    }
    sensors = {"air": 0.1}
    step, diffusion = 0.5, (0.05, 0.02)
    defaults = nb.Defaults(horizon=20)

    def drift(self, x, u, theta):
        flow = theta.exchange * (x.air - x.soil)
        return u.heat - theta.loss * x.air - flow, flow / theta.capacity


def session(system, seed):
    """Return what was expected and gained in all, and the same from halfway on."""
    rig = nb.rigs.Simulated(system, jax.random.key(1000 + seed))
    now = nb.Session(system, nb.policies.PRBS(system), jax.random.key(seed), particles=PARTICLES)
    now.update(rig.reset())
    first = now.expected_gain().remaining
    while now.done is None:
        now.update(rig.apply(now.suggest()))
        if now.step == system.horizon // 2:
            half, left = now.gain, now.expected_gain().remaining
    return [first, now.gain, left, now.gain - half]


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    for system in (Fan(), Motor(), Greenhouse(), Oven()):

        def once(name, system=system):
            return session(system, int(name.rpartition(" ")[2]))

        found = np.array([*kept.each(PLACE / "runs.jsonl", [f"{system.name} {i}" for i in range(count)], once)])
        for words, (expected, gained) in (("in all", found[:, :2].T), ("from halfway on", found[:, 2:].T)):
            off = gained - expected
            print(
                f"{system.name}, {words}: expected {expected.mean():.2f}, gained {gained.mean():.2f} nats, "
                f"{off.mean():+.2f} ± {off.std() / count**0.5:.2f} of {count} sessions",
                flush=True,
            )


if __name__ == "__main__":
    main()
