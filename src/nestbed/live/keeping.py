"""The state of a session beside its journal, so that going on need not go through all of it again.

The journal alone decides: a state that is missing, torn or of other lines is left aside.
"""

import contextlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from nestbed.live import following
from nestbed.live.state import Entry, State, array
from nestbed.numerics import storage

FILE = "state.npz"
LARGEST = 2**28
"""Bytes that the plain part of a state may take."""


def keep(folder: Path, state: State, lines: int) -> None:
    """Keep the state after so many lines; what the disk does not take is no loss."""
    now = state.following
    assert now is not None
    facts = {
        "lines": lines,
        "rows": now.rows,
        "room": now.room,
        "even": now.even,
        "finer": now.finer,
        "warnings": state.warnings,
        "seen": np.asarray(state.seen).tolist(),
        "residuals": [each.tolist() for each in state.residuals],
        "missing": [np.isnan(each.observation).tolist() for each in state.history],
        "gains": [each.gain for each in state.history],
    }
    arrays = storage.pack({"learner": now.learner, "carry": state.carry})
    arrays["facts"] = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    with contextlib.suppress(OSError):
        storage.write(folder / FILE, storage.npz(arrays))


def recall(folder: Path, state: State, entries: list[Entry]) -> int:
    """Let a fresh state be as one that was kept, and return how many lines that knows; 0 if none can be used."""
    file = folder / FILE
    if not file.exists():
        return 0
    try:
        facts = _facts(file)
        lines = int(facts["lines"])
        if not 0 < lines <= len(entries):
            raise ValueError("it is of other lines")
        first = next(entry for entry in entries[:lines] if entry["kind"] == "first")
        template = _template(state, array(first["y"]), facts)
        found = storage.unpack(template, storage.read(file, storage.sizes(template)))
    except (*storage.DAMAGES, StopIteration):
        return 0
    _retrace(state, entries[:lines], facts)
    now = _started(state, array(first["y"]), facts)
    state.following = now._replace(learner=found["learner"], rows=int(facts["rows"]))
    state.carry, state.warnings, state.seen = found["carry"], [*facts["warnings"]], np.array(facts["seen"], float)
    return lines


class Judged(NamedTuple):
    """What a session made of its experiments."""

    gains: list[float]  # in nats
    missing: list[list[bool]]  # which readings it counts as not measured


def judged(folder: Path, experiments: int) -> Judged | None:
    """Return what became of each experiment; None where the kept state does not know all of them."""
    try:
        facts = _facts(folder / FILE)
        found = Judged([float(gain) for gain in facts["gains"]], [[*map(bool, row)] for row in facts["missing"]])
    except storage.DAMAGES:
        return None
    return found if len(found.gains) == len(found.missing) == experiments else None


def _facts(file: Path) -> Any:
    return json.loads(storage.read(file, {"facts": LARGEST})["facts"].tobytes())


def _retrace(state: State, entries: list[Entry], facts: dict[str, Any]) -> None:
    """Go through lines without computing anything."""
    known = iter(zip(facts["residuals"], facts["missing"], facts["gains"], strict=True))
    for entry in entries:
        if entry["kind"] == "first":
            state.first, state.times = array(entry["y"]), [float(entry["time"])]
        elif entry["kind"] == "suggest":
            state.suggested = array(entry["u"])
            state.risked += float(entry.get("risk", 0.0))
        elif entry["kind"] == "update":
            row = state.row(entry)
            surprise, missing, gain = next(known)
            row = row._replace(observation=np.where(missing, np.nan, row.observation))
            state.times.append(row.time)
            state.previous, state.suggested = row.applied, None
            state.remember(row, np.array(surprise, float), float(gain))
        elif entry["kind"] == "restart":
            state.restarts[state.step] = array(entry["y"])
            state.previous, state.suggested = np.array(state.system.rest_design), None
        else:
            state.happen(entry)
        state.clock = float(entry.get("clock", state.clock))


def _started(state: State, first: np.ndarray, facts: dict[str, Any]) -> following.Following:
    room, even, finer = int(facts["room"]), bool(facts["even"]), int(facts["finer"])
    return following.start(state.keys[1], state.system, state.particles, first, room, even=even, finer=finer)


def _template(state: State, first: np.ndarray, facts: dict[str, Any]) -> Any:
    """Return the shapes of what is kept."""
    return eqx.filter_eval_shape(
        lambda: {"learner": _started(state, first, facts).learner, "carry": state.policy.init()}
    )
