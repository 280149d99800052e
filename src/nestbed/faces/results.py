"""The files of a posterior."""

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nestbed.faces import fits, netcdf, reports
from nestbed.faces.findings import Findings
from nestbed.numerics import storage

FACTS, DRAWS, RESIDUALS, NETCDF, REPORT = "posterior.json", "draws.csv", "residuals.csv", "posterior.nc", "report.html"
PICTURES = {"marginals.png": fits.marginals, "fit.png": fits.fit, "residuals.png": fits.residuals}


def save(
    found: Findings, folder: Path, page: Callable[[Findings, Sequence[Path]], str] = reports.posterior
) -> list[str]:
    """Write all of them, with a page of findings and pictures, and return their names."""
    with storage.saving(folder):
        storage.write(folder / FACTS, json.dumps(_plain(found.facts()), indent=1, allow_nan=False).encode())
        storage.write(folder / DRAWS, _csv(found.system.parameter_names, found.draws.tolist()))
        storage.write(folder / RESIDUALS, _residuals(found))
        storage.write(folder / REPORT, page(found, draw(found, folder)).encode())
        kept = [NETCDF] if netcdf.save(found, folder / NETCDF) else []
    return [FACTS, DRAWS, RESIDUALS, *PICTURES, REPORT, *kept]


def draw(found: Findings, folder: Path) -> list[Path]:
    """Draw the pictures, and return their files."""
    for name, picture in PICTURES.items():
        picture(found, folder / name)
    return [folder / name for name in PICTURES]


def _residuals(found: Findings) -> bytes:
    """Return a row per experiment: its record, when its outcome was seen, where that lies in what was predicted."""
    z = np.asarray(found.posterior.residuals)
    table: list[list[Any]] = []
    for i, record in enumerate(found.records):
        _, at = found.rows(i)
        times = record.times if record.times is not None else found.system.step * np.arange(len(record.observations))
        for t, row in zip(times[1:], z[at], strict=True):
            table.append([found.names[i], float(t), *("" if math.isnan(value) else float(value) for value in row)])
    return _csv(("record", "time", *found.system.observation_names), table)


def _csv(names: Iterable[str], rows: Iterable[Iterable[Any]]) -> bytes:
    stream = io.StringIO()
    writer = csv.writer(stream)
    writer.writerow(names)
    writer.writerows(rows)
    return stream.getvalue().encode()


def _plain(value: Any) -> Any:
    """Return the value with null where a number is none: JSON has no NaN."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
