"""Who comes in: the right names of this server, pages of its own, a token where one is needed, no more than is read.

It stands before everything else, so that nothing behind it has to think of these.
"""

import asyncio
import hashlib
import hmac
import ipaddress
import json
from collections.abc import Iterable
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException

from nestbed.numerics.text import sentence

LARGEST = 2**16
"""Bytes that a request may bring."""
PATIENCE = 20.0
"""Seconds from one piece of a request to the next."""
SHORTEST = 16
"""Characters of a token that is good enough."""
OPEN = ("/", "/openapi.json", "/page/")
"""What anyone may read: the page itself, which holds no data, and the description of the interface."""
FOREIGN = ("cross-site", "same-site")
"""What browsers say of requests that other pages make, those without an `Origin` too: of pictures, links and forms."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Door:
    """An ASGI application before another one."""

    def __init__(self, app: Any, *, token: str | None = None, names: Iterable[str] = (), literals: bool = False):
        """Stand before an application.

        Args:
            app: what is behind.
            token: what requests must bring as `Authorization: Bearer …`; None: nothing.
            names: by which this server may be called.
            literals: whether any address in numbers is one of its names too: no foreign page can take these on.
        """
        self.app = app
        self.digest = None if token is None else _digest(token)
        self.names, self.literals = frozenset(each.lower() for each in names), literals

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Let a request through, or say why not."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        refused = self.refusal(scope)
        if refused and scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 4403, "reason": refused[1][:100]})
        elif refused:
            await _answer(send, *refused)
        elif scope["type"] == "websocket":
            await self.app(scope, receive, send)
        else:
            await self.app(scope, _limited(receive), _with_headers(send, scope["path"]))

    def refusal(self, scope: Any) -> tuple[int, str] | None:
        """Return status and sentence of what is wrong with a request's head, if anything is."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._named(hosts[0]):
            shown = sentence(", ".join(hosts))[:100]
            return 421, f"this server is not called {shown!r}; start it with --name to give it that name too."
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{hosts[0].lower()}", f"https://{hosts[0].lower()}"):
            return 403, f"pages of {sentence(origin)[:100]!r} may not use this server; open its own page."
        if headers.get("sec-fetch-site") in FOREIGN and not _is_open(scope["path"]):
            return 403, "pages of other places may not use this server; open its own page."
        if scope["type"] == "websocket":
            return None  # its first message brings the token
        return self._unfit(scope, headers)

    def _unfit(self, scope: Any, headers: Headers) -> tuple[int, str] | None:
        path = scope["path"]
        if not _is_open(path) and not self.knows(_bearer(headers)):
            return (
                401,
                "this server needs its token, as the header 'Authorization: Bearer TOKEN'; it printed it at start.",
            )
        size = headers.get("content-length", "0")
        if not size.isdecimal() or int(size[:20]) > LARGEST:
            return 413, f"a request may bring {LARGEST} bytes at most."
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if scope["method"] == "POST" and kind != "application/json" and size != "0":
            return (
                415,
                f"the body is {sentence(kind)[:60] or 'of no type'!r}; send application/json.",
            )
        return None

    def knows(self, token: str) -> bool:
        """Return whether this is the token, in a time that does not tell how much of it is right."""
        return self.digest is None or hmac.compare_digest(self.digest, _digest(token))

    def _named(self, host: str) -> bool:
        name = host.lower()
        name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
        if name in self.names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return self.literals


def _is_open(path: str) -> bool:
    return path in OPEN or path.startswith(OPEN[-1])


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _bearer(headers: Headers) -> str:
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def _limited(receive: Any) -> Any:
    """Return what hands on a request's body as long as it is not too large and does not stall."""
    taken, more = 0, True

    async def limited() -> Any:
        nonlocal taken, more
        if not more:
            return await receive()  # waits for the other side to go
        try:
            message = await asyncio.wait_for(receive(), PATIENCE)
        except TimeoutError:
            raise HTTPException(408, f"nothing more of the request came for {PATIENCE:g} s.") from None
        taken += len(message.get("body", b""))
        more = bool(message.get("more_body", False))
        if taken > LARGEST:
            raise HTTPException(413, f"a request may bring {LARGEST} bytes at most.")
        return message

    return limited


def _with_headers(send: Any, path: str) -> Any:
    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("cache-control", "no-cache" if _is_open(path) else "no-store")
        await send(message)

    return sending


async def _answer(send: Any, status: int, words: str) -> None:
    body = json.dumps({"error": words}).encode()
    headers = {**HEADERS, "content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    start = {"type": "http.response.start", "status": status}
    await send({**start, "headers": [(k.encode(), v.encode()) for k, v in headers.items()]})
    await send({"type": "http.response.body", "body": body})
