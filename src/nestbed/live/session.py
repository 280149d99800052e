"""A session on one rig: the next design out, the measurement in, while the posterior sharpens.

Whatever is told or decided is in the journal before anything else happens, so that a session can be killed at any
moment and goes on with the identical next design: random numbers hang on the key and on how much was seen alone.
"""

import contextlib
import itertools
import time as clocks
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from nestbed.evaluation.records import Measured
from nestbed.evaluation.violation import check_risk
from nestbed.live import given, head, keeping, outlook, safety, warming
from nestbed.live.journal import Journal
from nestbed.live.knowledge import Knowledge
from nestbed.live.outlook import Outlook
from nestbed.live.state import Entry, Learned, State, Step, array, plain
from nestbed.model import checks
from nestbed.model.system import BaseSystem
from nestbed.numerics import noise, storage
from nestbed.numerics.errors import NestbedError, at_least_one
from nestbed.policies.base import prepare
from nestbed.policies.signals import Replay, inputs_of

EVERY = 1024
"""Lines of the journal after which the state is kept: what came since is gone through when a killed one goes on."""


class Session:
    """Experiments on one rig under a policy, with the belief about its parameters."""

    def __init__(
        self,
        system: BaseSystem,
        policy: Any,
        key: jax.Array,
        *,
        directory: str | Path | None = None,
        horizon: int | None = None,
        particles: int = 512,
        risk: float = 0.01,
        alarm: float = 0.01,
        posterior: str = "now",
        gaps: bool = False,
        watchdog: float | None = None,
        stop_below: float | None = None,
        target_sd: Mapping[str, float] | None = None,
    ):
        """Open a session, or go on with the one that the directory holds.

        Args:
            system: the model.
            policy: what chooses designs: any policy, an `nb.Plan`, or a table with one row of designs per experiment.
            key: a jax key; the same key and the same measurements give the same designs and posterior.
            directory: where every step is kept; without one the session is in memory only.
            horizon: experiments that are planned; by default the policy's own, or the system's. It can be extended.
            particles: of the belief.
            risk: probability with which the session may break any limit of the system, over prior and noise. Each
                experiment has its share of what is left of it: a design that would take more is replaced by the
                nearest that does not.
            alarm: probability that a whole session of the model itself raises a warning.
            posterior: "now": `update` returns when the belief knows the measurement; "later": at once, and the belief
                catches up in a thread. Designs wait for it only where limits must be kept, or a reading is missing.
            gaps: whether samples may be missing or come at uneven times. Without it the first that is makes the belief
                learn the record again in another form, which compiles for some seconds.
            watchdog: seconds after the last measurement beyond which `suggest` returns the rest design.
            stop_below: nats expected from the remaining experiments below which the session says that it is done.
            target_sd: standard deviations by parameter at which it says so too.
        """
        checks.instance(system)
        check_risk(risk)
        if posterior not in ("now", "later"):
            raise NestbedError(f"posterior is {posterior!r}, but it must be 'now' or 'later'.")
        self.system, self.risk, self.watchdog, self.stop_below = system, risk, watchdog, stop_below
        self.target_sd = given.targets(system, target_sd)
        chosen = getattr(policy, "policy", policy)
        chosen = chosen if hasattr(chosen, "step") else Replay(system, inputs_of(system, chosen))
        length = given.horizon(system, chosen, horizon)
        at_least_one(horizon=length, particles=particles)
        ready, self.key = prepare(chosen, system, length), noise.as_key(key)
        self._state = State(system, ready, self.key, length, particles=particles, alarm=alarm, gaps=gaps)
        self._closing, self._later = contextlib.ExitStack(), posterior == "later"
        folder = None if directory is None else storage.writable(Path(directory))
        if folder is not None:
            self._closing.enter_context(storage.locked(folder))
        self._journal = Journal(folder)
        self._kept = self._known = 0  # lines that the kept state knows, and the one at hand
        self._warm, self._heard = False, 0.0
        self._learning: list[Future[None]] = []  # what the belief does not know yet
        self._open(head.policy(chosen, ready))
        if self._later:
            worker = self._closing.enter_context(ThreadPoolExecutor(1))
            self._state.do = lambda work: self._postpone(worker, work)

    # What a rig needs

    def suggest(self) -> Float[np.ndarray, " du"]:
        """Return the next design, the same until `update` is called."""
        state = self._state
        rest = np.array(self.system.rest_design)
        if state.aborted is not None:
            return rest
        if self.system.limits:
            self.catch_up()
        if self._stalled():
            if state.suggested is None or not np.array_equal(state.suggested, rest):
                self._begun()
                self._take({"kind": "rest"})
            return rest
        if state.suggested is None:
            self._begun()
            wanted, now = state.choose(), state.following
            assert now is not None
            allowed = state.allowance(self.risk)
            found = safety.nearest_safe(state.key(2), now, wanted, state.previous, allowed)
            why = _replaced(self.system, found, wanted, allowed)
            self._take({"kind": "suggest", "u": plain(found.u), "why": why, "risk": min(found.charge, allowed)})
        assert state.suggested is not None
        return state.suggested.copy()

    def update(self, y: Any, applied: Any = None, time: float | None = None) -> None:
        """Take in what was seen after the design, NaN for what was not measured.

        Before the first `suggest` this is the first observation. `applied` is the design that was really applied, if
        it is not the one suggested; `time` when it was seen, in the model's unit, if not one step after the last.
        A reading that no parameters explain is refused; where the belief learns "later" it counts as not measured.
        """
        state = self._state
        seen = given.values(y, "observation", self.system.observation_names, missing=True)
        entry: Entry = {"y": plain(seen), "clock": clocks.time()}
        if state.following is None and applied is None:
            given.first(self.system, seen)
            self._take({"kind": "first", **entry, "time": self._time(time)})
            return
        if applied is not None:
            entry["applied"] = plain(given.values(applied, "applied design", self.system.design_names))
        elif state.suggested is None and state.aborted is None and not self._stalled():
            raise NestbedError(
                "no design was suggested since the last update; call suggest() first, or say by applied=... which was."
            )
        self._begun()
        entry = {"kind": "update", **entry, "time": self._time(time)}
        learned = None
        if not self._later:
            learned, why = state.tried(entry)
            if why:
                raise NestbedError(why)
        self._take(entry, learned)
        if np.isnan(seen).any():
            self.catch_up()  # what the policy is shown in its place is what the belief expects

    def restart(self, y: Any) -> None:
        """Go on with the rig at its start again, where this is seen: the record begins anew, the belief stays."""
        seen = given.values(y, "observation", self.system.observation_names, missing=True)
        given.first(self.system, seen)
        self._begun()
        self._take({"kind": "restart", "y": plain(seen), "clock": clocks.time()})

    def abort(self, why: str = "asked for") -> Float[np.ndarray, " du"]:
        """End the session: from now on the rest design is suggested. Return it."""
        if self._state.aborted is None:
            self._take({"kind": "abort", "why": str(why)})
        return np.array(self.system.rest_design)

    def extend(self, horizon: int) -> None:
        """Plan for as many experiments in all."""
        at_least_one(horizon=horizon)
        prepare(self._state.policy, self.system, horizon)
        self._take({"kind": "extend", "horizon": horizon})

    def unwritten(self) -> str:
        """Return why not all of it is in the directory, having tried once more; empty: it is."""
        self._journal.again()
        return self._journal.trouble

    def close(self) -> None:
        """Let others have the directory."""
        self.catch_up()
        self._keep(1)
        self._closing.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # What is known

    @property
    def step(self) -> int:
        """How many experiments are done."""
        return self._state.step

    @property
    def first(self) -> Float[np.ndarray, " dy"] | None:
        """The first observation, NaN where nothing was measured; None: the session has not begun."""
        return None if self._state.first is None else self._state.first.copy()

    @property
    def time(self) -> float:
        """When the last observation was made, in the model's unit."""
        return self._state.times[-1] if self._state.times else 0.0

    @property
    def horizon(self) -> int:
        """How many experiments are planned."""
        return self._state.horizon

    @property
    def history(self) -> list[Step]:
        """The experiments that the belief knows."""
        return [*self._state.history]

    def measured(self, step: int) -> Float[np.ndarray, " dy"]:
        """Return what `update` was given after an experiment, also where it counts as not measured by now."""
        given_then = [entry["y"] for entry in self._journal.entries if entry["kind"] == "update"]
        return array(given_then[step - 1])

    @property
    def records(self) -> list[Measured]:
        """What was seen and done, as `nb.posterior` takes it: one record, and another for each restart."""
        self.catch_up()
        state = self._state
        if state.first is None:
            return []
        cuts = [0, *sorted(state.restarts), len(state.history)]
        found = []
        for begin, end in itertools.pairwise(cuts):
            rows = state.history[begin:end]
            first = state.restarts.get(begin, state.first)
            seen = np.stack([first, *(row.observation for row in rows)])
            designs = np.array([row.applied for row in rows]).reshape(len(rows), len(self.system.design_names))
            found.append(Measured(seen, designs, np.array(state.times[begin : end + 1])))
        return [each for each in found if len(each.designs)]

    @property
    def warnings(self) -> list[str]:
        """What the one who watches should know, in the order in which it came up."""
        return [*self._state.warnings]

    @property
    def gain(self) -> float:
        """What the session has gained so far, in nats."""
        return sum(each.gain for each in self._state.history)

    @property
    def aborted(self) -> str | None:
        """Why the session was ended, if it was."""
        return self._state.aborted

    @property
    def posterior(self) -> Knowledge:
        """What is known about the parameters, and of hidden states."""
        self._begun()
        assert self._state.following is not None
        return Knowledge(self.system, self._state.following)

    def expected_gain(self) -> Outlook:
        """Return what the remaining experiments, and the next one, are expected to gain, in nats.

        A policy that plans anew at every step is expected to gain what its plan by now would.
        """
        self.catch_up()
        u, state = self.suggest(), self._state
        self._begun()
        assert state.following is not None
        going = outlook.going(self.system, state.policy, state.carry, u)
        return outlook.outlook(state.key(2), state.following, going, max(0, state.horizon - state.step))

    @property
    def done(self) -> str | None:
        """Why there is nothing more to do, as a sentence; None: there is."""
        if self.aborted is not None:
            return f"the session was ended: {self.aborted}."
        if self.step >= self.horizon:
            return f"all {self.horizon} experiments are done; extend the horizon to go on."
        if self._state.doubtful:
            return None
        if self.target_sd and all(self.posterior.sd[name] <= most for name, most in self.target_sd.items()):
            return "every parameter is known as well as was asked for."
        if self.stop_below is not None and (left := self.expected_gain().remaining) < self.stop_below:
            return f"the remaining experiments are expected to gain {left:.3f} nats, less than {self.stop_below:g}."
        return None

    def warn(self, words: str) -> None:
        """Add a sentence for the one who watches."""
        self._state.warnings.append(words)

    def catch_up(self) -> None:
        """Wait until the belief knows all that was measured."""
        waiting, self._learning = self._learning, []
        for each in waiting:
            each.result()

    def warm(self) -> None:
        """Compile all that steps need, so that none takes long."""
        if not self._warm:
            warming.warm(self._state, self.risk)
            self._warm = True

    # How it goes on

    def _begun(self) -> None:
        """Begin without a first observation, unless there was one."""
        if self._state.following is None:
            first = plain(self._state.unmeasured())
            self._take({"kind": "first", "y": first, "time": 0.0, "clock": clocks.time()})

    def _take(self, entry: Entry, learned: Learned | None = None) -> None:
        """Write down what happened, then let it happen."""
        before = self._journal.trouble
        self._journal.add(entry)
        if self._journal.trouble and not before:
            self._state.warnings.append(self._journal.trouble)
        if entry["kind"] not in ("suggest", "update"):
            self.catch_up()
        self._state.happen(entry, learned)
        if "clock" in entry:
            self._heard = clocks.monotonic()
        self._known += 1
        self._keep(EVERY)

    def _postpone(self, worker: ThreadPoolExecutor, work: Callable[[], None]) -> None:
        open_ = [each for each in self._learning if not each.done() or each.exception()]
        self._learning = [*open_, worker.submit(work)]

    def _time(self, found: float | None) -> float:
        times = self._state.times
        return given.time(found, times[-1] if times else None, self.system.step)

    def _stalled(self) -> bool:
        """Return whether measurements have stayed away for too long."""
        state = self._state
        if self.watchdog is None or not state.times or clocks.monotonic() - self._heard <= self.watchdog:
            return False
        words = f"experiment {self.step}: no measurement for {self.watchdog:g} s, so the rest design is suggested."
        if words not in state.warnings:
            state.warnings.append(words)
        return True

    def _open(self, policy: dict[str, str]) -> None:
        """Go on with what the directory holds, or say what will be there."""
        state, place = self._state, self._journal.folder
        sizes: dict[str, Any] = {"particles": state.particles, "gaps": state.gaps, "horizon": state.horizon}
        now = head.describe(self.system, policy, self.key, **sizes)
        known = self._journal.open(now)
        head.check(place, known, now, self.system)
        state.horizon = int(known["horizon"])
        entries = self._journal.entries
        with _damages(place, entries) as at:
            for at[0], entry in enumerate(entries):
                given.line(self.system, entry)
            self._kept = 0 if place is None else keeping.recall(place, state, entries)
            for at[0], entry in enumerate(entries[self._kept :], self._kept):
                state.happen(entry)
        self._known = len(entries)
        self._heard = clocks.monotonic() - max(0.0, clocks.time() - state.clock)

    def _keep(self, least: int) -> None:
        """Keep the state beside the journal if there are so many lines since, so that going on takes no time."""
        folder, lines = self._journal.folder, len(self._journal.entries)
        whole = self._known == lines  # not after Ctrl-C in the middle of a line
        ready = whole and all(each.done() for each in self._learning) and self._state.following is not None
        if folder is not None and ready and lines - self._kept >= least:
            keeping.keep(folder, self._state, lines)
            self._kept = lines


