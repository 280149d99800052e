"""`nb.design`: the best open-loop inputs for a system, in seconds."""

import dataclasses
import math
import time
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from nestbed.belief import proposal
from nestbed.evaluation.comparison import Comparison, compare
from nestbed.evaluation.violation import AIM, SHARES, Violation, broken, calmest, check_risk, complying
from nestbed.information import objective, search
from nestbed.model import checks, limits
from nestbed.model.system import BaseSystem
from nestbed.model.target import Target, Wanted, targeted
from nestbed.numerics import blocks, interrupts, noise
from nestbed.numerics.errors import NestbedError, at_least_one
from nestbed.numerics.progress import Progress, Watch
from nestbed.planning import starts
from nestbed.planning.identifiability import Identifiability, best_for_each, identify
from nestbed.planning.plan import PLAN, Plan
from nestbed.policies.base import Policy
from nestbed.policies.registry import baseline
from nestbed.policies.signals import Replay

ELITE, LATE_ELITE, LATE = 0.5, 0.25, 0.7
"""Share of a round's sequences that go on themselves; and the same in the last part of the time, from when on."""
JUDGED = 5
"""Rounds that are scored on the same rigs, before others take their place."""
FINAL, FINALISTS, CLASSICAL = 512, 8, 4
"""Rigs that the last sequences are scored on, how many of them, and of the classical ones."""
IDENTIFIED, LOOKED_AT = 128, 240
"""Rigs that tell what inputs identify, and other inputs that are looked at for what these do not."""
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
    target: Wanted | Sequence[Wanted] | Target | None = None,
    risk: float = 0.01,
    seconds: float = 20.0,
    rounds: int | None = None,
    progress: Watch[Progress] | None = None,
) -> Plan:
    """Search for the inputs that tell most about a system's parameters, and certify what they gain.

    Args:
        key: a jax key; with `rounds` the same key gives the same inputs, with `seconds` there are as many as fit in.
        system: the model.
        horizon: T, experiments; by default the system's.
        target: parameters of interest, the others being nuisance, or what follows from them: names of parameters or of
            methods (theta) of the system, or functions of theta; all parameters by default.
        risk: probability, over prior and noise, with which any of the system's limits may be broken within the horizon.
        seconds: that the search may take, compiling included; certificates come on top. Ctrl-C ends it early.
        rounds: of the search, in place of seconds.
        progress: called with how far it is, `.done` of `.total` seconds or rounds, and `.best`, the gain in nats.

    Returns:
        The inputs with their certificate, beside those of the baselines, and what they can tell.
    """
    return designed(
        key,
        system,
        horizon=horizon,
        target=target,
        risk=risk,
        seconds=seconds,
        rounds=rounds,
        progress=progress,
        lenient=True,
    )


def designed(
    key: jax.Array,
    system: BaseSystem,
    *,
    horizon: int | None,
    target: Wanted | Sequence[Wanted] | Target | None,
    risk: float,
    rounds: int | None,
    progress: Watch[Progress] | None,
    seconds: float = 20.0,
    lenient: bool = False,
) -> Plan:
    """Do the same; unless it is `lenient`, Ctrl-C stops it, and nothing is kept."""
    checks.instance(system)
    steps = system.horizon if horizon is None else horizon
    at_least_one(horizon=steps, rounds=1 if rounds is None else rounds)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise NestbedError(f"seconds is {seconds!r}, but it must be a positive number, such as 20.")
    check_risk(risk)
    wanted = targeted(system, target)
    _check_start(system, risk)
    search_key, final_key, gain_key = keys(key)
    begun = time.monotonic()
    budget = _Budget(begun, seconds, rounds, lenient)
    goal = Goal(system, steps, wanted, risk)
    with ThreadPoolExecutor(1) as other:  # compiling takes one core most of the time
        beside = other.submit(baselines, gain_key, goal)
        found, classical = _searched(search_key, goal, budget, progress)
        try:
            beaten = beside.result()
        except KeyboardInterrupt:  # it was meant for the search
            if not lenient:
                raise
            interrupts.taken()
            beaten = baselines(gain_key, goal)
    best, signal = (
        _replayed(goal, _best_played(final_key, goal, some)) for some in (found[:FINALISTS], classical[:CLASSICAL])
    )
    own = _certified(gain_key, goal, {PLAN: best, SIGNAL: signal}, progress)
    signals = {PLAN: best, SIGNAL: signal, **beaten.signals}
    name, comparison = _handed_out(signals, Comparison([own[0], *beaten.comparison, own[1]]), risk)
    inputs = signals[name].signal(steps)
    _tell_of_limits(comparison[0].violation, risk)
    spent = time.monotonic() - begun
    known = _identified(final_key, goal, inputs, np.asarray(found))
    names = None if goal.target is None else goal.target.names
    others = _others(final_key, goal, np.asarray(found), inputs)
    return Plan(system, inputs, names, comparison, known, budget.done, spent, name, risk, others)


