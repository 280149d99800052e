"""Compute the cells of the paper one after the other, keep each, and never compute one twice."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from nestbed.numerics import interrupts, storage
from nestbed.numerics.errors import NestbedError
from nestbed.numerics.packages import versions
from nestbed.runs.folder import holds_run
from paper import numbers
from paper.cells import Cell
from paper.studies import Scale

PLAN = "plan.json"
MOST = 2**24
"""Bytes that a cell's file may hold at most."""


class Done(NamedTuple):
    """A cell with its result."""

    cell: Cell
    result: dict[str, Any]
    seconds: float
    fresh: bool  # computed now, not kept from before
    versions: dict[str, str]  # of all that the numbers hang on


Progress = Callable[[Cell, Done | None], None]
"""Called with a cell before it is computed, and with what came of it."""
Compute = Callable[[Cell, Path], dict[str, Any]]


def reproduce(
    cells: Sequence[Cell],
    folder: Path,
    scale: Scale,
    progress: Progress | None = None,
    compute: Compute = numbers.compute,
) -> list[Done]:
    """Compute the cells that are missing, in a folder that can be gone on with at any time."""
    storage.writable(folder)
    with storage.locked(folder):
        _same_scale(folder, scale)
        done: list[Done] = []
        for cell in cells:
            interrupts.check()
            found = _stored(folder, cell)
            if found is None:
                if done and done[-1].cell.system != cell.system:
                    jax.clear_caches()  # every kernel is mapped into memory, and a process may map only so many
                if progress is not None:
                    progress(cell, None)
                found = _computed(folder, cell, compute)
            if progress is not None:
                progress(cell, found)
            done.append(found)
    return done


def _computed(folder: Path, cell: Cell, compute: Compute) -> Done:
    start = time.perf_counter()
    result = compute(cell, folder)
    seconds = max(time.perf_counter() - start, result.pop("training_seconds", 0.0))  # all of a resumed training
    done = Done(cell, result, seconds, fresh=True, versions=versions())
    kept = {"cell": cell.name, "settings": cell.settings, "seconds": seconds, "result": result}
    with storage.saving(folder):
        file = _file(folder, cell)
        storage.inside(folder, file.parent.relative_to(folder))
        stored = json.dumps({**kept, "versions": done.versions}, indent=1, ensure_ascii=False)
        storage.write(file, f"{stored}\n".encode())
    return done


def _stored(folder: Path, cell: Cell) -> Done | None:
    """Return a cell computed before with these very settings, if there is one."""
    file = _file(folder, cell)
    for place in (file.parent.relative_to(folder), cell.training or Path()):
        storage.unlinked(folder, place)
    storage.plain(file)
    try:
        found = storage.read_json(file, MOST)
        if found["settings"] != json.loads(json.dumps(cell.settings)) or not found["result"]:
            return None
        if cell.training is not None and cell.kind == "training" and not holds_run(folder / cell.training):
            return None
        return Done(cell, dict(found["result"]), float(found["seconds"]), False, dict(found["versions"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


def _file(folder: Path, cell: Cell) -> Path:
    return folder / "cells" / f"{cell.name}.json"


def _same_scale(folder: Path, scale: Scale) -> None:
    """Keep quick and full cells apart: their trainings would be mixed up."""
    file = folder / PLAN
    storage.plain(file)
    if file.exists():
        try:
            held = storage.read_json(file, MOST)["scale"]
        except (OSError, ValueError, KeyError, TypeError):
            raise NestbedError(f"{file} is damaged; restore it from a copy, or choose another --out.") from None
        if held != scale.name:
            raise NestbedError(
                f"the folder {folder} holds a {held} reproduction; choose another --out for a {scale.name} one."
            )
        return
    with storage.saving(folder):
        storage.write(file, (json.dumps({"scale": scale.name}) + "\n").encode())
