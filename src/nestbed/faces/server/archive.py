"""The trainings, designs and comparisons that a folder holds, found anew as they come and read as they grow."""

import csv
import io
import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nestbed.faces.server.course import plain
from nestbed.faces.server.refusal import absent
from nestbed.numerics import storage
from nestbed.numerics.errors import NestbedError, did_you_mean
from nestbed.numerics.text import visible
from nestbed.runs import folder as folders

PLAN, TABLE = "plan.json", "comparison.csv"
KINDS = {"run": folders.ABOUT, "design": PLAN, "comparison": TABLE}
"""What a folder is, by a file in it."""
DEEPEST, LOOKED_AT, MOST = 4, 5000, 500
"""Folders within each other that are looked through, folders in all, and places that are shown."""
OTHERS = (".", "_", "node_modules", "sessions")
"""Beginnings of the names of folders that hold none."""
LARGEST = 2**20
"""Bytes of a table."""


class Archive:
    """What there is in one folder; ids are paths within it with ~ for each slash, and only those found are known."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._kept: dict[tuple[str, str], tuple[Any, Any]] = {}
        self._lock = threading.Lock()

    def places(self) -> dict[tuple[str, str], Path]:
        """Return what there is, by kind and id."""
        found: dict[tuple[str, str], Path] = {}
        for place in itertools.islice(_folders(self.folder, DEEPEST), LOOKED_AT):
            for kind, file in KINDS.items():
                if os.path.lexists(place / file) and len(found) < MOST:
                    name = "~".join(place.relative_to(self.folder).parts) or "~"
                    found[kind, name] = place
        return dict(sorted(found.items()))

    def place(self, kind: str, name: str) -> Path:
        """Return where a thing of that kind and id is."""
        places = self.places()
        if (kind, name) not in places:
            known = [other for one, other in places if one == kind]
            raise absent(f"there is no {kind} {visible(name, keep='')!r} in the folder; {did_you_mean(name, known)}.")
        return places[kind, name]

    def system_of(self, kind: str, name: str) -> str:
        """Return the name of the system that a run or a design is of."""
        place = self.place(kind, name)
        if kind == "run":
            return str(folders.read_about(place)["system"]["name"])
        try:
            return str(storage.read_json(place / PLAN, LARGEST)["system"])
        except storage.DAMAGES as error:
            raise NestbedError(f"{place / PLAN} is damaged ({error}); design it again.") from None

    def listed(self, kind: str) -> list[dict[str, Any]]:
        """Return all of a kind, the newest first, each with a few facts or why it cannot be read."""
        found = []
        for one, name in self.places():
            if one == kind:
                try:
                    found.append({"id": name, **self.facts(kind, name)})
                except NestbedError as error:
                    found.append({"id": name, "changed": 0.0, "error": visible(str(error), keep="")})
        return sorted(found, key=lambda each: -each["changed"])

    def facts(self, kind: str, name: str) -> dict[str, Any]:
        """Return a few facts of a thing; what has not changed is not read again."""
        place = self.place(kind, name)
        file = place / (folders.METRICS if kind == "run" else KINDS[kind])
        try:
            state = os.lstat(file)
        except OSError as error:
            raise NestbedError(f"cannot read {file}: {error.strerror}.") from None
        mark = state.st_mtime_ns, state.st_size
        with self._lock:
            known = self._kept.get((kind, name))
        if known is None or known[0] != mark:
            read = {"run": _run, "design": _design, "comparison": _comparison}[kind]
            known = mark, {"changed": state.st_mtime, **plain(read(place))}
            with self._lock:
                self._kept[kind, name] = known
        return dict(known[1])


def _folders(folder: Path, depth: int) -> Iterator[Path]:
    """Yield a folder and those within it, none through a link."""
    yield folder
    if depth == 0:
        return
    try:
        inside = sorted(entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return
    for path in inside:
        if not Path(path).name.startswith(OTHERS):
            yield from _folders(Path(path), depth - 1)


def _run(place: Path) -> dict[str, Any]:
    """Return how a training went so far."""
    log = folders.load_log(place)
    rows = [{name: row.get(name) for name in ("iteration", "eig", "eig_error", "seconds")} for row in log.metrics]
    return {
        "system": log.about["system"]["name"],
        "title": log.title,
        "method": log.name,
        "done": log.done,
        "total": log.total,
        "finished": log.finished,
        "seed": log.seed,
        "versions": log.about.get("versions", {}),
        "settings": log.config.plain(),
        "verdict": log.verdict or "",
        "metrics": rows,
    }


def _design(place: Path) -> dict[str, Any]:
    """Return what a design found; the gains of its inputs beside others as they were certified."""
    import numpy as np

    from nestbed.evaluation.certificate import Certificate
    from nestbed.planning import plan as plans
    from nestbed.planning.identifiability import Identifiability

    try:
        facts = storage.read_json(place / plans.FACTS, plans.LARGEST)
        names = [str(name) for name in facts["policies"]]
        wanted = {f"{part}_{i}": plans.LARGEST for i in range(len(names)) for part in ("lower", "upper", "ess")}
        arrays = storage.read(place / plans.VALUES, wanted)
        inputs = list(csv.reader(io.StringIO(storage.read_bytes(place / plans.INPUTS, plans.LARGEST).decode())))
        gains = []
        for i, name in enumerate(names):
            lower, upper, ess = (np.asarray(arrays[f"{part}_{i}"], float) for part in ("lower", "upper", "ess"))
            found = Certificate(lower, upper, ess, int(facts["draws"]), len(inputs) - 1)
            broken = facts["violations"][i]
            gains.append(
                {
                    "policy": name,
                    "mean": found.mean,
                    "interval": list(found.interval),
                    "bounds": [found.lower, found.upper],
                    "broken": None if broken is None else broken["probability"],
                }
            )
        known = Identifiability.of(facts["identifiability"])
        return {
            "system": str(facts["system"]),
            "target": facts["target"],
            "horizon": len(inputs) - 1,
            "risk": facts["risk"],
            "columns": inputs[0],
            "inputs": [[float(value) for value in row] for row in inputs[1:]],
            "gains": gains,
            "told": known.sentence,
            "parameters": [list(row) for row in known.rows],
            "seconds": facts["seconds"],
        }
    except (*storage.DAMAGES, IndexError, csv.Error) as error:
        raise NestbedError(f"{place} holds no plan that can be read ({error}); design one again.") from None


def _comparison(place: Path) -> dict[str, Any]:
    """Return a table of policies."""
    try:
        rows = list(csv.reader(io.StringIO(storage.read_bytes(place / TABLE, LARGEST).decode())))
    except (*storage.DAMAGES, csv.Error) as error:
        raise NestbedError(f"{place / TABLE} cannot be read ({error}).") from None
    return {"columns": rows[0] if rows else [], "rows": rows[1:]}
