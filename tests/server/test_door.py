"""Who comes in."""

import pytest
from starlette.websockets import WebSocketDisconnect

from clients import HERE, LIVE, begin, sentence, watching
from nestbed.faces.server.app import called, local
from nestbed.faces.server.door import LARGEST, Door
from nestbed.faces.server.running import checked
from nestbed.numerics.errors import NestbedError

TOKEN = "a-token-of-twenty-characters"
RIGHT = {"authorization": f"Bearer {TOKEN}"}


def test_only_its_own_names_and_pages(serve):
    client = serve()
    assert client.get("/sessions").status_code == 200
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost@evil.example", "", "10.0.0.1", "[::1"):
        assert "not called" in sentence(client.get("/sessions", headers={"host": host}), 421)
    for origin in ("http://evil.example", "null", "http://127.0.0.1:9999", "https://127.0.0.1.evil.example:8765"):
        assert "may not use" in sentence(client.get("/sessions", headers={"origin": origin}), 403)
    assert client.get("/sessions", headers={"origin": HERE}).status_code == 200
    path = begin(client)
    for site in ("cross-site", "same-site"):  # a picture of another page has no origin, and would begin the session
        assert "other places" in sentence(client.get(f"{path}/design", headers={"sec-fetch-site": site}), 403)
        assert client.get("/", headers={"sec-fetch-site": site}).status_code == 200
    assert client.get("/sessions", headers={"sec-fetch-site": "same-origin"}).status_code == 200
    with (
        pytest.raises(WebSocketDisconnect),
        client.websocket_connect(LIVE, headers={"origin": "http://evil.example"}),
    ):
        pass


def test_everything_but_the_page_needs_the_token(serve):
    client = serve(token=TOKEN)
    for path in ("/", "/page/main.js", "/openapi.json"):
        assert client.get(path).status_code == 200
    for headers in ({}, {"authorization": TOKEN}, {"authorization": f"Bearer {TOKEN}x"}, {"authorization": "Bearer ü"}):
        sent = {name: value.encode("utf-8") for name, value in headers.items()}
        assert "token" in sentence(client.get("/sessions", headers=sent), 401)
        sentence(client.post("/sessions", json={}, headers=sent), 401)
    assert sentence(client.get(f"/sessions?token={TOKEN}"), 401)
    assert client.get("/sessions", headers=RIGHT).status_code == 200
    for token in ("", "wrong", None):
        with watching(client, {"watch": "sessions", "token": token}) as socket:
            with pytest.raises(WebSocketDisconnect) as told:
                socket.receive_json()
            assert told.value.code == 4401
    with client.websocket_connect(LIVE) as socket:
        socket.send_bytes(b"{}")
        with pytest.raises(WebSocketDisconnect) as told:
            socket.receive_json()
        assert told.value.code == 4400
    with watching(client, {"watch": "sessions", "token": TOKEN}) as socket:
        assert socket.receive_json()["kind"] == "sessions"


def test_a_door_left_open_is_noticed(serve, monkeypatch):
    """The tests above see a door that lets everyone in."""
    monkeypatch.setattr(Door, "refusal", lambda self, scope: None)
    client = serve(token=TOKEN)
    assert client.get("/sessions", headers={"host": "evil.example"}).status_code == 200


def test_no_more_is_read_than_a_request_may_bring(serve):
    client = serve()
    kind = {"content-type": "application/json"}
    path = begin(client)
    sentence(client.post(f"{path}/measurements", content=b" " * (LARGEST + 1), headers=kind), 413)
    pieces = (b" " * 1000 for _ in range(LARGEST // 1000 + 2))
    sentence(client.post(f"{path}/measurements", content=pieces, headers=kind), 413)
    sentence(client.post(f"{path}/measurements", content=b"{}", headers={"content-type": "text/plain"}), 415)
    for body in ("x", "[]", '{"watch": 1}', "[" * 10_000):
        with watching(client, body) as socket, pytest.raises(WebSocketDisconnect) as told:
            socket.receive_json()
        assert told.value.code == 4400


def test_the_page_may_load_nothing_from_elsewhere(serve):
    client = serve()
    for path in ("/", "/page/style.css", "/sessions"):
        policy = client.get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
    page = client.get("/").text
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    for path in ("/page/../app.py", "/page/%2e%2e/app.py", "/page/..%2fapp.py", "/docs", "/redoc", "/page/"):
        sentence(client.get(path), 404)
    sentence(client.delete("/sessions"), 405)


def test_elsewhere_a_token_is_needed():
    assert checked(None, "127.0.0.1") is None
    assert checked(None, "::1") is None
    assert len(checked(None, "0.0.0.0")) >= 32
    assert checked(None, "0.0.0.0") != checked(None, "0.0.0.0")
    assert checked(TOKEN, "localhost") == TOKEN
    for bad in ("short", "with a space in the middle", "ünprintable-in-a-header"):
        with pytest.raises(NestbedError, match="give at least 16"):
            checked(bad, "0.0.0.0")
    assert local("localhost")
    assert not local("example.org")
    assert not called("127.0.0.1", ())["literals"]
    assert called("0.0.0.0", ("rig.local",))["literals"]
    assert Door(None, names=("rig.local",))._named("RIG.local:80")