@contextlib.contextmanager
def _damages(place: Path | None, entries: list[Entry]) -> Iterator[list[int]]:
    """Turn what no session can have written into a sentence that names its line."""
    at = [0]
    try:
        yield at
    except (KeyError, TypeError, ValueError, AttributeError, NestbedError) as error:
        raise NestbedError(
            f"line {at[0] + 1} of {len(entries)} in the journal of {place} says nothing that a session can go on from "
            f"({type(error).__name__}: {error}); restore it from a copy, or give another directory."
        ) from error


def _replaced(system: BaseSystem, found: safety.Checked, wanted: Any, allowed: float) -> str:
    """Return why another design than the one wanted is given, or nothing."""
    if found.wanted <= allowed:
        return ""
    pairs = zip(system.design_names, np.asarray(wanted), found.u, strict=True)
    told = [(name, f"{a:.4g}", f"{b:.4g}") for name, a, b in pairs]
    changed = ", ".join(f"{name} {a} → {b}" for name, a, b in told if a != b)
    if not changed:
        little = f"the limit of {found.limit} may be broken with probability {found.given:.2g}, and no other design"
        return "" if found.given <= allowed else f"{little} that was tried breaks it less often."
    still = "" if found.given <= allowed else f"; even so it may be broken with probability {found.given:.2g}"
    return (
        f"the limit of {found.limit} would be broken with probability {found.wanted:.2g}, so the design is changed: "
        f"{changed}{still}."
    )
