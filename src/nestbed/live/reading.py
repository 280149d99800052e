"""A session's folder, read by someone who was not there: what was measured and done, without policy or belief."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nestbed.evaluation.records import Measured
from nestbed.live import keeping
from nestbed.live.journal import HEAD, Journal
from nestbed.live.state import array
from nestbed.model.system import BaseSystem
from nestbed.numerics.errors import NestbedError
from nestbed.runs import fingerprint


@dataclass(frozen=True, eq=False)
class Kept:
    """What a folder holds of a session."""

    system: BaseSystem
    policy: str  # its class
    words: tuple[int, ...]  # of the key
    particles: int
    horizon: int
    records: list[Measured]
    changed: list[str]  # designs that would have broken limits, and what was given instead
    aborted: str | None
    clocks: tuple[float, float] | None  # when the first and the last line were written, in seconds since 1970
    gain: float | None  # in nats, by the session's own belief; None where it was not kept

    @property
    def experiments(self) -> int:
        """How many were done."""
        return sum(len(each.designs) for each in self.records)

    @property
    def key(self) -> jax.Array:
        """The session's key."""
        return jax.random.wrap_key_data(jnp.array(self.words, jnp.uint32), impl="threefry2x32")


def holds_session(folder: Path) -> bool:
    """Return whether a session was begun in a folder."""
    return (folder / HEAD).is_file()


def read(folder: Path, system: BaseSystem | None = None) -> Kept:
    """Return what a folder holds; a system of one's own is to be given."""
    journal = Journal(folder)
    known = journal.open({}, mend=False)
    try:
        model = fingerprint.same_system(folder, known["system"], system)
        return _kept(model, known, journal.entries, folder)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        if isinstance(error, NestbedError):
            raise
        raise NestbedError(f"the session in {folder} is damaged ({error}); restore it from a copy.") from None


def _kept(model: BaseSystem, known: dict[str, Any], entries: list[dict[str, Any]], folder: Path) -> Kept:
    rest, horizon = np.array(model.rest_design), int(known["horizon"])
    records: list[tuple[list[Any], list[Any], list[float]]] = []
    suggested, changed, aborted, done = rest, [], None, 0
    for each in entries:
        kind = each["kind"]
        if kind in ("first", "restart"):
            time = float(each["time"]) if kind == "first" else records[-1][2][-1]
            records.append(([array(each["y"])], [], [time]))
        elif kind == "suggest":
            suggested = array(each["u"])
            changed += [f"experiment {done}: {each['why']}"] if each["why"] else []
        elif kind == "update":
            applied = array(each["applied"]) if "applied" in each else suggested
            for part, value in zip(records[-1], (array(each["y"]), applied, float(each["time"])), strict=True):
                part.append(value)
            suggested, done = rest, done + 1
        elif kind == "rest":
            suggested = rest
        elif kind == "abort":
            aborted = str(each["why"])
        elif kind == "extend":
            horizon = int(each["horizon"])
    judged = keeping.judged(folder, done)
    if judged is not None:
        missing = iter(judged.missing)
        for y, _, _ in records:
            y[1:] = [np.where(next(missing), np.nan, row) for row in y[1:]]
    measured = [Measured(np.stack(y), np.array(u), np.array(times)) for y, u, times in records if u]
    clocks = [float(each["clock"]) for each in entries if "clock" in each]
    span = (clocks[0], clocks[-1]) if clocks else None
    name, key = str(known["policy"]["name"]), tuple(map(int, known["key"]))
    gain = None if judged is None else sum(judged.gains)
    return Kept(model, name, key, int(known["particles"]), horizon, measured, changed, aborted, span, gain)
