"""`nb.design`: the best open-loop inputs for a system, in seconds."""

import dataclasses
import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from nestbed.evaluation.certificate import targets
from nestbed.evaluation.comparison import Comparison, compare
from nestbed.model import checks
from nestbed.model.system import BaseSystem
from nestbed.numerics import blocks, interrupts, noise
from nestbed.numerics.errors import NestbedError, at_least_one
from nestbed.numerics.progress import Progress, Watch
from nestbed.planning import objective, search, starts
from nestbed.planning.identifiability import Identifiability, identify
from nestbed.planning.plan import PLAN, Plan
from nestbed.policies.base import Policy
from nestbed.policies.registry import baseline
from nestbed.policies.signals import Replay

POPULATION = 16
"""Sequences that each core moves at a time."""
ELITE, LATE_ELITE, LATE = 0.5, 0.25, 0.7
"""Share of a round's sequences that go on themselves; and the same in the last part of the time, from when on."""
JUDGED = 5
"""Rounds that are scored on the same rigs, before others take their place."""
FINAL, FINALISTS = 512, 8
"""Rigs that the last sequences are scored on, and how many of them."""
RECORDS = 1024
"""Records of the certificates."""
BESIDE = ("random", "prbs", "maximum_length", "chirp")
"""Baselines that are certified beside the plan; the best of the constant and the classical signals are too."""


class Searching(NamedTuple):
    """How far a search is: seconds done of those there are, and the best gain so far, in nats."""

    name: str
    done: int
    total: int
    best: float


def design(
    key: jax.Array,
    system: BaseSystem,
    *,
    horizon: int | None = None,
    target: Sequence[str] | None = None,
    seconds: float = 20.0,
    rounds: int | None = None,
    progress: Watch[Progress] | None = None,
) -> Plan:
    """Search for the inputs that tell most about a system's parameters, and certify what they gain.

    Args:
        key: a jax key; with `rounds` the same key gives the same inputs, with `seconds` there are as many as fit in.
        system: the model.
        horizon: T, experiments; by default the system's.
        target: names of the parameters of interest, the others being nuisance; all by default.
        seconds: that the search may take, compiling included; certificates come on top. Ctrl-C ends it early.
        rounds: of the search, in place of seconds.
        progress: called with how far it is, `.done` of `.total` seconds or rounds, and `.best`, the gain in nats.

    Returns:
        The inputs with their certificate, beside those of the baselines, and what they can tell.
    """
    checks.instance(system)
    steps = system.horizon if horizon is None else horizon
    at_least_one(horizon=steps, rounds=1 if rounds is None else rounds)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise NestbedError(f"seconds is {seconds!r}, but it must be a positive number, such as 20.")
    names = targets(system, target)
    wanted = tuple(names is None or name in names for name in system.prior)
    search_key, final_key, gain_key = jax.random.split(noise.as_key(key), 3)
    begun = time.monotonic()
    found, classical, done = _searched(search_key, system, steps, wanted, begun, seconds, rounds, progress)
    finalists = jnp.concatenate([found[:FINALISTS], classical[:1]])
    scores = np.asarray(_scored(final_key, system, finalists, wanted, FINAL))
    ranked = finalists[np.argsort(-scores, kind="stable")]
    origin = "the search"
    comparison = _compared(gain_key, system, steps, names, ranked[0], classical[0])
    best = max(comparison, key=lambda each: each.mean).policy
    inputs = _inputs(system, ranked[0])
    if best != PLAN and comparison.difference(best, PLAN).interval.low > 0.0 and best == SIGNAL:
        inputs, origin = _inputs(system, classical[0]), "a classical signal, which nothing beat"
        comparison = _first(comparison, best)
    spent = time.monotonic() - begun
    known = _identified(final_key, system, inputs)
    return Plan(system, inputs, names, comparison, known, done, spent, origin)


SIGNAL = "best signal"


