"""The evolution of a search: sequences that climb, the better of them with their children, round after round."""

import math
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from nestbed.belief import proposal
from nestbed.evaluation import violation
from nestbed.evaluation.violation import AIM, WIDEST, calmest
from nestbed.information import objective, search
from nestbed.numerics import blocks, interrupts
from nestbed.numerics.progress import Progress, Watch
from nestbed.planning import starts
from nestbed.planning.goal import Goal
from nestbed.planning.playable import played, replayed

ELITE, LATE_ELITE, LATE = 0.5, 0.25, 0.7
"""Share of a round's sequences that go on themselves; and the same in the last part of the time, from when on."""
JUDGED = 5
"""Rounds that are scored on the same rigs, before others take their place."""
PARTS = (1.0, 0.6, 0.3, 0.15, 0.05)
"""Shares of classical signals that a search within limits starts from."""
SEARCHED = 0.75
"""Share of the seconds of a search that is left for rounds, however long compiling takes."""
KNOWN, SIGNALS = 0.15, 4
"""Rounds of the search for a plan that knows the rig, as a share of that for all, and how many classical sequences it
begins with; the others are random, so that it does not end where the plan for all rigs did."""


class Searching(NamedTuple):
    """How far a search is: seconds done of those there are, and the best gain so far, in nats."""

    name: str
    done: int
    total: int
    best: float


class Found(NamedTuple):
    """What a search ended with, and came by."""

    unit: Float[np.ndarray, "K T du"]  # the best first
    classical: Float[np.ndarray, "C T du"]  # signals of today, in order of their scores
    margin: float  # standard deviations that were kept from limits
    rounds: int  # that it took


class Budget:
    """Seconds or rounds that a search may take, and how many rounds are done.

    Compiling, before the first round, may take all the seconds there are: at least a part of them is left for rounds.
    """

    def __init__(self, begun: float, seconds: float, rounds: int | None, lenient: bool = True):
        self.rounds, self.done, self.lenient = rounds, 0, lenient  # lenient: Ctrl-C ends it early
        self.begun = self.round_begun = begun
        self.least, self.end = SEARCHED * seconds, begun + seconds

    def stopped(self) -> bool:
        """Return whether Ctrl-C has ended it."""
        if self.lenient:
            return interrupts.taken()
        interrupts.check()
        return False

    def start(self) -> None:
        """Begin with the rounds."""
        self.begun = time.monotonic()
        self.end = max(self.end, self.begun + self.least)

    @property
    def share(self) -> float:
        """How much of it is spent; of seconds, since the first round began."""
        if self.rounds is not None:
            return self.done / self.rounds
        return (time.monotonic() - self.begun) / (self.end - self.begun)

    @property
    def over(self) -> bool:
        """Whether there is no time for another round, or no round left; one is always made."""
        if self.rounds is not None or not self.done:
            return bool(self.done) and self.share >= 1.0
        now = time.monotonic()
        return now + 0.5 * (now - self.round_begun) >= self.end

    def tell(self, progress: Watch[Progress] | None, best: float) -> None:
        """Tell whoever watches how far it is."""
        if progress is not None:
            total = math.ceil(self.end - self.begun) if self.rounds is None else self.rounds
            progress(Searching("design", min(total, round(self.share * total)), total, best))


def searched(key: jax.Array, goal: Goal, budget: Budget, progress: Watch[Progress] | None) -> Found:
    """Search until the budget is spent."""
    system, horizon, *_ = goal
    start_key, judge_key, round_key = jax.random.split(key, 3)
    islands = max(1, min(2, blocks.cores()))
    seed = int(jax.random.randint(start_key, (), 0, 2**31 - 1))
    classical = starts.classical(system, horizon)
    margin = WIDEST if system.limits else 0.0
    if system.limits:  # of a signal that breaks them, a part may do
        calm = system.designs.unscale(np.array(calmest(system, horizon, goal.risk)))
        classical = np.concatenate([calm + share * (classical - calm) for share in PARTS])
    rigs = search.afforded(system, horizon, search.JUDGES, search.LEAST_JUDGES)
    order = np.argsort(-goal.scored(start_key, classical, rigs, margin), kind="stable")
    classical = classical[order]
    size = islands * search.TOGETHER
    fresh = starts.random(seed, system, horizon, size)
    known = min(len(classical), size // 4)
    unit = np.concatenate([classical[:known], fresh[: size - known]])
    random = np.random.default_rng(seed)
    budget.start()
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
            margin = violation.margin(now_key, system, replayed(goal, elite[0]), horizon, AIM * goal.risk)
        budget.tell(progress, float(climbed.score[0]))
    return Found(unit, classical, margin, budget.done)


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


def for_known_rigs(
    key: jax.Array, goal: Goal, found: Found, count: int, progress: Watch[Progress] | None = None
) -> Float[np.ndarray, "K T du"]:
    """Return plans for rigs whose parameters are known, the first in the prior's middle, as they can be played.

    What is best for one rig fails on others, unless it is changed by what is seen: a good start for feedback, in basins
    that no plan for all rigs is in.
    """
    system, prior = goal.system, goal.system.parameters
    rig_key, search_key = jax.random.split(key)
    w = [jnp.concatenate([jnp.zeros(1), value]) for value in proposal.whiten(prior, prior.sample(rig_key, (count,)))]
    seed = int(jax.random.randint(key, (), 0, 2**31 - 1))
    signals, rounds = found.classical[:SIGNALS], max(2, round(KNOWN * found.rounds))
    begun = np.concatenate([signals, starts.random(seed, system, goal.horizon, search.TOGETHER - len(signals))])

    def one(i: int) -> Float[np.ndarray, "T du"]:
        situation = objective.of_one_rig(system, tuple(value[i] for value in w), goal.horizon)
        own_key = jax.random.fold_in(search_key, i)
        best = search.evolve(own_key, system, begun, goal.target, rounds, found.margin, situation)[0]
        return np.asarray(replayed(goal, played(key, goal, best)[0]).signal(goal.horizon))

    if not count:
        return np.zeros((0, goal.horizon, len(system.design_names)))
    first = one(0)  # so that it is compiled once
    rest = blocks.run(count - 1, 1, lambda i: one(1 + i), progress, "plans for known rigs") if count > 1 else []
    return np.stack([first, *rest])
