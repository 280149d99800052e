"""`nb.design`: the best open-loop inputs for a system, in seconds."""

import dataclasses
import math
import time
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from nestbed.belief import proposal
from nestbed.evaluation.comparison import Comparison, PolicyEstimate, compare
from nestbed.evaluation.violation import check_risk, complying
from nestbed.information import objective, search
from nestbed.model import checks, limits
from nestbed.model.system import BaseSystem
from nestbed.model.target import Target, Wanted, targeted
from nestbed.numerics import interrupts, noise
from nestbed.numerics.errors import NestbedError, at_least_one
from nestbed.numerics.packages import versions
from nestbed.numerics.progress import Progress, Watch, renamed
from nestbed.planning import starts
from nestbed.planning.evolution import Budget, for_known_rigs, searched
from nestbed.planning.goal import Goal
from nestbed.planning.identifiability import Identifiability, best_for_each, identify
from nestbed.planning.plan import PLAN, Plan
from nestbed.planning.playable import CHECKED, best_played, played, replayed, tell_of_limits
from nestbed.policies.base import Policy
from nestbed.policies.registry import baseline
from nestbed.policies.signals import Replay

FINALISTS, CLASSICAL = 8, 4
"""Sequences that are looked at in the end, and classical ones."""
IDENTIFIED, LOOKED_AT = 128, 240
"""Rigs that tell what inputs identify, and other inputs that are looked at for what these do not."""
LEAST_IDENTIFIED, LEAST_LOOKED_AT = 32, 48
"""The same where they are much work, at least."""
BESIDE = ("random", "prbs", "maximum_length", "chirp")
"""Baselines that are certified beside the plan; the best of the constant and the classical signals are too."""


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
        seconds: that the search may take, compiling included; where that takes long, three quarters of them are left
            for searching all the same. Certificates and what they compile come on top. Ctrl-C ends it early.
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
    ).plan


class Designed(NamedTuple):
    """A plan, and others for single rigs whose parameters are known."""

    plan: Plan
    others: Float[np.ndarray, "K T du"]


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
    rigs: int = 0,
) -> Designed:
    """Do the same, and plan for so many known `rigs`; unless it is `lenient`, Ctrl-C stops it, and nothing is kept."""
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
    budget = Budget(begun, seconds, rounds, lenient)
    goal = Goal(system, steps, wanted, risk)
    with ThreadPoolExecutor(1) as other:  # compiling takes one core most of the time
        beside = other.submit(baselines, gain_key, goal)
        found = searched(search_key, goal, budget, progress)
        try:
            beaten = beside.result()
        except KeyboardInterrupt:  # it was meant for the search
            if not lenient:
                raise
            interrupts.taken()
            beaten = baselines(gain_key, goal)
    best, signal = (
        replayed(goal, best_played(final_key, goal, some))
        for some in (found.unit[:FINALISTS], found.classical[:CLASSICAL])
    )
    own = _certified(gain_key, goal, {PLAN: best, SIGNAL: signal}, renamed(progress, "certifying the plan"))
    signals = {PLAN: best, SIGNAL: signal, **beaten.signals}
    signals[SIGNAL], classical = _best_signal(signals, [own[1], *beaten.comparison], risk)
    name, comparison = _handed_out(signals, Comparison([own[0], *beaten.comparison, classical]), risk)
    inputs = signals[name].signal(steps)
    tell_of_limits(comparison[0].violation, risk)
    spent = time.monotonic() - begun
    known = _identified(final_key, goal, inputs, found.unit)
    names = None if goal.target is None else goal.target.names
    others = for_known_rigs(final_key, goal, found, rigs, progress)
    words = tuple(np.asarray(jax.random.key_data(noise.as_key(key))).tolist())
    plan = Plan(system, inputs, names, comparison, known, budget.done, spent, name, risk, words, versions())
    return Designed(plan, others)


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


class _Baselines(NamedTuple):
    """What a plan must beat, within the same limits."""

    comparison: Comparison
    signals: dict[str, Replay]  # those that are fixed beforehand


def baselines(key: jax.Array, goal: Goal) -> _Baselines:
    """Certify the baselines."""
    system, horizon, _, risk = goal
    made = {name: baseline(name, system, horizon) for name in BESIDE}
    units = {name: system.designs.unscale(p.signal(horizon)) for name, p in made.items() if isinstance(p, Replay)}
    signals = {name: replayed(goal, played(key, goal, unit)[0]) for name, unit in units.items()}
    drawn = {name: complying(key, system, p, horizon, risk) for name, p in made.items() if name not in signals}
    return _Baselines(_certified(key, goal, {**drawn, **signals}, None), signals)


def _certified(
    key: jax.Array,
    goal: Goal,
    policies: Mapping[str, Policy],
    progress: Watch[Progress] | None,
) -> Comparison:
    return compare(key, goal.system, policies, horizon=goal.horizon, target=goal.target, progress=progress)


def _best_signal(
    signals: Mapping[str, Replay], found: Sequence[PolicyEstimate], risk: float
) -> tuple[Replay, PolicyEstimate]:
    """Return the best classical signal, as certified: the first was found by its Gauss–Newton gain on few rigs."""
    first, *others = found
    least = risk if first.violation is None else max(risk, first.violation.probability)
    fixed = [each for each in others if each.policy in signals]
    within = [each for each in fixed if each.violation is None or each.violation.probability <= least]
    best = max([first, *within], key=lambda each: each.mean)
    return signals[best.policy], dataclasses.replace(best, policy=SIGNAL)


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
    rigs, looked_at = (
        search.afforded(system, goal.horizon, *each)
        for each in ((IDENTIFIED, LEAST_IDENTIFIED), (LOOKED_AT, LEAST_LOOKED_AT))
    )
    fresh = starts.random(seed, system, goal.horizon, max(1, looked_at - len(known)))
    others = np.concatenate([known, fresh])[:looked_at]
    own = np.asarray(system.designs.unscale(inputs))[None]
    look_key, tell_key = jax.random.split(key)
    precision = objective.own_precision(system)
    seen = search.information(look_key, system, np.concatenate([own, others]), goal.target, 1)
    best = others[best_for_each(system, seen[0], seen[1:], precision)]  # on few rigs, so they are looked at again
    told = search.information(tell_key, system, np.concatenate([own, best]), goal.target, rigs)
    return identify(system, told[0], told[1:], precision, _slopes(goal), len(others))


def _slopes(goal: Goal) -> dict[str, Float[np.ndarray, " d"]]:
    """Return how what follows from the parameters changes with their whitened coordinates, in the prior's middle."""
    if goal.target is None:
        return {}
    system = goal.system
    parameters = system.parameter_names
    middle = tuple(jnp.zeros(()) for _ in parameters)
    slopes = np.asarray(goal.target.slopes(system, *proposal.parameters(system.parameters, middle)))
    return {name: row for name, row in zip(goal.target.names, slopes, strict=True) if name not in parameters}
