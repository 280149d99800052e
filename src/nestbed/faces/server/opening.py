"""How a session is opened: from what its folder says, with its simulated rig if it has one."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from nestbed.faces.server.facts import Facts
from nestbed.faces.server.offers import Offers

if TYPE_CHECKING:
    from nestbed.live.session import Session
    from nestbed.rigs.simulated import Simulated

OPTIONS = ("particles", "risk", "gaps", "watchdog", "stop_below")
"""Settings that a session takes as they are."""
_turns: dict[str, threading.Lock] = {}
_making = threading.Lock()


@contextlib.contextmanager
def turn(system: str) -> Iterator[None]:
    """Let one session of a system be prepared at a time: the first compiles for all."""
    with _making:
        lock = _turns.setdefault(system, threading.Lock())
    with lock:
        yield


def opened(folder: Path, facts: Facts, offers: Offers) -> "tuple[Session, Simulated | None]":
    """Return the session of a folder, new or to go on with, and its rig."""
    import jax

    from nestbed.live.session import Session
    from nestbed.rigs.simulated import Simulated

    start, offer = facts.start, offers.find(facts.start)
    key = jax.random.key(start["seed"])
    session = Session(
        offer.system,
        offer.policy,
        key,
        directory=folder,
        horizon=start.get("horizon") or offer.horizon,
        target_sd=start.get("target_sd") or None,
        **{name: start[name] for name in OPTIONS if name in start},
    )
    if facts.ending is not None:
        session.abort(facts.ending)
    if start.get("rig") is None:
        return session, None
    return session, Simulated(offer.system, jax.random.fold_in(key, 1), start["rig"]["theta"])


class Played:
    """A simulated rig that is where its session is: what it shows hangs on the designs alone."""

    def __init__(self, rig: "Simulated"):
        self.rig, self.done = rig, -1

    def follow(self, session: "Session") -> None:
        """Give the rig the designs that it does not know yet, after a restart or measurements by hand."""
        if self.done < 0:
            self.rig.reset()
            self.done = 0
        for each in session.history[self.done :]:
            self.rig.apply(each.applied)
            self.done += 1

    def play(self, session: "Session") -> None:
        """Do one experiment."""
        self.follow(session)
        y = self.rig.apply(session.suggest())
        self.done += 1
        session.update(y)
