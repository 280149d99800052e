"""What pages are told as it happens, over a WebSocket whose first message says what is watched, with the token."""

import asyncio
import json
from typing import Any

from fastapi import APIRouter, WebSocket, WebSocketDisconnect

from nestbed.faces.server.desk import Desk
from nestbed.faces.server.hosted import Hosted
from nestbed.faces.server.refusal import RefusedError
from nestbed.numerics import storage
from nestbed.numerics.errors import NestbedError
from nestbed.numerics.text import visible

router = APIRouter()
OFTEN, SELDOM = 0.1, 1.0
"""Seconds from one look at a session to the next, and at the folder."""
FIRST = 10.0
"""Seconds that the first message may take."""


@router.websocket("/live")
async def live(socket: WebSocket) -> None:
    """Tell a page what it watches until it goes."""
    await socket.accept()
    try:
        wish = _wish(await asyncio.wait_for(socket.receive_text(), FIRST))
        if not socket.app.state.door.knows(str(wish.get("token") or "")):
            await socket.close(4401, "this server needs its token.")
            return
        gone = asyncio.ensure_future(_gone(socket))
        telling = asyncio.ensure_future(_tell(socket, wish))
        await asyncio.wait({gone, telling}, return_when=asyncio.FIRST_COMPLETED)
        for task in (gone, telling):
            task.cancel()
        await asyncio.gather(gone, telling, return_exceptions=True)
    except (WebSocketDisconnect, RuntimeError):
        return
    except (TimeoutError, ValueError, KeyError):  # the last: it is no text
        await socket.close(4400, "the first message says what is watched, as JSON.")


def _wish(text: str) -> dict[str, Any]:
    found = storage.parse_json(text)
    if not isinstance(found, dict) or found.get("watch") not in ("session", "sessions", "kept"):
        raise ValueError("it is something else")
    return found


async def _gone(socket: WebSocket) -> None:
    while True:
        await socket.receive_text()


async def _tell(socket: WebSocket, wish: dict[str, Any]) -> None:
    desk: Desk = socket.app.state.desk
    try:
        if wish["watch"] == "session":
            await _session(socket, desk, str(wish.get("id")))
        elif wish["watch"] == "sessions":
            await _changes(socket, "sessions", lambda: asyncio.sleep(0, desk.summaries()), 0.5)
        else:
            await _changes(socket, "kept", lambda: asyncio.to_thread(_kept, desk), SELDOM)
    except NestbedError as error:
        await socket.send_json({"kind": "error", "error": visible(str(error), keep="")})
        await socket.close(4404, "it cannot be watched.")


async def _changes(socket: WebSocket, kind: str, look: Any, seconds: float) -> None:
    """Tell a list whenever it has changed."""
    before = ""
    while True:
        now = json.dumps({"kind": kind, "list": await look()})
        if now != before:
            await socket.send_text(now)
            before = now
        await asyncio.sleep(seconds)


def _kept(desk: Desk) -> dict[str, Any]:
    return {kind: desk.offers.archive.listed(kind[:-1]) for kind in ("runs", "designs", "comparisons")}


async def _session(socket: WebSocket, desk: Desk, name: str) -> None:
    """Tell how a session goes: what is new of its course, and the posterior as often as there is time for it."""
    hosted, version, sent = desk.hosted(name), -1, -1
    known, asked = -1, None
    while True:
        desk.expect(hosted)
        if hosted.version != version or desk.open.get(name) is not hosted:
            hosted = desk.hosted(name)
            version, steps = hosted.version, [*hosted.course.lines]
            news = [line for line in steps if line["step"] > sent]
            told = {"session": {**hosted.summary(), "setup": hosted.setup}, "course": news, "expected": hosted.expected}
            await socket.send_json({"kind": "session", "first": sent < 0, **told})
            sent = steps[-1]["step"] if steps else -1
        if asked is None and hosted.status == "ready" and hosted.course.step > known:
            known, asked = hosted.course.step, asyncio.ensure_future(_posterior(hosted))
        if asked is not None and asked.done():
            if (found := asked.result()) is not None:
                await socket.send_json({"kind": "posterior", "posterior": found})
            asked = None
        await asyncio.sleep(OFTEN)


async def _posterior(hosted: Hosted) -> dict[str, Any] | None:
    try:
        return await hosted.run(hosted.posterior)
    except (RefusedError, NestbedError):
        return None
