"""The application: its door, its routes, its page; every mistake is answered by one sentence."""

import contextlib
import sys
import traceback
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from nestbed import __version__
from nestbed.faces.server import answers, kept, sessions, watching
from nestbed.faces.server.archive import Archive
from nestbed.faces.server.desk import Desk
from nestbed.faces.server.door import Door
from nestbed.faces.server.offers import Offers
from nestbed.faces.server.refusal import RETRY
from nestbed.numerics.errors import NestbedError
from nestbed.numerics.text import sentence

PAGE = Path(__file__).parent / "page"
ABOUT = """Sessions on rigs: the next design out, the measurement in, while the posterior sharpens.

All numbers are in the units of the system (`GET /systems/{name}`); gains are in nats. Every error is `{"error": "one
sentence"}`. Start a session, then repeat: `GET /sessions/{id}/design`, apply it, `POST /sessions/{id}/measurements`
with the `step` of that design. A request that got no answer, or 503, can be sent again and does no harm. Where the
server has a token, each request brings it as `Authorization: Bearer TOKEN`.
"""
PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": answers.Problem, "description": "It cannot be read."},
    401: {"model": answers.Problem, "description": "The token is missing or wrong."},
    413: {"model": answers.Problem, "description": "It is too large."},
    415: {"model": answers.Problem, "description": "It is not JSON."},
    422: {"model": answers.Problem, "description": "It cannot be meant."},
}


def build(folder: Path, systems: Sequence[str] = (), **door: Any) -> FastAPI:
    """Return the application that serves a folder; `door` is what its `Door` is told."""
    desk = Desk(folder, Offers(Archive(folder), systems))

    @contextlib.asynccontextmanager
    async def living(app: FastAPI) -> AsyncIterator[None]:
        desk.start()
        yield
        desk.close()

    app = FastAPI(
        title="nestbed",
        version=__version__,
        description=ABOUT,
        lifespan=living,
        docs_url=None,
        redoc_url=None,
        responses=PROBLEMS,
    )
    app.state.desk, app.state.door = desk, Door(None, **door)
    app.add_middleware(Door, **door)
    app.mount("/page", StaticFiles(directory=PAGE))
    for router in (sessions.router, watching.router, kept.router):
        app.include_router(router)
    app.add_exception_handler(NestbedError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unforeseen)

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html")

    return app


def _problem(status: int, words: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": sentence(words)}, status, headers)


async def _refused(request: Request, error: Any) -> JSONResponse:
    status = getattr(error, "status", 422)
    return _problem(status, str(error), {"retry-after": str(RETRY)} if status == 503 else None)


async def _invalid(request: Request, error: Any) -> JSONResponse:
    """Say the first thing that is wrong with a request."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return _problem(422, "the body is not JSON; see GET /openapi.json for what is expected.")
    place = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    words = str(first["msg"])[:300]
    return _problem(422, f"{place[:200]}: {words[:1].lower()}{words[1:]}; see GET /openapi.json for what is expected.")


async def _http(request: Request, error: Any) -> JSONResponse:
    words = {
        400: "the body cannot be read as JSON",
        404: "there is nothing at this address",
        405: "this address does not take that method",
    }
    told = words.get(error.status_code, str(error.detail))
    return _problem(error.status_code, f"{told.rstrip('.')}; see GET /openapi.json.", error.headers)


async def _unforeseen(request: Request, error: Exception) -> JSONResponse:
    traceback.print_exception(error, file=sys.stderr)
    return _problem(500, "the server failed at this, which is a mistake of nestbed's own; what was confirmed is kept.")


def called(host: str, more: Iterable[str]) -> dict[str, Any]:
    """Return what a server that listens at an address may be called."""
    import socket

    own = {"localhost", "127.0.0.1", "::1"}
    if local(host):
        return {"names": own | {*more}, "literals": False}
    return {"names": own | {host, socket.gethostname(), socket.getfqdn(), *more}, "literals": True}


def local(host: str) -> bool:
    """Return whether only programs on this machine can reach the address."""
    import ipaddress

    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
