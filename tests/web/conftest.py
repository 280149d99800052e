"""A server in a process of its own, and a real Chromium."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.request

import pytest

import children

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)


class Server:
    """`nestbed serve` on a folder, at the same port each time it is started."""

    def __init__(self, folder, *options, environment=None):
        self.folder, self.options, self.port = folder, options, 0
        self.environment = {**os.environ, **(environment or {})}

    def start(self):
        self.stack = contextlib.ExitStack()
        command = (*children.NESTBED, "serve", self.folder, "--port", self.port, *self.options)
        streams = {"stderr": subprocess.STDOUT, "env": self.environment}
        self.process = self.stack.enter_context(children.running(*command, **streams))
        self.said = [self.process.stdout.readline()]
        found = re.search(r":(\d+)/", self.said[0])
        assert found, self.said[0] + self.process.stdout.read()
        self.port = int(found[1])
        self.address = f"http://127.0.0.1:{self.port}"
        end = time.monotonic() + 60.0
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{self.address}/openapi.json").read()
                return self
            time.sleep(0.05)
        raise AssertionError("the server does not answer")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.stack.close()

    def stop(self):
        """Ask it to end as Ctrl-C does, and return what it said."""
        self.process.send_signal(signal.SIGINT)
        said, _ = self.process.communicate(timeout=60)
        self.stack.close()
        return "".join(self.said) + said


@pytest.fixture
def serve(tmp_path):
    started = []

    def start(*options, **more):
        started.append(Server(tmp_path, *options, **more).start())
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            server.kill()


@pytest.fixture
def browser(tmp_path):
    playwright = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert program, "make test-web needs Chromium: apt-get install chromium"
    with playwright.sync_playwright() as start:
        found = start.chromium.launch(executable_path=program, args=FLAGS.split())
        yield found
        found.close()


@pytest.fixture
def page(browser):
    """A page that says nothing on its console but what the server refused."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    made, said = context.new_page(), []
    made.set_default_timeout(120_000)
    made.on("pageerror", lambda error: said.append(str(error)))
    made.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    yield made
    mistakes = [words for words in said if "Failed to load resource" not in words and "WebSocket" not in words]
    assert mistakes == []