def _searched(
    key: jax.Array,
    system: BaseSystem,
    horizon: int,
    target: tuple[bool, ...],
    begun: float,
    seconds: float,
    rounds: int | None,
    progress: Watch[Progress] | None,
) -> tuple[Any, Any, int]:
    """Return the best sequences, the classical ones in order of their scores, and how many rounds there were."""
    start_key, judge_key, round_key = jax.random.split(key, 3)
    islands = max(1, min(2, blocks.cores()))
    seed = int(jax.random.randint(start_key, (), 0, 2**31 - 1))
    classical = jnp.asarray(starts.classical(system, horizon))
    order = np.argsort(-np.asarray(_scored(start_key, system, classical, target, search.JUDGES)), kind="stable")
    classical = classical[order]
    fresh = starts.random(seed, system, horizon, islands * POPULATION)
    known = min(len(classical), islands * POPULATION // 4)
    unit = np.concatenate([np.asarray(classical[:known]), fresh[: islands * POPULATION - known]])
    random = np.random.default_rng(seed)
    done = 0
    while True:
        share = done / rounds if rounds is not None else (time.monotonic() - begun) / seconds
        if (done and share >= 1.0) or interrupts.taken():
            break
        now_key = jax.random.fold_in(round_key, done)
        rate = jnp.asarray(search.FIRST_RATE * (search.LAST_RATE / search.FIRST_RATE) ** min(1.0, share))
        scoring = jax.random.fold_in(judge_key, done // JUDGED)
        try:
            climbed = blocks.run(
                islands,
                1,
                lambda i: jax.block_until_ready(
                    search.climb(
                        jax.random.fold_in(now_key, i),  # noqa: B023
                        scoring,  # noqa: B023
                        system,
                        jnp.asarray(unit[i::islands]),  # noqa: B023
                        target,
                        rate,  # noqa: B023
                    )
                ),
            )
        except KeyboardInterrupt:
            if not done:
                raise
            interrupts.taken()
            break
        sequences = np.concatenate([np.asarray(each.unit) for each in climbed])
        scores = np.concatenate([np.asarray(each.score) for each in climbed])
        best = np.argsort(-scores, kind="stable")
        keep = max(2, round(len(best) * (ELITE if share < LATE else LATE_ELITE)))
        elite = sequences[best[:keep]]
        parents = elite[random.integers(0, keep, len(best) - keep)]
        children = np.asarray(search.mutate(jax.random.fold_in(now_key, islands), jnp.asarray(parents)))
        unit = np.concatenate([elite, children])
        done += 1
        if progress is not None:
            spent = (done, rounds) if rounds is not None else (round(time.monotonic() - begun), round(seconds))
            progress(Searching("design", min(spent[0], spent[1]), spent[1], float(scores[best[0]])))
    return jnp.asarray(unit), classical, done


@eqx.filter_jit
def _scored(key: jax.Array, system: BaseSystem, unit: Any, target: tuple[bool, ...], rigs: int) -> Any:
    return search.score(key, system, unit, target, rigs)


def _inputs(system: BaseSystem, unit: Any) -> Float[np.ndarray, "T du"]:
    return np.asarray(system.designs.clip(system.designs.scale(np.asarray(unit))))


def _compared(
    key: jax.Array, system: BaseSystem, horizon: int, target: tuple[str, ...] | None, unit: Any, signal: Any
) -> Comparison:
    """Certify the plan and the baselines on the same rigs."""
    policies: dict[str, Policy] = {PLAN: Replay(system, _inputs(system, unit))}
    policies |= {name: baseline(name, system, horizon) for name in BESIDE}
    policies[SIGNAL] = Replay(system, _inputs(system, signal))
    return compare(key, system, policies, horizon=horizon, records=RECORDS, target=target)


def _first(comparison: Comparison, name: str) -> Comparison:
    """Return the same with one policy's estimate as the plan's."""
    chosen = next(each for each in comparison if each.policy == name)
    return Comparison([dataclasses.replace(chosen, policy=PLAN), *(each for each in comparison if each.policy != PLAN)])


@eqx.filter_jit
def _information(key: jax.Array, system: BaseSystem, inputs: Any) -> Any:
    rigs = objective.draw(key, system, inputs.shape[0], FINAL)
    return objective.information(system, rigs, objective.simulate(system, rigs, inputs[None]))


def _identified(key: jax.Array, system: BaseSystem, inputs: Float[np.ndarray, "T du"]) -> Identifiability:
    """Return what the inputs tell, and what they would, done twice."""
    once = np.asarray(_information(key, system, jnp.asarray(inputs)))
    twice = np.asarray(_information(key, system, jnp.asarray(np.concatenate([inputs, inputs]))))
    every = (True,) * len(system.prior)
    before = objective.precision(system)
    more = [float(jnp.mean(objective.about(jnp.asarray(found), before, every))) for found in (once, twice)]
    return identify(system, once, before, more[1] - more[0])
