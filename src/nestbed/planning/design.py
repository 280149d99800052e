"""`nb.design`: the best open-loop inputs for a system, in seconds."""

import dataclasses
import math
import time
import warnings
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
    budget = _Budget(begun, seconds, rounds)
    found, classical = _searched(search_key, system, steps, wanted, budget, progress)
    finalists = jnp.concatenate([found[:FINALISTS], classical[:1]])
    scores = np.asarray(_scored(final_key, system, finalists, wanted, FINAL))
    candidates = _candidates(system, steps, finalists[int(np.argmax(scores))], classical[0])
    comparison = compare(gain_key, system, candidates, horizon=steps, records=RECORDS, target=names, progress=progress)
    name, comparison = _handed_out(candidates, comparison)
    chosen = candidates[name]
    assert isinstance(chosen, Replay)
    inputs = chosen.signal(steps)
    spent = time.monotonic() - begun
    return Plan(system, inputs, names, comparison, _identified(final_key, system, inputs), budget.done, spent, name)


SIGNAL = "best signal"


class _Budget:
    """Seconds or rounds that a search may take, and how many rounds are done."""

    def __init__(self, begun: float, seconds: float, rounds: int | None):
        self.begun, self.seconds, self.rounds, self.done = begun, seconds, rounds, 0

    @property
    def share(self) -> float:
        """How much of it is spent."""
        return (time.monotonic() - self.begun) / self.seconds if self.rounds is None else self.done / self.rounds

    def tell(self, progress: Watch[Progress] | None, best: float) -> None:
        """Tell whoever watches how far it is."""
        if progress is not None:
            total = round(self.seconds) if self.rounds is None else self.rounds
            progress(Searching("design", min(total, round(self.share * total)), total, best))


def _searched(
    key: jax.Array,
    system: BaseSystem,
    horizon: int,
    target: tuple[bool, ...],
    budget: _Budget,
    progress: Watch[Progress] | None,
) -> tuple[Any, Any]:
    """Return sequences, the best first, and the classical ones in order of their scores."""
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
    while not (budget.done and budget.share >= 1.0) and not interrupts.taken():
        now_key = jax.random.fold_in(round_key, budget.done)
        share = min(1.0, budget.share)
        try:
            climbed = _climbed(
                now_key, jax.random.fold_in(judge_key, budget.done // JUDGED), system, unit, target, share, islands
            )
        except KeyboardInterrupt:
            if not budget.done:
                raise
            interrupts.taken()
            break
        keep = max(2, round(len(unit) * (ELITE if share < LATE else LATE_ELITE)))
        elite = np.asarray(climbed.unit[:keep])
        parents = elite[random.integers(0, keep, len(unit) - keep)]
        children = search.mutate(jax.random.fold_in(now_key, islands), jnp.asarray(parents))
        unit = np.concatenate([elite, np.asarray(children)])
        budget.done += 1
        budget.tell(progress, float(climbed.score[0]))
    return jnp.asarray(unit), classical


def _climbed(
    key: jax.Array,
    judge_key: jax.Array,
    system: BaseSystem,
    unit: Float[np.ndarray, "K T du"],
    target: tuple[bool, ...],
    share: float,
    islands: int,
) -> search.Sequences:
    """Return where sequences climb to in a round, each core with a part of them; the best first."""
    rate = jnp.asarray(search.FIRST_RATE * (search.LAST_RATE / search.FIRST_RATE) ** share)

    def island(i: int) -> search.Sequences:
        part = jnp.asarray(unit[i::islands])
        found = search.climb(jax.random.fold_in(key, i), judge_key, system, part, target, rate)
        return search.Sequences(np.asarray(found.unit), np.asarray(found.score))

    parts = blocks.run(islands, 1, island)
    every = search.Sequences(*(np.concatenate(values) for values in zip(*parts, strict=True)))
    order = np.argsort(-every.score, kind="stable")
    return search.Sequences(every.unit[order], every.score[order])


@eqx.filter_jit
def _scored(key: jax.Array, system: BaseSystem, unit: Any, target: tuple[bool, ...], rigs: int) -> Any:
    return search.score(key, system, unit, target, rigs)


def _candidates(system: BaseSystem, horizon: int, unit: Any, signal: Any) -> dict[str, Policy]:
    """Return the plan and what it must beat."""
    plan, classical = (Replay(system, system.designs.clip(system.designs.scale(np.asarray(u)))) for u in (unit, signal))
    return {PLAN: plan, **{name: baseline(name, system, horizon) for name in BESIDE}, SIGNAL: classical}


def _handed_out(candidates: dict[str, Policy], comparison: Comparison) -> tuple[str, Comparison]:
    """Return which signal is handed out, the plan unless another surely gains more, and its estimate as the plan's.

    A policy that draws its inputs is no signal; where one gains more than all signals, that is told.
    """
    best = max(comparison, key=lambda each: each.mean).policy
    if best == PLAN or comparison.difference(best, PLAN).interval.low <= 0.0:
        return PLAN, comparison
    if not isinstance(candidates[best], Replay):
        warnings.warn(f"{best} inputs gain more than what was found; give the search more seconds.", stacklevel=3)
        return PLAN, comparison
    chosen = next(each for each in comparison if each.policy == best)
    others = [each for each in comparison if each.policy != PLAN]
    return best, Comparison([dataclasses.replace(chosen, policy=PLAN), *others])


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
