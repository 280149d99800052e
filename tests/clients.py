"""What clients of a server do in tests."""

import contextlib
import json
import time
from concurrent.futures import CancelledError

HERE = "http://127.0.0.1:8765"
LIVE = "ws://127.0.0.1:8765/live"
START = {"system": "Tank", "policy": "prbs", "horizon": 4, "particles": 16, "seed": 0}
PATIENCE = 300.0


def stop(client):
    if client.portal is not None:
        client.__exit__(None, None, None)
        client.portal = None


def begin(client, name="one", **changes):
    answer = client.post("/sessions", json={"id": name, **START, **changes})
    assert answer.status_code in (200, 201), answer.text
    return f"/sessions/{name}"


def design(client, path):
    """Return the next design."""
    answer = patiently(lambda: client.get(f"{path}/design"))
    assert answer.status_code == 200, answer.text
    return answer.json()


def measure(client, path, step, level=1.1, **more):
    body = {"step": step, "y": {"level": level}, **more}
    return patiently(lambda: client.post(f"{path}/measurements", json=body))


def patiently(ask):
    """Ask again as long as the answer is 503."""
    return until(ask, lambda answer: answer.status_code != 503)


def until(look, wanted=bool):
    """Look until it is as wanted, and return what was seen."""
    end = time.monotonic() + PATIENCE
    while not wanted(found := look()):
        assert time.monotonic() < end, found
        time.sleep(0.02)
    return found


def sentence(answer, status):
    """Return the sentence of a refusal, if it is one."""
    assert answer.status_code == status, answer.text
    words = answer.json()["error"]
    assert isinstance(words, str)
    assert len(words) > 15
    assert "\n" not in words
    return words


@contextlib.contextmanager
def watching(client, first):
    """Open the live connection with a first message; that the server may be cut off in the end is no mistake."""
    with contextlib.suppress(CancelledError), client.websocket_connect(LIVE) as socket:
        socket.send_text(first if isinstance(first, str) else json.dumps(first))
        yield socket
