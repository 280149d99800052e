"""All sessions of a server, each in a folder of its own: begun, found again after a restart, closed when idle."""

import asyncio
import re
import secrets
import time as clocks
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from nestbed.faces.server import course, expecting, facts
from nestbed.faces.server.facts import Facts
from nestbed.faces.server.forms import ID, Start
from nestbed.faces.server.hosted import Hosted
from nestbed.faces.server.offers import USUAL, Offers
from nestbed.faces.server.refusal import RefusedError, absent, conflict
from nestbed.numerics import storage
from nestbed.numerics.errors import NestbedError, did_you_mean
from nestbed.numerics.text import visible

SESSIONS = "sessions"
"""Where they are within the folder that is served."""
MOST_OPEN, MOST = 128, 2000
"""Sessions that are open at once, and that there may be in all."""


LEAVING = 10.0
"""Seconds that sessions may take to come to their end when the server stops; what was confirmed is on disk anyhow."""
AGAIN = 5.0
"""Seconds after which it is tried again to open a session that could not be opened."""


class Desk:
    """The sessions of one folder."""

    def __init__(self, folder: Path, offers: Offers):
        self.folder, self.offers = storage.writable(folder / SESSIONS), offers
        self.facts: dict[str, Facts] = {}
        self.broken: dict[str, str] = {}  # folders that cannot be read, and why
        self.open: dict[str, Hosted] = {}
        self.closing: dict[str, Future[None]] = {}  # until when each that was closed has its folder
        self.version = 0
        self.background = ThreadPoolExecutor(1, thread_name_prefix="background")  # what is dear, one at a time
        self.players: dict[str, asyncio.Task[None]] = {}
        self._find()

    def _find(self) -> None:
        for place in sorted(self.folder.iterdir()):
            if re.match(ID, place.name) and not place.is_symlink() and (place / facts.FILE).is_file():
                try:
                    self.facts[place.name] = facts.load(place)
                except NestbedError as error:
                    self.broken[place.name] = visible(str(error), keep="")

    def start(self) -> None:
        """Go on with the rigs that were playing when the server ended."""
        for name, known in self.facts.items():
            if known.playing:
                try:
                    self.play(name)
                except RefusedError:  # more of them than may be open
                    known.playing = False

    async def begin(self, form: Start) -> tuple[Hosted, bool]:
        """Begin a session, or find the one that the same request has begun; return whether it is new."""
        settings = form.settings()
        known = await asyncio.to_thread(self._checked, settings)
        if form.id is not None and form.id in {**self.facts, **self.broken}:
            return self._again(form.id, settings), False
        if len(self.facts) >= MOST:
            raise RefusedError(429, f"there are {MOST} sessions already; move some folders out of {self.folder.name}.")
        self._make_room()  # before anything of it is kept
        name = form.id or f"{re.sub('[^a-z0-9_]', '', known.system.lower())[:40]}-{secrets.token_hex(3)}"
        if any(not entry.name.startswith(".") for entry in storage.inside(self.folder, name).iterdir()):
            raise conflict(f"there is a folder {name!r} of something else already; choose another id.")
        begun = Facts(name, known.start, known.system, playing=known.playing)
        begun.save(self.folder / name)
        self.facts[name] = begun
        self.version += 1
        hosted = self.hosted(name)
        if begun.playing:
            self.play(name)
        return hosted, True

    def _again(self, name: str, settings: dict[str, Any]) -> Hosted:
        before = {**self.facts[name].start} if name in self.facts else {}
        if settings["seed"] is None:
            before["seed"] = None
        if settings["policy"] is None and settings["system"] is not None and before.get("policy") == USUAL:
            before["policy"] = None
        if before.get("rig") and settings["rig"]:
            before["rig"] = {
                **before["rig"],
                **{each: settings["rig"][each] for each in ("rate", "play")},
            }  # which change
        if before != settings:
            raise conflict(f"there is a session {name!r} already, with other settings; choose another id.")
        return self.hosted(name)

    def _checked(self, settings: dict[str, Any]) -> Facts:
        """Return what is kept of a new session, as far as can be seen without computing that it can be."""
        if settings["seed"] is None:
            settings = {**settings, "seed": secrets.randbelow(2**32)}
        if settings["system"] is not None and settings["policy"] is None:
            settings = {**settings, "policy": USUAL}
        system, parameters = self.offers.check(settings)
        rig = settings["rig"]
        for name in (*settings["target_sd"], *(rig["theta"] if rig else ())):
            if name not in parameters:
                raise NestbedError(f"{system} has no parameter {name!r}; {did_you_mean(name, parameters)}.")
        return Facts("", settings, system, playing=bool(rig and rig["play"]))

    def hosted(self, name: str) -> Hosted:
        """Return a session, opened if it is not yet."""
        if name in self.broken:
            raise conflict(f"the session cannot be opened: {self.broken[name]}")
        if name not in self.facts:
            shown = visible(name, keep="")[:80]
            raise absent(f"there is no session {shown!r} here; GET /sessions lists those there are.")
        before = self.open.get(name)
        if before is not None and before.status == "failed" and clocks.monotonic() - before.opened > AGAIN:
            self._let_go(name)  # what was in the way may be gone
        if name not in self.open:
            self._make_room()
            before_it = self.closing.pop(name, None)
            self.open[name] = Hosted(self.folder / name, self.facts[name], self.offers, before_it)
        self.open[name].used = clocks.monotonic()
        return self.open[name]

    def _make_room(self) -> None:
        idle = [each for each in self.open.values() if each.state in ("waiting", "done", "aborted", "failed")]
        if len(self.open) < MOST_OPEN:
            return
        if not idle:
            raise RefusedError(429, f"{MOST_OPEN} sessions are at work; wait for one of them.")
        oldest = min(idle, key=lambda each: each.used)
        self._let_go(oldest.facts.id)

    def _let_go(self, name: str) -> None:
        """Close a session, which takes as long as what is at work in it: nobody waits but who opens it again."""
        self.closing = {one: future for one, future in self.closing.items() if not future.done()}
        self.closing[name] = self.open.pop(name).close()

    def summaries(self) -> list[dict[str, Any]]:
        """Return all sessions, the newest first."""
        found = [self.open[name].summary() if name in self.open else self._closed(name) for name in self.facts]
        rest = [
            {"id": name, "title": name, "state": "failed", "failure": words, "created": 0.0}
            for name, words in self.broken.items()
        ]
        return sorted(found, key=lambda each: -each["created"]) + rest

    def _closed(self, name: str) -> dict[str, Any]:
        """Return what is known of a session that is not open."""
        known = self.facts[name]
        return {
            "id": name,
            "title": known.title,
            "system": known.system,
            "source": known.source,
            "created": known.created,
            "state": "aborted" if known.ending is not None else "closed",
            "simulated": known.start.get("rig") is not None,
            "horizon": known.start.get("horizon"),
            "seed": known.start.get("seed"),
            "aborted": known.ending,
            **course.last(self.folder / name),
        }

    def play(self, name: str) -> None:
        """Let a simulated rig play until there is nothing more to do, or it is told to stop."""
        if name not in self.players or self.players[name].done():
            self.players[name] = asyncio.get_running_loop().create_task(self._play(self.hosted(name)))

    async def _play(self, hosted: Hosted) -> None:
        going = True
        while going and hosted.facts.playing:
            begun = clocks.monotonic()
            try:
                going = await hosted.run(hosted.play)
            except RefusedError as error:
                going = error.status == 503
            except Exception as error:
                hosted.failure = visible(f"the simulated rig stopped: {error}", keep="")
                going = False
            period = 1.0 / float(hosted.facts.start["rig"]["rate"])
            await asyncio.sleep(max(0.0, begun + period - clocks.monotonic()))
        if hosted.facts.playing:
            hosted.facts.playing = False
            hosted.facts.save(hosted.folder)
        hosted.version += 1

    def expect(self, hosted: Hosted) -> None:
        """See that what is expected to be gained becomes known, some time."""
        if hosted.expected is None and hosted.status == "ready":
            hosted.expected = {"state": "waiting"}
            self.background.submit(expecting.expect, hosted)

    def close(self) -> None:
        """Close all of them."""
        for task in self.players.values():
            task.cancel()
        self.background.shutdown(wait=False, cancel_futures=True)
        wait([*self.closing.values(), *(hosted.close() for hosted in self.open.values())], LEAVING)
