"""A session and a rig, step by step, on a clock."""

import time as clocks
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nestbed.live.session import Session
from nestbed.numerics import interrupts
from nestbed.rigs import base

ON_TIME = 0.02
"""Share of a period by which a sample may come late and yet count as on time."""


@dataclass
class Drive:
    """How a session went on a rig."""

    session: Session
    late: int = 0  # samples that came late, and count with their real times
    ended: str = ""  # why it ended, as a sentence


def drive(
    session: Session, rig: Any, *, rate: float | None = None, watch: Callable[[Drive], None] | None = None
) -> Drive:
    """Run a session on a rig until it is done, or until Ctrl-C, which leaves the rig at its rest design.

    Args:
        session: new, or one to go on with: then the rig is started again, and its record begins anew.
        rig: any object with `reset() → y` and `apply(u) → y`; `close()`, if it has it, is called in the end.
        rate: samples per second; without one the rig itself says how long a step takes. A sample that comes late is
            counted and used with its real time, in steps of the model.
        watch: called after each step.
    """
    base.check(rig)
    now = Drive(session)
    try:
        session.warm()
        session.restart(rig.reset()) if session.step else session.update(rig.reset())
        clock = _Clock(rate)
        while not (done := session.done):
            interrupts.check()
            u = session.suggest()
            y = np.asarray(rig.apply(u), float)
            session.update(y, time=clock.tick(now, session))
            if watch is not None:
                watch(now)
        now.ended = done
    except BaseException as error:
        session.abort("stopped by hand" if isinstance(error, KeyboardInterrupt | SystemExit) else str(error))
        _rest(rig, session)
        now.ended = f"the session was ended: {session.aborted}."
        if not isinstance(error, KeyboardInterrupt):
            raise
    finally:
        if hasattr(rig, "close"):
            rig.close()
    return now


def _rest(rig: Any, session: Session) -> None:
    """Leave the rig at rest, as far as it still listens."""
    try:
        rig.apply(np.array(session.system.rest_design))
    except Exception as error:  # whatever a rig may raise, the first error is the one to tell
        session.warn(f"the rig did not take the rest design: {error}")


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