def keys(key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the keys of a search, of its last choice, and of the rigs that all is certified on."""
    searching, choosing, certifying = jax.random.split(noise.as_key(key), 3)
    return searching, choosing, certifying


SIGNAL = "best signal"


def _check_start(system: BaseSystem, risk: float) -> None:
    """Raise where a state is beyond its limit before anything was done: no inputs help."""
    first = np.asarray(system.sample_start(jax.random.key(0), CHECKED))
    for name in system.limits:
        if name in system.state:
            low, high = limits.bounds(system, name)
            values = first[:, system.state.index(name)]
            share = float(np.mean((values < low) | (values > high)))
            if share > risk:
                raise NestbedError(
                    f"{name} is beyond its limits ({low:g} to {high:g}) at the start in {100 * share:.3g} % of runs, "
                    f"about {np.median(values):.3g}, more often than the risk of {100 * risk:g} %; correct the limits "
                    "or the start of the system."
                )


class Goal(NamedTuple):
    """What inputs are sought for."""

    system: BaseSystem
    horizon: int
    target: Target | None
    risk: float


class _Budget:
    """Seconds or rounds that a search may take, and how many rounds are done."""

    def __init__(self, begun: float, seconds: float, rounds: int | None, lenient: bool = True):
        self.begun, self.seconds, self.rounds, self.done = begun, seconds, rounds, 0
        self.round_begun = begun
        self.lenient = lenient  # whether Ctrl-C ends it early

    def stopped(self) -> bool:
        """Return whether Ctrl-C has ended it."""
        if self.lenient:
            return interrupts.taken()
        interrupts.check()
        return False

    @property
    def share(self) -> float:
        """How much of it is spent."""
        return (time.monotonic() - self.begun) / self.seconds if self.rounds is None else self.done / self.rounds

    @property
    def over(self) -> bool:
        """Whether there is no time for another round, or no round left; one is always made."""
        if self.rounds is not None or not self.done:
            return bool(self.done) and self.share >= 1.0
        now = time.monotonic()
        return now + 0.5 * (now - self.round_begun) - self.begun >= self.seconds

    def tell(self, progress: Watch[Progress] | None, best: float) -> None:
        """Tell whoever watches how far it is."""
        if progress is not None:
            total = round(self.seconds) if self.rounds is None else self.rounds
            progress(Searching("design", min(total, round(self.share * total)), total, best))


def _searched(key: jax.Array, goal: Goal, budget: _Budget, progress: Watch[Progress] | None) -> tuple[Any, Any]:
    """Return sequences, the best first, and the classical ones in order of their scores."""
    system, horizon, *_ = goal
    start_key, judge_key, round_key = jax.random.split(key, 3)
    islands = max(1, min(2, blocks.cores()))
    seed = int(jax.random.randint(start_key, (), 0, 2**31 - 1))
    classical = starts.classical(system, horizon)
    margin = WIDEST if system.limits else 0.0
    if system.limits:  # of a signal that breaks them, a part may do
        calm = system.designs.unscale(np.array(calmest(system, horizon, goal.risk)))
        classical = np.concatenate([calm + share * (classical - calm) for share in PARTS])
    order = np.argsort(-_scored(start_key, goal, classical, search.JUDGES, margin), kind="stable")
    classical = classical[order]
    size = islands * search.TOGETHER
    fresh = starts.random(seed, system, horizon, size)
    known = min(len(classical), size // 4)
    unit = np.concatenate([classical[:known], fresh[: size - known]])
    random = np.random.default_rng(seed)
    while not budget.over and not budget.stopped():
        budget.round_begun = time.monotonic()
        now_key = jax.random.fold_in(round_key, budget.done)
        share = min(1.0, budget.share)
        try:
            judges = jax.random.fold_in(judge_key, budget.done // JUDGED)
            climbed = _climbed(now_key, judges, goal, unit, share, islands, margin, first=not budget.done)
        except KeyboardInterrupt:
            if not budget.done or not budget.lenient:
                raise
            interrupts.taken()
            break
        keep = max(2, round(len(unit) * (ELITE if share < LATE else LATE_ELITE)))
        elite = np.asarray(climbed.unit[:keep])
        parents = elite[random.integers(0, keep, len(unit) - keep)]
        children = search.mutate(jax.random.fold_in(now_key, islands), jnp.asarray(parents))
        unit = np.concatenate([elite, np.asarray(children)])
        budget.done += 1
        if system.limits and budget.done % JUDGED == 0:
            margin = adapted(margin, float(_risks(now_key, system, elite[:1], CHECKED)[0]), AIM * goal.risk)
        budget.tell(progress, float(climbed.score[0]))
    return jnp.asarray(unit), classical


def _climbed(
    key: jax.Array,
    judge_key: jax.Array,
    goal: Goal,
    unit: Float[np.ndarray, "K T du"],
    share: float,
    islands: int,
    margin: float,
    *,
    first: bool,
) -> search.Sequences:
    """Return where sequences climb to in a round, each core with a part of them; the best first."""
    rate = search.FIRST_RATE * (search.LAST_RATE / search.FIRST_RATE) ** share

    def island(i: int) -> search.Sequences:
        own = jax.random.fold_in(key, i)
        return search.climb(own, judge_key, goal.system, unit[i::islands], goal.target, rate, margin)

    parts = [island(i) for i in range(islands)] if first else blocks.run(islands, 1, island)  # so one compiles
    every = search.Sequences(*(np.concatenate(values) for values in zip(*parts, strict=True)))
    order = np.argsort(-every.score, kind="stable")
    return search.Sequences(every.unit[order], every.score[order])


def _scored(key: jax.Array, goal: Goal, unit: Any, rigs: int, margin: float = 0.0) -> Float[np.ndarray, " K"]:
    return search.score(key, goal.system, unit, goal.target, rigs, margin)


WIDEST = 3.0
"""Standard deviations that a search keeps from limits at first."""
CHECKED = 4096
"""Rigs that tell how often a sequence breaks limits."""
PARTS = (1.0, 0.6, 0.3, 0.15, 0.05)
"""Shares of classical signals that a search within limits starts from."""


def adapted(margin: float, found: float, wanted: float) -> float:
    """Return the margin from limits that will break them as often as wanted: wider if they were broken more often."""
    step = 0.3 * math.log((found + 0.1 * wanted) / (1.1 * wanted))
    return float(np.clip(margin + np.clip(step, -0.3, 0.6), 0.0, 2.0 * WIDEST))


@eqx.filter_jit
def _risks(key: jax.Array, system: BaseSystem, unit: Any, rigs: int) -> Any:
    """Return how often each of a few sequences breaks limits."""
    drawn = objective.draw(key, system, unit.shape[1], rigs)

    def one(sequence: Any) -> Any:
        record = objective.simulate(system, drawn, objective.applied(system, sequence[None]))
        return jnp.mean(jnp.any(broken(system, record.observations, record.designs), axis=0))

    return jax.lax.map(one, jnp.asarray(unit))


def _best_played(key: jax.Array, goal: Goal, some: Any) -> Any:
    """Return of some sequences, as they can be played, the one that gains most within the risk, or is least risky."""
    played = [_played(key, goal, unit) for unit in some]
    scores = _scored(key, goal, np.stack([np.asarray(unit) for unit, _ in played]), FINAL)
    excess = np.maximum(0.0, np.array([risk for _, risk in played]) - AIM * goal.risk)
    return played[int(np.lexsort((-scores, excess))[0])][0]


def _played(key: jax.Array, goal: Goal, unit: Any) -> tuple[Any, float]:
    """Return a sequence as it can be played, scaled towards a calm one until limits are kept, and its risk.

    That is the rest design, or the constant one that breaks limits least often where rest itself does not do.
    """
    system = goal.system
    if not system.limits:
        return jnp.asarray(unit), 0.0
    calm = jnp.asarray(system.designs.unscale(np.asarray(calmest(system, goal.horizon, goal.risk))))
    tried: list[tuple[float, Any]] = []
    for shares in np.split(SHARES, 3):  # most comply at once
        scaled = calm + jnp.asarray(shares)[:, None, None] * (jnp.asarray(unit) - calm)
        risks = np.asarray(_risks(key, system, scaled, CHECKED))
        if (kept := np.flatnonzero(risks <= AIM * goal.risk)).size:
            return scaled[int(kept[0])], float(risks[kept[0]])
        tried.append((float(risks.min()), scaled[int(np.argmin(risks))]))
    risk, least = min(tried, key=lambda each: each[0])
    return least, risk


def _tell_of_limits(found: Violation | None, risk: float) -> None:
    """Say so where nothing that was found keeps to the risk."""
    if found is not None and found.probability > risk:
        warnings.warn(
            f"the best inputs found break {found.limit} in {100 * found.probability:.3g} % of runs, more often than "
            f"the risk of {100 * risk:g} %: check that the limits hold at the start and at rest, widen them, allow "
            "more risk, or give the search more seconds.",
            stacklevel=3,
        )


OTHERS, APART = 4, 0.3
"""Inputs of other kinds that are kept, and by how much they differ from all before them: of the box's half, on average
over the horizon."""


def _others(key: jax.Array, goal: Goal, found: Any, inputs: Float[np.ndarray, "T du"]) -> Any:
    """Return the best of a search that lie in other basins, as they can be played."""
    kept = [np.asarray(goal.system.designs.unscale(inputs))]
    for unit in found:
        if len(kept) <= OTHERS and all(np.sqrt(np.mean((unit - other) ** 2)) > APART for other in kept):
            kept.append(unit)
    played = [_replayed(goal, _played(key, goal, unit)[0]).signal(goal.horizon) for unit in kept[1:]]
    return np.array(played).reshape(-1, *inputs.shape)


class _Baselines(NamedTuple):
    """What a plan must beat, within the same limits."""

    comparison: Comparison
    signals: dict[str, Replay]  # those that are fixed beforehand


def baselines(key: jax.Array, goal: Goal) -> _Baselines:
    """Certify the baselines."""
    system, horizon, _, risk = goal
    made = {name: baseline(name, system, horizon) for name in BESIDE}
    units = {name: system.designs.unscale(p.signal(horizon)) for name, p in made.items() if isinstance(p, Replay)}
    signals = {name: _replayed(goal, _played(key, goal, unit)[0]) for name, unit in units.items()}
    drawn = {name: complying(key, system, p, horizon, risk) for name, p in made.items() if name not in signals}
    return _Baselines(_certified(key, goal, {**drawn, **signals}, None), signals)


def _certified(
    key: jax.Array,
    goal: Goal,
    policies: Mapping[str, Policy],
    progress: Watch[Progress] | None,
) -> Comparison:
    settings: Any = {"horizon": goal.horizon, "records": RECORDS, "target": goal.target}
    return compare(key, goal.system, policies, progress=progress, **settings)


def _replayed(goal: Goal, unit: Any) -> Replay:
    """Return a sequence of the unit box as a signal."""
    inputs = objective.applied(goal.system, jnp.asarray(unit)[None])[0]
    return Replay(goal.system, goal.system.designs.clip(np.asarray(inputs)))


def _handed_out(signals: Mapping[str, Replay], comparison: Comparison, risk: float) -> tuple[str, Comparison]:
    """Return which signal is handed out, the plan unless another surely gains more, and its estimate as the plan's.

    What breaks limits more often than the risk, and than the plan, is not. A policy that draws its inputs is no signal;
    where one gains more than all signals, that is told.
    """
    plan = next(each for each in comparison if each.policy == PLAN)
    least = risk if plan.violation is None else max(risk, plan.violation.probability)
    within = [each for each in comparison if each.violation is None or each.violation.probability <= least]
    best = max(within, key=lambda each: each.mean).policy
    if best == PLAN or comparison.difference(best, PLAN).interval.low <= 0.0:
        return PLAN, comparison
    if best not in signals:
        warnings.warn(f"{best} inputs gain more than what was found; give the search more seconds.", stacklevel=3)
        return PLAN, comparison
    chosen = next(each for each in comparison if each.policy == best)
    others = [each for each in comparison if each.policy != PLAN]
    return best, Comparison([dataclasses.replace(chosen, policy=PLAN), *others])


def _identified(
    key: jax.Array, goal: Goal, inputs: Float[np.ndarray, "T du"], found: Float[np.ndarray, "K T du"]
) -> Identifiability:
    """Return what the inputs tell, beside what a search found, classical inputs and random ones."""
    system = goal.system
    known = np.concatenate([found, starts.classical(system, goal.horizon)])
    seed = int(jax.random.randint(key, (), 0, 2**31 - 1))
    fresh = starts.random(seed, system, goal.horizon, max(1, LOOKED_AT - len(known)))
    others = np.concatenate([known, fresh])[:LOOKED_AT]
    own = np.asarray(system.designs.unscale(inputs))[None]
    look_key, tell_key = jax.random.split(key)
    precision = objective.precision(system)
    seen = search.information(look_key, system, np.concatenate([own, others]), goal.target, 1)
    best = others[best_for_each(seen[0], seen[1:], precision)]  # on few rigs, so they are looked at again
    told = search.information(tell_key, system, np.concatenate([own, best]), goal.target, IDENTIFIED)
    return identify(system, told[0], told[1:], precision, _slopes(goal), len(others))


def _slopes(goal: Goal) -> dict[str, Float[np.ndarray, " d"]]:
    """Return how what follows from the parameters changes with their whitened coordinates, in the prior's middle."""
    if goal.target is None:
        return {}
    system = goal.system
    middle = tuple(jnp.zeros(()) for _ in system.prior)
    slopes = np.asarray(goal.target.slopes(system, *proposal.parameters(system.parameters, middle)))
    return {name: row for name, row in zip(goal.target.names, slopes, strict=True) if name not in system.prior}
