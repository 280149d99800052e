"""Kill sessions by SIGKILL at random moments and between any two writes, go on, and compare with never killing.

    python tests/killing.py FOLDER --kills 100

prints what became of them. A child does the session and writes down what was confirmed to it; its rig is a function of
the design and of the experiment's number, so that what it shows does not hang on having been killed.
"""

import argparse
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import children

STEPS = 20
"""Experiments of a session."""
WRITES = 6
"""Writes of a child, at most, before it is killed: more would end a session after few kills."""


def session(folder, directory="session"):
    import jax

    import nestbed as nb
    import toys

    place = None if folder is None else folder / directory
    return nb.Session(toys.Leak(), toys.Counter(), jax.random.key(0), directory=place, horizon=STEPS, particles=64)


def reading(step, u):
    """Return what the rig shows after an experiment."""
    return [1.0 / (1.0 + step) + 0.1 * float(u[0])]


def go_on(now, tell=lambda words: None):
    """Go on to the end; return all that must not hang on having been killed."""
    if now._state.first is None:
        now.update([1.0])
        tell("first")
    while now.step < STEPS:
        u = now.suggest()
        tell(f"suggest {now.step} {u.tolist()}")
        now.update(reading(now.step, u))
        tell(f"update {now.step}")
    rows = [(each.applied.tolist(), each.observation.tolist(), each.gain, each.p.tolist()) for each in now.history]
    return json.loads(json.dumps([rows, now.posterior.mean, now.posterior.sd, now.warnings]))


def child(folder, moment, where):
    """Do the session, and die at a write: before it, in the middle of it or after it; `where` may be "never"."""
    from nestbed.live import session as sessions

    sessions.EVERY = 7  # so that the state is kept, and dying meanwhile, often
    if where != "never":
        _die_at(moment, where)
    with (folder / "confirmed.txt").open("a") as stream:

        def tell(words):
            stream.write(words + "\n")
            stream.flush()

        (folder / "ready").touch()
        go_on(session(folder), tell)
    (folder / "done").touch()


def _die_at(moment, where):
    """Let the process kill itself at its write of that number."""
    from nestbed.numerics import storage

    count, append, write = [0], storage.append, storage.write

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    def dying(function):
        def call(file, data, *rest, **options):
            count[0] += 1
            if count[0] < moment:
                return function(file, data, *rest, **options)
            if where == "middle":
                append(
                    file.with_name(file.name if function is append else f".{file.name}.torn"), data[: len(data) // 2]
                )
            if where == "after":
                function(file, data, *rest, **options)
            die()

        return call

    storage.append, storage.write = dying(append), dying(write)


def kill(folder, chance):
    """Run a child until it is killed; return how."""
    where = chance.choice(("before", "middle", "after", "clock"))
    moment = chance.randint(1, WRITES)
    (folder / "ready").unlink(missing_ok=True)
    arguments = (folder, moment, "never" if where == "clock" else where)
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths}
    with children.running(
        sys.executable, __file__, *arguments[:1], "--child", *arguments[1:], env=environment
    ) as process:
        if where == "clock":
            while not (folder / "ready").exists() and process.poll() is None:
                time.sleep(0.01)
            time.sleep(chance.uniform(0.0, 3.0))
            process.kill()
        _, error = process.communicate(timeout=children.PATIENCE)
    if process.returncode not in (0, -signal.SIGKILL):
        raise AssertionError(error)
    return where if process.returncode else "ended before"


def lost(folder):
    """Return what was confirmed to the child and is not in the journal, or is there otherwise."""
    journal = (folder / "session" / "journal.jsonl").read_text().split("\n")
    entries = [json.loads(line) for line in journal[:-1]]  # what comes after the last end of a line is torn
    known, step = {"first"} if entries else set(), 0
    for entry in entries:
        if entry["kind"] == "suggest":
            known.add(f"suggest {step} {entry['u']}")
        if entry["kind"] == "update":
            step += 1
            known.add(f"update {step}")
    return [line for line in (folder / "confirmed.txt").read_text().splitlines() if line not in known]


def hunt(folder, kills, seed=0):
    """Kill so often; return how often each way, and what went wrong."""
    chance, told = random.Random(seed), Counter()
    whole, number = go_on(session(None)), 0
    while sum(told[way] for way in ("before", "middle", "after", "clock")) < kills:
        place = folder / str(number)
        place.mkdir(parents=True, exist_ok=True)
        told[kill(place, chance)] += 1
        if (place / "confirmed.txt").exists() and (place / "session" / "journal.jsonl").exists():
            told["lost"] += len(lost(place))
        if (place / "done").exists():
            number += 1
    for place in sorted(folder.iterdir()):
        with session(place) as now:
            told["other end"] += go_on(now) != whole
    return dict(told)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", nargs=2, metavar=("MOMENT", "WHERE"))
    given = parser.parse_args()
    if given.child:
        child(given.folder, int(given.child[0]), given.child[1])
    else:
        print(hunt(given.folder, given.kills, given.seed))


if __name__ == "__main__":
    main()
