"""What happens in a session, line by line of its journal: the same lines lead to the same state, whenever they come."""

import math
import time as clocks
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from nestbed.live import following, watching
from nestbed.live.following import Following, Said
from nestbed.model import sensors
from nestbed.model.system import BaseSystem

SAME = 1e-6
"""Share of a step by which a time may be off without being another."""
LANES = 3
"""Streams of random numbers: of the policy, of the belief, of checks and outlooks."""
Entry = dict[str, Any]
"""A line of the journal."""


class Step(NamedTuple):
    """One experiment of a session."""

    suggested: Float[np.ndarray, " du"]
    applied: Float[np.ndarray, " du"]
    observation: Float[np.ndarray, " dy"]  # after it; NaN was not measured
    time: float  # of the observation, in the model's unit
    p: Float[np.ndarray, " dy"]  # how often chance alone brings readings as far from what was predicted
    gain: float  # in nats


class Learned(NamedTuple):
    """What an experiment makes of what is known."""

    row: Step
    following: Following
    said: Said
    seen: Float[np.ndarray, " dy"] | None  # what the policy is shown where not all was measured
    without: "Without | None" = None  # where it can only be if an earlier reading was none


class Without(NamedTuple):
    """What is known if the reading of one experiment was no measurement."""

    experiment: int
    following: Following
    said: list[Said]


