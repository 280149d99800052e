"""One session and the thread that alone works on it: a slow one keeps no other waiting."""

import asyncio
import contextlib
import math
import time as clocks
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from nestbed.faces.server import knowing, measuring, opening
from nestbed.faces.server.course import Course
from nestbed.faces.server.facts import Facts
from nestbed.faces.server.offers import Offers, describe
from nestbed.faces.server.refusal import conflict, unready
from nestbed.numerics.errors import NestbedError
from nestbed.numerics.text import visible

if TYPE_CHECKING:
    from nestbed.faces.server.forms import Measurement
    from nestbed.faces.server.reporting import Report
    from nestbed.live.session import Session

T = TypeVar("T")
LAST = 50
"""Warnings that are told."""
PATIENCE = 20.0
"""Seconds after which a request is told to come again; what it asked for goes on."""


class Hosted:
    """A session of a server."""

    def __init__(self, folder: Path, facts: Facts, offers: Offers, closing: Future[None] | None = None):
        """Open it in its thread, once another that has its folder is closed."""
        self.folder, self.facts, self.offers = folder, facts, offers
        self.course = Course(folder)
        self.version = 0  # grows with each change that watchers should hear of
        self.status, self.failure = "preparing", ""
        self.setup: dict[str, Any] | None = None
        self.expected: dict[str, Any] | None = None
        self.report: Report | None = None
        self.used = self.opened = clocks.monotonic()
        self._now: dict[str, Any] = self.course.ended()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix=facts.id)
        self._session: Session | None = None
        self._played: opening.Played | None = None
        self._settled = self._noted = -1  # the steps whose next design is known, and whose course is kept
        self.opening = self._worker.submit(self._open, closing)

    # For requests

    async def run(self, work: Callable[[], T], patience: float = PATIENCE) -> T:
        """Let the thread do something; where it takes long, say so, and let it go on."""
        self.used = clocks.monotonic()
        try:
            future = asyncio.wrap_future(self._worker.submit(work))
        except RuntimeError:  # of a thread that takes no more work
            raise unready(f"the session {self.facts.id} is being closed") from None
        try:
            return await asyncio.wait_for(asyncio.shield(future), patience)
        except TimeoutError:
            future.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise unready(f"the session {self.facts.id} is {self.state}") from None

    @property
    def state(self) -> str:
        """What it is doing, in a word."""
        if self.status in ("preparing", "failed"):
            return self.status
        if self.facts.ending is not None:
            return "aborted"
        if self._now.get("done"):
            return "done"
        return "playing" if self.facts.playing else "waiting"

    def summary(self) -> dict[str, Any]:
        """Return what is known without the thread."""
        return {
            "id": self.facts.id,
            "title": self.facts.title,
            "system": self.facts.system,
            "source": self.facts.source,
            "created": self.facts.created,
            "state": self.state,
            "simulated": self.facts.start.get("rig") is not None,
            "rate": (self.facts.start.get("rig") or {}).get("rate"),
            "seed": self.facts.start.get("seed"),
            "failure": self.failure,
            "aborted": self.facts.ending,
            "step": 0,
            "horizon": self.facts.start.get("horizon"),
            "gain": 0.0,
            "begun": False,
            "done": None,
            "warnings": [],
            "warned": 0,
            **self._now,
        }

    def design(self) -> dict[str, Any]:
        """Return the next design; the rest design once there is nothing more to do."""
        session = self._ready()
        self._settle(session)
        u = session.suggest() if self._next() is not None else np.array(session.system.rest_design)
        named = dict(zip(session.system.design_names, u.tolist(), strict=True))
        if session.watchdog is not None and named != self._now["design"] and self._next() is not None:
            self._publish(session, u)
        return {"step": session.step + 1, "design": named, "done": self._now["done"]}

    def measure(self, form: "Measurement") -> dict[str, Any]:
        """Take in what was seen, once."""
        session = self._ready()
        if form.step <= session.step and session.first is not None:
            measuring.check_same(session, form)
        else:
            if session.first is not None:
                self._settle(session)
            if self.over:
                raise conflict(self.over)
            self._note(session)
            measuring.take(session, form, self.course)
            self._soon(lambda: self._settle(session))
        if words := session.unwritten():
            raise unready(words.rstrip("."))
        return measuring.answer(session, form.step)

    def posterior(self) -> dict[str, Any]:
        """Return what is known now."""
        session = self._ready()
        if session.first is None:
            raise conflict(
                "nothing is known yet but the prior: give the first measurement (step 0), or ask for a design."
            )
        return knowing.posterior(session)

    def end(self, why: str) -> None:
        """End it: known at once, whatever its thread does, and kept if the server ends now."""
        first = self.facts.ending is None
        if first:
            self.facts.ending, self.facts.playing = visible(why, keep=""), False
            self.version += 1
        self._soon(self._end)
        if first:
            self._guarded(lambda: self.facts.save(self.folder))  # a full disk does not keep it from ending

    def extend(self, horizon: int) -> None:
        """Plan for as many experiments in all."""
        session = self._ready()
        if horizon < session.step:
            raise NestbedError(f"{session.step} experiments are done already, so the horizon cannot be {horizon}.")
        session.extend(horizon)
        self._settled, self._now["done"] = -1, None
        self._settle(session)

    def play(self) -> bool:
        """Let the simulated rig do one experiment; return whether there is more to do."""
        session = self._ready()
        played = self._played
        if played is None:
            raise conflict("this session has no simulated rig; its measurements come from outside.")
        if session.first is None:
            session.update(played.rig.reset())
        self._settle(session)
        if self.over or not self.facts.playing:
            return False
        self._note(session)
        played.play(session)
        self._settle(session)
        return self._next() is not None

    def steer(self, play: bool, rate: float | None) -> None:
        """Let the simulated rig play, or pause it."""
        if play and self.over:
            raise conflict(self.over)
        if rate is not None:
            self.facts.start["rig"]["rate"] = rate
        self.facts.playing = play
        self.facts.save(self.folder)
        self.version += 1

    @property
    def over(self) -> str | None:
        """Why there is nothing more to do, as far as is known."""
        if self.facts.ending is not None:
            return f"the session was ended: {self.facts.ending}."
        return self._now.get("done")

    @property
    def rest(self) -> dict[str, float] | None:
        """The rest design, once it is known."""
        return self._now.get("rest")

    def close(self) -> Future[None]:
        """Let others have the folder, once what is at work is done."""
        closing = self._worker.submit(self._close)
        self._worker.shutdown(wait=False)
        return closing

    @property
    def session(self) -> "Session":
        """The session, for work of its thread."""
        return self._ready()

    # In the thread

    def _open(self, closing: Future[None] | None) -> None:
        """Open the session, or say why that cannot be."""
        wait([] if closing is None else [closing])
        try:
            self._guarded(self._opened, again=True)
        except Exception as error:
            self.status, self.failure = "failed", visible(str(error), keep="")
            self.version += 1

    def _opened(self) -> None:
        self.setup = describe(self.offers.system(self.facts.system))
        self.version += 1
        with opening.turn(self.facts.system):
            session, rig = opening.opened(self.folder, self.facts, self.offers)
            self._session = session
            self._played = None if rig is None else opening.Played(rig)
            self._publish(session, None)
            if session.aborted is None:
                session.warm()
        if rig is not None and session.first is None and session.aborted is None:
            session.update(rig.reset())
        if session.first is not None:
            self._settle(session)
        self.status = "ready"
        self.version += 1

    def _ready(self) -> "Session":
        if self.status == "failed":
            raise conflict(f"the session cannot be opened: {self.failure}")
        if self._session is None:
            raise unready(f"the session {self.facts.id} is {self.state}")
        return self._session

    def _next(self) -> dict[str, float] | None:
        found: dict[str, float] | None = self._now.get("design")
        return found if self.facts.ending is None else None

    def _settle(self, session: "Session") -> None:
        """Find the next design, tell it, and keep the course."""
        if self._settled != session.step:
            done = f"the session was ended: {session.aborted}." if session.aborted else session.done
            u = None if done else session.suggest()
            self._settled = session.step
            self._now["done"] = done
            self._publish(session, u)
        if self._noted != session.step:
            self._soon(lambda: self._note(session))

    def _note(self, session: "Session") -> None:
        """Keep what is known after the step at hand, while it is."""
        if session.first is not None and self._noted != session.step:
            if self.course.step < session.step:
                u = self._next()
                self.course.note(session, None if u is None else np.array([*u.values()]))
            self._noted = session.step
            self.version += 1

    def _publish(self, session: "Session", u: np.ndarray | None) -> None:
        names = session.system.design_names
        over = self.facts.ending is not None or self._now.get("done")
        self._now = {
            "step": session.step,
            "time": session.time,
            "horizon": session.horizon,
            "gain": session.gain if math.isfinite(session.gain) else None,
            "begun": session.first is not None,
            "design": None if u is None else dict(zip(names, u.tolist(), strict=True)),
            "rest": dict(zip(names, session.system.rest_design, strict=True)),
            "done": self._now.get("done"),
            "warnings": [visible(each, keep="") for each in session.warnings[-LAST:]],
            "warned": len(session.warnings),
            "truth": self._played.rig.parameters if self._played is not None and over else None,
        }
        self.version += 1

    def _end(self) -> None:
        session = self._session
        if session is not None and session.aborted is None:
            session.abort(self.facts.ending or "asked for")
        if session is not None:
            self._settled = -1
            self._settle(session)

    def _close(self) -> None:
        if self._session is not None:
            with contextlib.suppress(Exception):
                if self._session.first is not None:
                    self._settle(self._session)
                    self._note(self._session)
            with contextlib.suppress(Exception):
                self._session.close()

    def _soon(self, work: Callable[[], None]) -> None:
        """Let the thread do something that nobody waits for; where it takes no more, closing or opening does it."""
        with contextlib.suppress(RuntimeError):
            self._worker.submit(self._guarded, work)

    def _guarded(self, work: Callable[[], None], again: bool = False) -> None:
        """Do what nobody waits for; if it fails, say so among the warnings of the session."""
        try:
            work()
        except Exception as error:
            if again:
                raise
            if self._session is not None:
                self._session.warn(f"{type(error).__name__}: {error}")
                self._publish(self._session, None)
