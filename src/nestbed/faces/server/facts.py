"""What a session's folder says of how it came about: enough to open it again when the server starts anew."""

import json
import time as clocks
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nestbed.faces.server.forms import Start
from nestbed.numerics import storage
from nestbed.numerics.errors import NestbedError

FILE = "served.json"
FORMAT = 1
LARGEST = 2**20
"""Bytes that the file may have."""


@dataclass
class Facts:
    """How a session was begun, and what it was told since that its journal may not know yet."""

    id: str
    start: dict[str, Any]  # as it was asked for, the seed drawn
    system: str  # its name
    created: float = field(default_factory=clocks.time)  # seconds since 1970
    playing: bool = False  # whether a simulated rig plays by itself
    ending: str | None = None  # why the session is ended, once that was asked for

    @property
    def title(self) -> str:
        """What people read first."""
        return str(self.start.get("title") or self.id)

    @property
    def source(self) -> str:
        """What chooses its designs, in a word or two."""
        for kind in ("run", "design"):
            if self.start.get(kind):
                return f"{kind} {self.start[kind]}"
        return str(self.start.get("policy"))

    def save(self, folder: Path) -> None:
        """Write it down, whole at every moment."""
        with storage.saving(folder):
            storage.write(folder / FILE, json.dumps({"format": FORMAT, **asdict(self)}, indent=1).encode())


def load(folder: Path) -> Facts:
    """Read what a folder says."""
    file = folder / FILE
    try:
        found = dict(storage.read_json(file, LARGEST))
        if found.pop("format") != FORMAT:
            raise NestbedError(f"{file} is of another version of nestbed; go on with that one.")
        facts = Facts(**found)
        Start.model_validate(facts.start)
        kinds = (facts.system, str), (facts.created, float), (facts.playing, bool), (facts.ending, str | None)
        if facts.id != folder.name or not all(isinstance(value, kind) for value, kind in kinds):
            raise ValueError("it is of another session")
    except NestbedError:
        raise
    except storage.DAMAGES as error:
        raise NestbedError(f"{file} is damaged ({error}); restore it from a copy.") from None
    return facts
