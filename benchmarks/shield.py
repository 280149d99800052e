"""How often a session breaks limits with and without its shield, under a wide prior, and what the shield costs.

    python benchmarks/shield.py [SESSIONS]

1000 sessions by default, on four rigs: a cart on a short track, whose mass is hardly known; an oven of which the hot
element is hidden; a rotor that may turn either way, with limits of angle and speed; and a kettle that heats itself. The
designs wanted are full power by coin toss. Gains are those of the first 100 of them, with and without limits, and where
the whole session may break one with a probability of 20 %. What is done is kept in results/shield.
"""

import functools
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import kept
import nestbed as nb

PLACE = Path("results/shield")
RISK, LOOSE, PARTICLES, GAINS = 0.01, 0.2, 128, 100


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


class Rotor(nb.System):
    """A rotor whose wires may be swapped: it turns either way, and nobody knows how strongly; its speed is hidden."""

    state = ("angle", "speed")
    designs = nb.Box(current=(-1.0, 1.0))
    prior = {"strength": dist.Normal(0.0, 1.0), "friction": dist.LogNormal(-1.0, 0.5)}
    sensors = {"angle": 0.01}
    limits = {"angle": (-1.0, 1.0), "speed": (-0.8, 0.8)}
    step, diffusion, integrator = 0.2, (0.0, 0.02), "euler"
    defaults = nb.Defaults(horizon=20)

    def drift(self, x, u, theta):
        return x.speed, theta.strength * u.current - theta.friction * x.speed


class Kettle(nb.System):
    """What is fed in reacts the faster the hotter it is, and heats; only the temperature is seen."""

    state = ("fed", "temperature")
    designs = nb.Box(feed=(0.0, 1.0))
    prior = {name: dist.LogNormal(middle, 0.4) for name, middle in (("rate", -1.0), ("heat", 0.0), ("cooling", 0.0))}
    sensors = {"temperature": 0.02}
    limits = {"temperature": (None, 1.5), "fed": (None, 2.5)}
    step, diffusion = 0.25, (0.01, 0.01)
    defaults = nb.Defaults(horizon=20)

    def drift(self, x, u, theta):
        reacting = theta.rate * jnp.exp(2.0 * x.temperature) * x.fed
        return u.feed - reacting, theta.heat * reacting - theta.cooling * x.temperature


def beyond(system, rig):
    """Return whether the rig is beyond a limit now."""
    states = rig.states
    ends = {name: tuple(end if end is not None else np.inf for end in pair) for name, pair in system.limits.items()}
    return any(not (-np.inf if low == np.inf else low) <= states[name] <= high for name, (low, high) in ends.items())


def unshielded(system, seed):
    """Return how many experiments ended beyond a limit where the policy alone drives the rig."""
    rig, policy, step = _drivers(system, seed)
    y, carry, u, broken = rig.reset(), policy.init(), jnp.array(system.rest_design), 0
    for t in range(system.horizon):
        carry, u = step(jax.random.fold_in(jax.random.key(seed), t), carry, jnp.asarray(y), u)
        y = rig.apply(u)
        broken += beyond(system, rig)
    return [broken]


def session(system, seed, risk):
    """Return how many experiments ended beyond a limit, how many designs were changed, and the gain.

    No risk: the session knows of no limits.
    """
    rig, policy, _ = _drivers(system, seed)
    known = system if risk else _free(system)
    now = nb.Session(known, policy, jax.random.key(seed), particles=PARTICLES, risk=risk or RISK)
    now.update(rig.reset())
    broken = 0
    while now.done is None:
        now.update(rig.apply(now.suggest()))
        broken += beyond(system, rig)
    return [broken, sum("the design is changed" in words for words in now.warnings), now.gain]


def _drivers(system, seed):
    policy = nb.policies.PRBS(system)
    return nb.rigs.Simulated(system, jax.random.key(1000 + seed)), policy, _step(policy)


@functools.cache
def _free(system):
    return type(system)(limits={})


@functools.cache
def _step(policy):
    return jax.jit(policy.step)


def table(system, kind, count, once):
    """Print what sessions of one kind came to."""
    names = [f"{system.name} {kind} {i}" for i in range(count)]
    found = np.array([*kept.each(PLACE / "runs.jsonl", names, lambda name: once(int(name.rpartition(" ")[2])))])
    sessions, experiments = int((found[:, 0] > 0).sum()), int(found[:, 0].sum())
    low, high = nb.Violation(sessions / count, count).interval
    said = (
        f"{system.name} {kind}: limits broken in {sessions} of {count} sessions ({100 * low:.2g} to {100 * high:.2g} "
        f"%), {experiments} of {count * system.horizon} experiments"
    )
    if found.shape[1] > 1:
        gains = found[:GAINS, 2]
        error = gains.std() / len(gains) ** 0.5
        said += f"; {int(found[:, 1].sum())} designs changed; gain {gains.mean():.2f} ± {error:.2f}"
    print(said, flush=True)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    few = min(count, GAINS)
    for system in (Track(), Oven(), Rotor(), Kettle()):
        table(system, f"shielded, risk {RISK:g},", count, lambda i, system=system: session(system, i, RISK))
        table(system, "without shield", count, lambda i, system=system: unshielded(system, i))
        table(system, f"shielded, risk {LOOSE:g},", few, lambda i, system=system: session(system, i, LOOSE))
        table(system, "without limits", few, lambda i, system=system: session(system, i, None))


if __name__ == "__main__":
    main()
