"""How often a rig breaks its limits with and without the shield of a session, under a wide prior.

    python benchmarks/shield.py [SESSIONS]

1000 sessions by default, on two rigs: a cart on a short track, whose mass is hardly known, and an oven of which the hot
element is hidden. The designs wanted are full power by coin toss. What is done is kept in results/shield.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import kept
import nestbed as nb

PLACE = Path("results/shield")
RISK, PARTICLES = 0.01, 128


class Track(nb.System):
    """A cart that is seen by its position alone and cannot stop at once."""

    state = ("place", "speed")
    designs = nb.Box(push=(-1.0, 1.0))
    prior = {"mass": dist.LogNormal(0.0, 0.5)}
    start = {"place": dist.Normal(0.0, 0.05)}
    sensors = {"place": 0.01}
    limits = {"place": (-0.5, 0.5)}
    step, diffusion, integrator = 0.2, (0.0, 0.02), "euler"
    defaults = nb.Defaults(horizon=20)

    def drift(self, x, u, theta):
        return x.speed, u.push / theta.mass


class Oven(nb.System):
    """A heating element in an oven; a probe shows the oven's temperature, the element is hidden."""

    state = ("element", "oven")
    designs = nb.Box(power=(0.0, 1.0))
    prior = {"loss": dist.LogNormal(-2.0, 0.5), "flow": dist.LogNormal(-1.0, 0.5)}
    sensors = {"oven": 0.5}
    limits = {"element": (None, 250.0)}
    step, diffusion = 0.5, (1.0, 0.2)
    defaults = nb.Defaults(horizon=20)

    def drift(self, x, u, theta):
        exchanged = theta.flow * (x.element - x.oven)
        return 200.0 * u.power - exchanged, 0.2 * exchanged - theta.loss * x.oven


def beyond(system, rig):
    """Return whether the rig is beyond a limit now."""
    states = rig.states
    ends = {name: tuple(end if end is not None else np.inf for end in pair) for name, pair in system.limits.items()}
    return any(not (-np.inf if low == np.inf else low) <= states[name] <= high for name, (low, high) in ends.items())


def run(system, seed, shielded):
    """Return how many experiments ended beyond a limit, and how many designs were changed."""
    rig, policy = nb.rigs.Simulated(system, jax.random.key(1000 + seed)), nb.policies.PRBS(system)
    key = jax.random.key(seed)
    y, broken, changed = rig.reset(), 0, 0
    if not shielded:
        step, carry, u = jax.jit(policy.step), policy.init(), jnp.array(system.rest_design)
        for t in range(system.horizon):
            carry, u = step(jax.random.fold_in(key, t), carry, jnp.asarray(y), u)
            y = rig.apply(u)
            broken += beyond(system, rig)
        return [broken, 0]
    session = nb.Session(system, policy, key, particles=PARTICLES, risk=RISK)
    session.update(y)
    while session.done is None:
        session.update(rig.apply(session.suggest()))
        broken += beyond(system, rig)
    changed = sum("the design is changed" in words for words in session.warnings)
    return [broken, changed]


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    for system in (Track(), Oven()):
        for shielded in (False, True):
            kind = f"{system.name} {'with' if shielded else 'without'} shield"

            def once(name, system=system, shielded=shielded):
                return run(system, int(name.rpartition(" ")[2]), shielded)

            found = np.array([*kept.each(PLACE / "runs.jsonl", [f"{kind} {i}" for i in range(count)], once)])
            sessions, experiments = int((found[:, 0] > 0).sum()), int(found[:, 0].sum())
            low, high = nb.Violation(sessions / count, count).interval
            total = count * system.horizon
            print(
                f"{kind}: limits broken in {sessions} of {count} sessions ({100 * low:.2g} to {100 * high:.2g} %), in "
                f"{experiments} of {total} experiments ({100 * experiments / total:.3g} %), risk {RISK:g} each; "
                f"{int(found[:, 1].sum())} designs changed",
                flush=True,
            )


if __name__ == "__main__":
    main()
