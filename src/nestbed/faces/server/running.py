"""A server that listens, until it is asked to stop."""

import contextlib
import secrets
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvicorn

from nestbed.faces.server.app import build, called, local
from nestbed.faces.server.door import LARGEST, SHORTEST
from nestbed.faces.terminal import say
from nestbed.numerics import interrupts
from nestbed.numerics.errors import NestbedError

MOST = 1024
"""Connections at once."""


def run(folder: Path, systems: Sequence[str], *, host: str, port: int, token: str | None, names: Sequence[str]) -> None:
    """Serve a folder until Ctrl-C."""
    if not folder.is_dir():
        raise NestbedError(f"there is no folder {folder}; make it first, or name another.")
    key = checked(token, host)
    listening = _listening(host, port)
    app = build(folder, systems, token=key, **called(host, names))
    shown = f"[{host}]" if ":" in host else host
    say(f"Serving {folder.resolve()} at http://{shown}:{listening.getsockname()[1]}/")
    if key is None:
        say("Only this machine can reach it.")
    elif token is None:
        say(f"Others can reach it with this token, which the page asks for: {key}")
    else:
        say("It needs the token that was given, which the page asks for.")
    threading.Thread(target=_ready, daemon=True).start()
    settings: dict[str, Any] = {"access_log": False, "log_level": "warning", "server_header": False}
    settings |= {"ws_max_size": LARGEST, "limit_concurrency": MOST, "timeout_graceful_shutdown": 3}
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(uvicorn.Config(app, **settings)).run(sockets=[listening])
    interrupts.taken()
    say("Stopped; every session is kept.")
    interrupts.leave(0)  # threads that still compute have nothing to say


def checked(token: str | None, host: str) -> str | None:
    """Return the token that requests must bring, made if there must be one; None: they need none."""
    if token is None:
        return None if local(host) else secrets.token_urlsafe(24)
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise NestbedError(
            f"the token has {len(token)} characters; give at least {SHORTEST}, printable and without spaces, or "
            "none and one is made."
        )
    return token


def _listening(host: str, port: int) -> socket.socket:
    if not 0 <= port < 2**16:
        raise NestbedError(f"the port is {port}, but it must be a number from 0 to {2**16 - 1}.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        raise NestbedError(f"cannot listen at {host}, port {port}: {error.strerror}; choose another.") from None
    return found


def _ready() -> None:
    """Load what the first session needs while nobody waits for it yet."""