class State:
    """Where a session is; `happen` moves it on."""

    def __init__(
        self,
        system: BaseSystem,
        policy: Any,
        key: jax.Array,
        horizon: int,
        *,
        particles: int,
        alarm: float,
        gaps: bool,
    ):
        self.system, self.policy, self.horizon = system, policy, horizon
        self.particles, self.alarm, self.gaps = particles, alarm, gaps
        self._key = key
        self.keys = jax.random.split(key, LANES)
        self.history: list[Step] = []
        self.residuals: list[Float[np.ndarray, " dy"]] = []
        self.warnings: list[str] = []
        self.aborted: str | None = None
        self.times: list[float] = []  # of all observations
        self.restarts: dict[int, Float[np.ndarray, " dy"]] = {}  # first observations of new beginnings, by experiment
        self.first: Float[np.ndarray, " dy"] | None = None
        self.seen: Float[np.ndarray, " dy"] | None = None  # what the policy is shown
        self.following: Following | None = None
        self.suggested: Float[np.ndarray, " du"] | None = None
        self.previous = np.array(system.rest_design)  # what was applied last
        self.risked = 0.0  # probability with which the designs given so far were to break limits
        self.clock = clocks.time()  # when the last measurement came
        self.carry = policy.init()
        self.chosen: Any = None  # what the policy remembers next, and the design that it wants
        self.do: Callable[[Callable[[], None]], None] = lambda work: work()  # how a belief learns: at once, or later
        self.act = jax.jit(lambda key, t, carry, y, u: policy.step(jax.random.fold_in(key, t), carry, y, u))

    def fresh(self) -> "State":
        """Return the state of a session of the same kind that has not begun; it shares the policy's program."""
        sizes: dict[str, Any] = {"particles": self.particles, "alarm": self.alarm, "gaps": self.gaps}
        other = State(self.system, self.policy, self._key, self.horizon, **sizes)
        other.act = self.act
        return other

    @property
    def step(self) -> int:
        """How many experiments are done."""
        return max(0, len(self.times) - 1)

    def key(self, lane: int) -> jax.Array:
        """Return the key of a stream for the experiment at hand."""
        return jax.random.fold_in(self.keys[lane], self.step)

    def allowance(self, risk: float) -> float:
        """Return what the experiment at hand may take of a session's risk: an even share of what is left of it.

        One share more than there are experiments, so that something is left for a horizon that is extended.
        """
        return max(0.0, risk - self.risked) / (1 + max(1, self.horizon - self.step))

    def choose(self) -> Float[np.ndarray, " du"]:
        """Let the policy choose, and return the design that it wants."""
        self.chosen = self.act(self.keys[0], self.step, self.carry, self.seen, self.previous)
        return np.asarray(self.chosen[1], float)

    def happen(self, entry: Entry, learned: Learned | None = None) -> None:
        """Do what a line of the journal says; what is `learned` of it may be known already."""
        {
            "first": self._begin,
            "suggest": self._decide,
            "update": lambda entry: self._learn(entry, learned),
            "restart": self._restart,
            "rest": self._rest,
            "abort": self._end,
            "extend": self._extend,
        }[entry["kind"]](entry)
        self.clock = float(entry.get("clock", self.clock))

    def _begin(self, entry: Entry) -> None:
        first = array(entry["y"])
        self.first, self.times = first, [float(entry["time"])]
        self.following = self._started(even=self.even(first))
        self.seen = np.where(np.isnan(first), self.typical(), first)

    def even(self, first: Float[np.ndarray, " dy"]) -> bool:
        """Return whether a record that begins so is taken for one without gaps, a step from sample to sample."""
        return not self.gaps and not bool(np.isnan(first).any())

    def _decide(self, entry: Entry) -> None:
        if self.chosen is None:
            self.choose()
        self.carry, self.chosen = self.chosen[0], None
        self.suggested = array(entry["u"])
        self.risked += float(entry.get("risk", 0.0))
        if entry["why"]:
            self.warnings.append(f"experiment {self.step}: {entry['why']}")

    def _learn(self, entry: Entry, learned: Learned | None) -> None:
        row = self.row(entry)
        self.warnings += self._outside(row.applied)
        length = row.time - self.times[-1]
        self.times.append(row.time)
        self.previous, self.suggested = row.applied, None
        self.seen = np.where(np.isnan(row.observation), np.asarray(self.seen), row.observation)
        self.do(lambda: self._absorb(row, length, learned))

    def _outside(self, applied: Float[np.ndarray, " du"]) -> list[str]:
        """Say what was applied outside the box; it counts as it was."""
        box = self.system.designs
        return [
            f"experiment {self.step}: {name} = {value:g} was applied, outside the box from {low:g} to {high:g}; it "
            "counts as it was."
            for name, value, low, high, fine in zip(
                box.names, applied, box.low, box.high, box.contains(applied), strict=True
            )
            if not fine
        ]

    def _restart(self, entry: Entry) -> None:
        y = array(entry["y"])
        self.restarts[self.step] = y
        self.previous, self.suggested = np.array(self.system.rest_design), None
        self.carry, self.chosen = self.policy.init(), None  # what it remembers is of the record before
        self.seen = np.where(np.isnan(y), self.typical(), y)
        step = self.step
        self.do(lambda: self._absorb_restart(y, step))

    def _absorb_restart(self, y: Float[np.ndarray, " dy"], step: int) -> None:
        assert self.following is not None
        now = self._in_rows(step) if self.following.even else self.following
        self.following = following.begin_again(self.keys[1], now, y)

    def row(self, entry: Entry) -> Step:
        """Return an experiment as it was done, what it said left open."""
        suggested = np.array(self.system.rest_design) if self.suggested is None else self.suggested
        applied = array(entry["applied"]) if "applied" in entry else suggested
        return Step(suggested, applied, array(entry["y"]), float(entry["time"]), np.empty(0), math.nan)

    def tried(self, entry: Entry) -> tuple[Learned, str]:
        """Return what an experiment would make of what is known, and why its reading cannot be one, or nothing."""
        row = self.row(entry)
        learned = self._explained(row, row.time - self.times[-1])
        return learned, self._impossible(learned)[1]

    def _impossible(self, learned: Learned) -> tuple[int, str]:
        return watching.impossible(self.system, learned.row.observation, learned.said)

    def _explained(self, row: Step, length: float) -> Learned:
        """Return what an experiment makes of what is known, or of that without a reading that was told far off before.

        Such a reading is taken at first, and may leave a belief that explains none of those after it.
        """
        learned = self._learned(row, length)
        if not self._astray(learned):
            return learned
        for wrong in watching.alarmed(self.residuals, self.horizon, self.alarm)[: watching.SUSPECTS]:
            said: list[Said] = []
            without = Without(wrong, self._in_rows(said=said, wrong=wrong), said)
            other = self._learned(row, length, without)
            if not self._astray(other):
                return other._replace(without=without)
        return learned

    @property
    def doubtful(self) -> bool:
        """Whether the last reading is one that was told far off: what comes next shows whether it was one."""
        return len(self.history) - 1 in watching.alarmed(self.residuals, self.horizon, self.alarm)

    def _astray(self, learned: Learned) -> bool:
        return learned.said.odds > watching.ASTRAY or bool(self._impossible(learned)[1])

    def _forget(self, without: Without) -> None:
        """Let the reading of an experiment be none."""
        wrong, self.following, said = without
        named = zip(self.system.observation_names, self.history[wrong].observation, strict=True)
        told = ", ".join(f"{name} = {value:g}" for name, value in named if not np.isnan(value))
        missing = np.full(len(self.system.observation_names), math.nan)
        self.history[wrong] = self.history[wrong]._replace(observation=missing)
        self.residuals, before = [], self.history
        self.history = []
        for done, (row, each) in enumerate(zip(before, said, strict=True)):
            self.remember(row, watching.borne_out(each.surprise, done, each.odds), each.gain)
        self.warnings.append(
            f"experiment {len(self.history)}: what is seen cannot be after {told} in experiment {wrong}, which counts "
            "as not measured from now on."
        )

    def _learned(self, row: Step, length: float, without: Without | None = None) -> Learned:
        now, wrong = (self.following, None) if without is None else (without.following, without.experiment)
        assert now is not None
        missing, seen = np.isnan(row.observation), None
        short = self.system.step / length > now.finer * (1.0 + SAME) and bool(self.system.delay)
        if short or (now.even and (missing.any() or abs(length / self.system.step - 1.0) > SAME)):
            finer = max(now.finer, 1 << math.ceil(math.log2(self.system.step / length))) if short else None
            now = self._in_rows(finer=finer or now.finer, wrong=wrong)
        if missing.any():
            seen = np.where(missing, following.expected(now, row.applied), row.observation)
        now, said = following.take_in(self.keys[1], now, row.applied, row.observation, length)
        return Learned(row, now, said, seen)

    def _absorb(self, row: Step, length: float, learned: Learned | None) -> None:
        """Let the belief know an experiment; readings that it cannot know by now count as not measured."""
        learned = learned or self._explained(row, length)
        shown = learned.seen  # not what is expected for what cannot be: the policy may have gone on by then
        while (found := self._impossible(learned))[1]:
            self.warnings.append(f"experiment {len(self.history)}: {found[1]} It counts as not measured.")
            y = learned.row.observation.copy()
            y[found[0]] = math.nan
            learned = self._learned(row._replace(observation=y), length)
        if learned.without is not None:
            self._forget(learned.without)
        row, self.following, said = learned[:3]
        self.seen = self.seen if shown is None else shown
        done = len(self.history)
        self.remember(row, watching.borne_out(said.surprise, done, said.odds), said.gain)
        terms = self.system.observation_names, np.stack(self.residuals), self.horizon, self.alarm
        if words := watching.sentence(*terms, said.odds):
            self.warnings.append(words)

    def remember(self, row: Step, surprise: Float[np.ndarray, " dy"], gain: float) -> None:
        """Add an experiment to the history."""
        self.residuals.append(surprise)
        self.history.append(row._replace(p=watching.p_values(surprise), gain=gain))

    def _in_rows(
        self,
        restarted: int | None = None,
        finer: int | None = None,
        wrong: int | None = None,
        said: list[Said] | None = None,
    ) -> Following:
        """Return what is known so far, learned again in the form that takes gaps, uneven times and new beginnings.

        Without the reading of a `wrong` experiment; what each one `said` is added there.
        """
        assert self.following is not None
        now = self._started(even=False, finer=finer or self.following.finer)
        for t, each in enumerate(self.history):
            if t in self.restarts and t != restarted:
                now = following.begin_again(self.keys[1], now, self.restarts[t])
            length = self.times[t + 1] - self.times[t]
            y = np.full_like(each.observation, math.nan) if t == wrong else each.observation
            now, found = following.take_in(self.keys[1], now, each.applied, y, length)
            if said is not None:
                said.append(found)
        last = len(self.history)
        if last in self.restarts and last != restarted:  # nothing was seen after it yet
            now = following.begin_again(self.keys[1], now, self.restarts[last])
        return now

    def _started(self, even: bool, finer: int = following.FINER) -> Following:
        assert self.first is not None
        room = self.horizon if even else 2 * self.horizon  # pauses take rows of their own
        sizes = self.particles, self.first, room
        return following.start(self.keys[1], self.system, *sizes, even=even, finer=finer)

    def _rest(self, entry: Entry) -> None:
        self.suggested = np.array(self.system.rest_design)

    def _end(self, entry: Entry) -> None:
        self.aborted, self.suggested = str(entry["why"]), None

    def _extend(self, entry: Entry) -> None:
        self.horizon = int(entry["horizon"])

    def unmeasured(self) -> Float[np.ndarray, " dy"]:
        """Return what is known of the first observation where none was given: all of it if the start is known."""
        starts = sensors.start(self.system)
        if not self.system.hidden and all(variance == 0.0 for _, variance in starts):
            return np.array([mean for mean, _ in starts])
        return np.full(len(self.system.observation_names), np.nan)

    def typical(self) -> Float[np.ndarray, " dy"]:
        """Return what sensors show of the middle of the start."""
        x = tuple(jnp.asarray(mean) for mean, _ in sensors.start(self.system))
        return np.array([float(value) for value in sensors.seen(self.system, x, self.system.parameters.middle)])


def plain(values: Any) -> list[float | None]:
    """Return numbers as JSON has them: None for NaN."""
    return [None if math.isnan(value) else float(value) for value in np.asarray(values, float)]


def array(values: Any) -> Float[np.ndarray, " d"]:
    """Return numbers as JSON had them."""
    return np.array([math.nan if value is None else float(value) for value in values])
