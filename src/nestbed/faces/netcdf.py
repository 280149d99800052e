"""A posterior as a NetCDF file that ArviZ reads."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from nestbed.evaluation.inference_data import inference_data
from nestbed.faces.findings import Findings
from nestbed.numerics import storage
from nestbed.numerics.errors import NestbedError

ADVICE = "pip install 'nestbed[arviz]'"


def save(found: Findings, file: Path) -> bool:
    """Write draws (one chain), what was observed and what was expected of it; return False where ArviZ is missing."""
    posterior = {name: found.draws[None, :, i] for i, name in enumerate(found.system.parameter_names)}
    seen = np.concatenate([each.observations for each in found.records])
    observed = {name: seen[:, i] for i, name in enumerate(found.system.observation_names)}
    groups: dict[str, Any] = {"posterior": posterior, "observed_data": observed}
    course = found.posterior.course
    if course is not None:
        names = found.system.observation_names
        groups["posterior_predictive"] = {name: course.expected[None, None, :, i] for i, name in enumerate(names)}
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / file.name
        try:
            inference_data(groups).to_netcdf(str(written))
        except (NestbedError, ValueError, ImportError):  # no ArviZ, or nothing there that writes NetCDF
            return False
        storage.write(file, written.read_bytes())
    return True
