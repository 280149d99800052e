"""What a page shows of each step of a session, kept beside its journal: how it went is there again without its belief.

All of it follows from the journal, so a line that a killed process did not write leaves a gap in a picture, no more.
"""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nestbed.numerics import storage

if TYPE_CHECKING:
    from nestbed.live.session import Session

FILE = "course.jsonl"
LARGEST = 2**28
"""Bytes that the file may have."""
TAIL = 2**16
"""Bytes that a line may have."""
ENDS = (0.025, 0.975)
"""What bands and intervals reach from and to: 95 %."""


class Course:
    """One line for each step: what was seen and done, what was believed then, and what was predicted of the next."""

    def __init__(self, folder: Path):
        self.file = folder / FILE
        self.lines: list[dict[str, Any]] = []
        self.predicted: dict[int, dict[str, Any]] = {}  # of steps whose design was not the one suggested
        if self.file.exists():
            self._read()

    def _read(self) -> None:
        data = storage.read_bytes(self.file, LARGEST)
        whole, _, torn = data.rpartition(b"\n")
        for line in whole.splitlines():
            try:
                found = storage.parse_json(line)
                self._place(found, int(found["step"]))
            except (TypeError, ValueError, KeyError):
                continue  # it can be done without
        if torn:
            storage.write(self.file, whole + b"\n" if whole else b"")

    def _place(self, line: dict[str, Any], step: int) -> None:
        while self.lines and self.lines[-1]["step"] >= step:
            self.lines.pop()
        self.lines.append(line)

    @property
    def step(self) -> int:
        """The last step there is, −1 if there is none."""
        return int(self.lines[-1]["step"]) if self.lines else -1

    def ended(self) -> dict[str, Any]:
        """Return how far the session was when it was closed."""
        end = self.lines[-1] if self.lines else {}
        return {name: end[name] for name in ("step", "gain") if name in end} | {"begun": bool(end)}

    def note(self, session: "Session", design: np.ndarray | None) -> None:
        """Keep what is known after the last step; the design is that of the next, None: there is none."""
        line = describe(session, design)
        if predicted := self.predicted.pop(session.step, None):
            line["predicted"] = plain(predicted)
        self._place(line, session.step)
        try:
            storage.append(self.file, json.dumps(line, allow_nan=False).encode() + b"\n", flush=False)
        except OSError:
            return  # the journal says so, and tries again


def describe(session: "Session", design: np.ndarray | None) -> dict[str, Any]:
    """Return a line."""
    known, system = session.posterior, session.system
    ends, sd = known.quantiles(ENDS), known.sd
    line: dict[str, Any] = {
        "step": session.step,
        "time": session.time,
        "gain": session.gain,
        "parameters": {name: [mean, sd[name], *ends[name]] for name, mean in known.mean.items()},
        "states": {name: list(pair) for name, pair in known.states.items() if name not in system.observation_names},
    }
    if session.step:
        last = session.history[-1]
        line["y"] = dict(zip(system.observation_names, last.observation.tolist(), strict=True))
        line["u"] = dict(zip(system.design_names, last.applied.tolist(), strict=True))
        line["suggested"] = dict(zip(system.design_names, last.suggested.tolist(), strict=True))
    elif session.first is not None:
        line["y"] = dict(zip(system.observation_names, session.first.tolist(), strict=True))
    if design is not None:
        line["next"] = {name: list(values) for name, values in known.predicted(design, ENDS).items()}
    return dict(plain(line))


def last(folder: Path) -> dict[str, Any]:
    """Return how far a session in a folder has got, by the end of its course."""
    try:
        with (folder / FILE).open("rb") as stream:
            stream.seek(max(0, (folder / FILE).stat().st_size - TAIL))
            line = storage.parse_json(stream.read().rpartition(b"\n")[0].rpartition(b"\n")[2])
        return {"step": int(line["step"]), "gain": line["gain"]}
    except storage.DAMAGES:
        return {"step": None, "gain": None}


def plain(value: Any) -> Any:
    """Return a value as JSON has it: null for what is no finite number."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value
