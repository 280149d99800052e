"""A server in this process, whose sessions are not warmed: each step compiles what it needs, once for all."""

import functools

import pytest
from fastapi.testclient import TestClient

import nestbed as nb
import nestbed.systems
import stopping
from clients import HERE, stop
from nestbed.faces.server import desk
from nestbed.faces.server.app import build

LOAD = functools.cache(nestbed.systems.load)
"""One system for all servers of these tests, so that its programs are compiled once."""


@pytest.fixture(autouse=True)
def cold(monkeypatch):
    monkeypatch.setattr(nb.Session, "warm", lambda self: None)
    monkeypatch.setattr(nestbed.systems, "load", LOAD)
    monkeypatch.setattr(desk, "LEAVING", 300.0)  # what is compiled meanwhile may take long


@pytest.fixture
def serve(tmp_path):
    """Return what serves a folder, by default a new one; one that was served before goes on."""
    clients = []

    def serving(folder=tmp_path, **door):
        door = {"names": {"127.0.0.1"}, **door}
        client = TestClient(build(folder, [stopping.TANK], **door), base_url=HERE, raise_server_exceptions=False)
        client.__enter__()
        clients.append(client)
        return client

    yield serving
    for client in clients:
        stop(client)
