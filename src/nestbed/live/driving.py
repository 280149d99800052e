"""A session and a rig, step by step, on a clock."""

import reprlib
import time as clocks
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nestbed.live.patience import Unanswered, patience
from nestbed.live.session import Session
from nestbed.numerics import interrupts
from nestbed.numerics.errors import NestbedError
from nestbed.rigs import base

ON_TIME = 0.02
"""Share of a period by which a sample may come late and yet count as on time."""
PERIODS, LEAST = 20.0, 5.0
"""Periods of a clock, and seconds besides, after which a rig that does not answer is given up."""


@dataclass
class Drive:
    """How a session went on a rig."""

    session: Session
    late: int = 0  # samples that came late, and count with their real times
    ended: str = ""  # why it ended, as a sentence


def drive(
    session: Session,
    rig: Any,
    *,
    rate: float | None = None,
    wait: float | None = None,
    watch: Callable[[Drive], None] = lambda now: None,
) -> Drive:
    """Run a session on a rig until it is done, or until Ctrl-C; whatever ends it, the rig is left at its rest design.

    Args:
        session: new, or one to go on with: then the rig is started again, and its record begins anew.
        rig: any object with `reset() → y` and `apply(u) → y`; `close()`, if it has it, is called in the end.
        rate: samples per second; without one the rig itself says how long a step takes. A sample that comes late is
            counted and used with its real time, in steps of the model.
        wait: seconds after which a rig that does not answer is given up; by default as long as twenty periods and five
            seconds where there is a rate, else for ever.
        watch: called when the first observation is made, and after each step.
    """
    base.check(rig)
    if rate is not None and not 0.0 < rate < float("inf"):
        raise NestbedError(f"the rate is {rate!r}, but it must be a positive number of samples per second.")
    longest = PERIODS / rate + LEAST if wait is None and rate is not None else wait
    machine, now = _Machine(rig, longest), Drive(session)
    try:
        session.warm()
        first = machine.reset()
        session.restart(first) if session.step else session.update(first)
        watch(now)
        clock = _Clock(rate)
        while not (done := session.done):
            interrupts.check()
            y = machine.apply(session.suggest())
            session.update(y, time=clock.tick(now, session))
            watch(now)
        now.ended = done
    except KeyboardInterrupt:
        interrupts.taken()
        now.ended = f"stopped by hand after {session.step} of {session.horizon} experiments; the session can go on."
    finally:
        machine.rest(session)
    return now


class _Machine:
    """A rig whose errors are sentences that say what it was doing, and that is not waited for for ever."""

    def __init__(self, rig: Any, longest: float | None):
        self.rig, self.longest = rig, longest

    def reset(self) -> np.ndarray:
        return self._seen("was being started", self.rig.reset)

    def apply(self, u: np.ndarray) -> np.ndarray:
        return self._seen(f"was given the design {np.array2string(u, precision=4)}", lambda: self.rig.apply(u))

    def rest(self, session: Session) -> None:
        """Leave the rig at rest and let it go, as far as it still listens; what it answers does not matter now."""
        try:
            self._told(session, "was put at rest", lambda: self.rig.apply(np.array(session.system.rest_design)))
        finally:
            if hasattr(self.rig, "close"):
                self._told(session, "was let go", self.rig.close)

    def _told(self, session: Session, doing: str, call: Callable[[], Any]) -> None:
        try:
            self._asked(doing, call)
        except NestbedError as error:
            session.warn(str(error))

    def _seen(self, doing: str, call: Callable[[], Any]) -> np.ndarray:
        """Return numbers, NaN for what is masked."""
        answer = self._asked(doing, call)
        try:
            return np.ma.filled(np.ma.asarray(answer, float), np.nan)
        except (TypeError, ValueError):
            raise NestbedError(
                f"the rig answered {reprlib.repr(answer)} when it {doing}, but it must return one number for each "
                f"sensor, float('nan') where there is no measurement; {GOES_ON}"
            ) from None

    def _asked(self, doing: str, call: Callable[[], Any]) -> Any:
        try:
            with patience(self.longest):
                return call()
        except Unanswered as error:
            raise NestbedError(f"the rig did not answer for {self.longest:g} s when it {doing}; {GOES_ON}") from error
        except NestbedError:
            raise
        except Exception as error:
            raise NestbedError(f"the rig failed when it {doing}: {type(error).__name__}: {error}; {GOES_ON}") from error


GOES_ON = "nothing that was measured is lost: mend it, and go on with the session."


class _Clock:
    """Ticks of a rate: waits for the next, and tells when one is late."""

    def __init__(self, rate: float | None):
        self.rate, self.begun, self.ticks = rate, clocks.monotonic(), 0

    def tick(self, now: Drive, session: Session) -> float | None:
        """Wait for the end of this step; return the time of a late sample in the model's unit, None if on time."""
        if self.rate is None:
            return None
        self.ticks += 1
        early = self.begun + self.ticks / self.rate - clocks.monotonic()
        if early > -ON_TIME / self.rate:
            clocks.sleep(max(0.0, early))
            return None
        now.late += 1
        steps = 1.0 - early * self.rate
        self.begun -= early  # the next step is as long as any
        return session.time + steps * session.system.step
