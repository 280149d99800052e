"""The files of a session: its record, and what all of it says."""

import csv
import dataclasses
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np

from nestbed.evaluation.posterior import posterior
from nestbed.evaluation.records import Measured
from nestbed.faces import accounts, results
from nestbed.faces.findings import Findings, find
from nestbed.live import reading
from nestbed.model.system import BaseSystem
from nestbed.numerics import storage

if TYPE_CHECKING:
    from nestbed.live.session import Session

RECORD = "record.csv"


def save(session: "Session", folder: Path) -> list[str]:
    """Write the record (CSV) and, of what was measured, the posterior with its figures and page; return their names."""
    save_record(session, folder)
    return [RECORD, *_told(session, folder)] if session.records else [RECORD]


def save_record(session: "Session", folder: Path) -> None:
    """Write the record alone (CSV)."""
    with storage.saving(folder):
        storage.write(folder / RECORD, _record(session))


def _told(session: "Session", folder: Path) -> list[str]:
    """Write what the records say, by `nb.posterior` of all of them at once."""
    found = findings(session.key, session.system, session.records, session.gain)
    if not reading.holds_session(folder):
        return results.save(found, folder)
    kept = reading.read(folder, session.system)
    return results.save(found, folder, lambda found, pictures: accounts.session(kept, found, pictures))


def findings(key: jax.Array, system: BaseSystem, measured: Sequence[Measured], gain: float | None) -> Findings:
    """Return what all records of a session say, and what it has gained by its own belief, where that is known."""
    observations, designs, times = ([each[i] for each in measured] for i in range(3))
    result = posterior(key, system, observations, designs, times=times)
    found = find(jax.random.fold_in(key, 2), system, result, measured, [f"record {i}" for i in range(len(measured))])
    return found if gain is None else dataclasses.replace(found, gain=gain)


def _record(session: "Session") -> bytes:
    """Return a row per observation: when, what was seen, and the design that was applied from then on."""
    stream = io.StringIO()
    writer = csv.writer(stream)
    system = session.system
    writer.writerow(["record", "time", *system.observation_names, *system.design_names])
    for i, each in enumerate(session.records):
        designs = [*each.designs.tolist(), [""] * len(system.design_names)]
        times = np.asarray(each.times)
        for time, y, u in zip(times, each.observations, designs, strict=True):
            writer.writerow([i, time, *("" if np.isnan(value) else value for value in y), *u])
    return stream.getvalue().encode()
