"""How `nestbed serve` holds up: many sessions at once, killed under load, and how soon there is something to see.

    python benchmarks/serving.py load     # 50 sessions at once for a minute: from a measurement to the next design
    python benchmarks/serving.py kills    # SIGKILL under load, 30 times: what was confirmed and is lost
    python benchmarks/serving.py start    # from the command to the first design on the page, cold and warm

Each prints what it found; clients are threads of this process, which take time of the same cores.
"""

import argparse
import atexit
import contextlib
import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

SYSTEM, POLICY, HORIZON = "linear_pendulum", "prbs", 1000
PATIENCE = 300.0
"""Seconds after which something is taken for hung."""


class Server:
    """`nestbed serve` in a process of its own, at the same port each time."""

    def __init__(self, folder, cache=None):
        self.folder, self.port, self.process = folder, 0, None
        self.environment = {**os.environ, **({"JAX_COMPILATION_CACHE_DIR": str(cache)} if cache else {})}

    def start(self):
        command = [sys.executable, "-m", "nestbed", "serve", str(self.folder), "--port", str(self.port)]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": self.environment}
        self.process = subprocess.Popen(command, **streams)
        self.port = int(re.search(r":(\d+)/", self.process.stdout.readline())[1])

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()


class Client:
    """One connection, made again where it breaks; asks again for what is on its way."""

    def __init__(self, server):
        self.server, self.connection, self.again = server, None, 0

    def ask(self, method, path, body=None):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.connection is None:
                    self.connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
                text = None if body is None else json.dumps(body)
                self.connection.request(method, path, text, {"Content-Type": "application/json"})
                answer = self.connection.getresponse()
                found = json.loads(answer.read())
                if answer.status < 300:
                    return found
                if answer.status != 503:
                    raise AssertionError((method, path, body, answer.status, found))
            if self.connection is not None:
                self.connection.close()
            self.connection = None
            self.again += 1
            time.sleep(0.2)
        raise AssertionError(f"{method} {path} was not answered for {PATIENCE:g} s")


def reading(step, u):
    """Return what a rig shows: a function of the step and of the design alone."""
    return {"angle": 0.01 * np.sin(0.1 * step), "velocity": 0.1 * u["torque"]}


def begin(server, name):
    settings = {"id": name, "system": SYSTEM, "policy": POLICY, "horizon": HORIZON, "seed": 0}
    client = Client(server)
    client.ask("POST", "/sessions", settings)
    return client


def together(work, count):
    """Do it in as many threads, and raise what any of them raised."""
    failures = []

    def guarded(i):
        try:
            work(i)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def load(sessions, seconds, rate):
    """Let all sessions go on at a rate each, and print how long a rig waits from its measurement to the next design."""
    with tempfile.TemporaryDirectory() as folder:
        server, waits = Server(folder), [[] for _ in range(sessions)]
        atexit.register(server.kill)
        server.start()
        barrier = threading.Barrier(sessions)

        def one(i):
            client = begin(server, f"rig{i}")
            now = client.ask("GET", f"/sessions/rig{i}/design")
            barrier.wait(PATIENCE)
            start = time.monotonic() + i / sessions / rate
            for tick in range(int(seconds * rate)):
                time.sleep(max(0.0, start + tick / rate - time.monotonic()))
                y, begun = reading(now["step"], now["design"]), time.perf_counter()
                client.ask("POST", f"/sessions/rig{i}/measurements", {"step": now["step"], "y": y})
                now = client.ask("GET", f"/sessions/rig{i}/design")
                if tick >= rate:  # the first second compiles what the course needs
                    waits[i].append(time.perf_counter() - begun)

        begun = time.monotonic()
        together(one, sessions)
        server.kill()
        found = 1e3 * np.quantile(np.concatenate(waits), [0.5, 0.99, 1.0])
        count = sum(len(each) for each in waits)
        print(
            f"{sessions} sessions, {rate:g} measurements a second each, {seconds:g} s: {count} steps; measurement to "
            f"next design: median {found[0]:.1f}, p99 {found[1]:.1f}, longest {found[2]:.1f} ms "
            f"({time.monotonic() - begun:.0f} s in all)"
        )


def kills(count, sessions):
    """Kill the server under load at random moments, and count what was confirmed and is not in the journals."""
    chance = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        server, confirmed, over = Server(folder), [{} for _ in range(sessions)], threading.Event()
        atexit.register(server.kill)
        server.start()

        def one(i):
            client = begin(server, f"rig{i}")
            while not over.is_set():
                now = client.ask("GET", f"/sessions/rig{i}/design")
                y = reading(now["step"], now["design"])
                client.ask("POST", f"/sessions/rig{i}/measurements", {"step": now["step"], "y": y})
                confirmed[i][now["step"]] = [y["angle"], y["velocity"]]

        def killer():
            for number in range(count):
                before = sum(len(each) for each in confirmed)
                while sum(len(each) for each in confirmed) < before + sessions:
                    time.sleep(0.01)
                time.sleep(chance.uniform(0.0, 0.5))
                server.kill()
                print(
                    f"{number + 1} kills, {sum(len(each) for each in confirmed)} confirmed", file=sys.stderr, flush=True
                )
                server.start()
            over.set()

        together(lambda i: killer() if i == sessions else one(i), sessions + 1)
        server.kill()
        lost = sum(_lost(Path(folder) / "sessions" / f"rig{i}", confirmed[i]) for i in range(sessions))
        total = sum(len(each) for each in confirmed)
        print(f"{count} kills under {sessions} sessions: {total} measurements confirmed, {lost} lost or other")


def _lost(folder, confirmed):
    """Return how many confirmed measurements the journal does not hold, or holds otherwise or more than once."""
    lines = (folder / "journal.jsonl").read_bytes().rpartition(b"\n")[0].splitlines()
    known = [entry["y"] for entry in map(json.loads, lines) if entry["kind"] == "update"]
    return sum(step > len(known) or known[step - 1] != y for step, y in confirmed.items())


def start():
    """Print the seconds from the command to the first design on the page, with nothing compiled and from the cache."""
    from playwright.sync_api import sync_playwright

    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as cache:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=flags.split())
        for kind in ("cold", "warm", "warm"):
            with tempfile.TemporaryDirectory() as folder:
                server, begun = Server(folder, cache), time.perf_counter()
                atexit.register(server.kill)
                server.start()
                listening = time.perf_counter() - begun
                page = browser.new_page()
                page.set_default_timeout(1000 * PATIENCE)
                page.goto(f"http://127.0.0.1:{server.port}/#/new")
                page.locator(f"option[value='system {SYSTEM}']").wait_for(state="attached")
                page.click("button:has-text('Begin')")
                page.locator(".value").first.wait_for()
                print(
                    f"{kind}: listening after {listening:.1f} s, first design after {time.perf_counter() - begun:.1f} s"
                )
                page.close()
                server.kill()
        browser.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("load", "kills", "start"))
    parser.add_argument("--sessions", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=2.0, help="measurements per second of each session")
    parser.add_argument("--kills", type=int, default=30)
    given = parser.parse_args()
    if given.what == "load":
        load(given.sessions, given.seconds, given.rate)
    elif given.what == "kills":
        kills(given.kills, min(given.sessions, 10))
    else:
        start()


if __name__ == "__main__":
    main()
