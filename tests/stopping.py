"""Stop `nestbed train` and `python -m paper` at random moments, go on each time, and compare with never stopping.

    python tests/stopping.py FOLDER --interrupts 60 --kills 40

prints what became of the signals. Each command gets the same share of them, from a fixed seed.
"""

import argparse
import contextlib
import dataclasses
import json
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

from children import NESTBED, PAPER, PATIENCE, running

ROOT = Path(__file__).parents[1]
TANK = f"{Path(__file__).parent / 'tank.py'}:Tank"
BOUND = 60
"""Seconds within which Ctrl-C must be obeyed."""
SLACK = 3
"""Iterations that may still end after Ctrl-C: more were not meant to."""


@dataclasses.dataclass(frozen=True)
class Work:
    """A command that works in a folder, and how to see how far it is."""

    command: tuple[str, ...]
    longest: float  # seconds after which a signal is sent at the latest


class Training(Work):
    def start(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        return running(*NESTBED, *self.command, "--resume", "--out", folder, stdout=subprocess.DEVNULL)

    def done(self, folder):
        """Return how many pieces of work are kept."""
        return _lines(folder)

    def result(self, folder):
        """Return all that must not depend on having been stopped."""
        return _run(folder)


class Reproduction(Work):
    def start(self, folder):
        return running(*PAPER, *self.command, "--out", folder.resolve(), stdout=subprocess.DEVNULL, cwd=ROOT)

    def done(self, folder):
        return sum(_lines(file.parent) for file in folder.rglob("metrics.jsonl")) + len(
            list(folder.rglob("cells/**/*.json"))
        )

    def result(self, folder):
        cells = {
            str(file.relative_to(folder)): json.loads(file.read_bytes()) for file in folder.rglob("cells/**/*.json")
        }
        kept = {name: {**cell, "seconds": 0.0} for name, cell in cells.items()}
        runs = {str(file.parent.relative_to(folder)): _run(file.parent) for file in folder.rglob("metrics.jsonl")}
        return {**kept, **runs}


FLAGS = ("belief=exact", "policy.encoder=[6]", "policy.recurrent=[5]", "policy.head=[4]", "iterations=300")
WORKS = {
    "train": Training(("train", TANK, "--method", "score_climbing", "--quiet", "--set", *FLAGS), 6.0),
    "paper": Reproduction(("linear_pendulum", "--quick"), 15.0),
}
BAD = ("SIGINT swallowed", "SIGINT lost work", "SIGKILL lost work", "ends that differ", "files left over")
"""What must not be."""


def hunt(interrupts, kills, folder, works=tuple(WORKS)):
    """Send the signals, the same share to each command, and return what became of them."""
    told = Counter(dict.fromkeys(BAD, 0))
    for number, name in enumerate(works):
        share = [count // len(works) + (number < count % len(works)) for count in (interrupts, kills)]
        told.update(_hunt(WORKS[name], *share, folder / name, random.Random(number)))
    return told


def _hunt(work, interrupts, kills, folder, draw):
    whole = folder / "whole"
    _finish(work, whole)
    expected = work.result(whole)
    signals = [signal.SIGINT] * interrupts + [signal.SIGKILL] * kills
    draw.shuffle(signals)
    told, stopped = Counter(), folder / "stopped"
    for number in signals:
        while (outcome := _stop(work, stopped, number, draw)) == "ended before":
            _compare(work, stopped, expected, told)
        told[f"{number.name} {outcome}"] += 1
        if outcome == "as it ended":
            _compare(work, stopped, expected, told)
    _finish(work, stopped)
    _compare(work, stopped, expected, told)
    return told


def _compare(work, stopped, expected, told):
    """Compare a folder whose work has ended with one never stopped, and clear it for the next."""
    told["ends compared"] += 1
    told["ends that differ"] += work.result(stopped) != expected
    told["files left over"] += len(list(stopped.rglob("*.part")))
    shutil.rmtree(stopped)


def _stop(work, folder, number, draw):
    """Start or go on, send one signal, and say what it did."""
    before = work.done(folder)
    with work.start(folder) as process:
        if draw.random() < 0.6:  # else anywhere, imports included
            while process.poll() is None and work.done(folder) <= before:
                time.sleep(0.01)
            wait = draw.uniform(0.0, work.longest / 3)
        else:
            wait = draw.uniform(0.0, work.longest)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(wait)
        if process.poll() is not None:
            assert process.returncode == 0, process.communicate()[1]
            return "ended before"
        had, start = work.done(folder), time.monotonic()
        process.send_signal(number)
        try:
            _, said = process.communicate(timeout=BOUND)
        except subprocess.TimeoutExpired:
            return "swallowed"
    now = work.done(folder)
    if now < had - 1:  # a line past the checkpoint may be done again
        return "lost work"
    return _outcome(process.returncode, said, now - had, time.monotonic() - start)


def _outcome(code, said, grown, seconds):
    if code == -signal.SIGKILL:
        return "killed"
    if code == 130 and "Traceback" not in said and "stopped" in said:
        return "obeyed" if seconds < BOUND / 4 else "obeyed late"
    if code == 0:
        return "as it ended" if grown <= SLACK else "swallowed"
    if "nestbed" not in said:
        return "before nestbed began"
    return f"odd: {code} {said[-2000:]}"


def _finish(work, folder):
    with work.start(folder) as process:
        _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said


def _lines(folder):
    with contextlib.suppress(OSError):
        return (folder / "metrics.jsonl").read_bytes().count(b"\n")
    return 0


def _run(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    kept = [{name: value for name, value in row.items() if not name.startswith("seconds")} for row in rows]
    names = ("checkpoint.npz", "policy_last.npz", "policy_best.npz")
    return kept, {name: (folder / name).read_bytes() for name in names}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--interrupts", type=int, default=60)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--only", choices=tuple(WORKS), help="send them all to one command")
    given = parser.parse_args()
    works = (given.only,) if given.only else tuple(WORKS)
    for what, count in sorted(hunt(given.interrupts, given.kills, given.folder, works).items()):
        print(f"{count:4d}  {what}")
