"""`nestbed posterior`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from nestbed.faces.cli import listing
from nestbed.numerics.errors import NestbedError


def posterior(
    system: Annotated[str, listing.system()],
    *files: Path,
    time: str | None = None,
    sensor: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    design: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    particles: listing.Whole | None = None,
    seed: listing.Whole = 0,
    out: Path | None = None,
) -> None:
    """Infer a system's unknown parameters from records you measured, and say whether the model explains them.

    For example:

    nestbed posterior my_heater.py:Heater sine.csv step.csv --time Time --sensor temperature=T1-first --design power=Q1

    A file has a row of names, then one row per sample; several files are records of one rig. The design of a row is
    applied until the next, so that the last row's is not used. Empty cells, NaN and NA are not measured.

    Parameters
    ----------
    files
        CSV files, one for each record.
    time
        Column with the time of each sample, in the model's unit, converted as a sensor is (ms/1000); dates with times
        of day (2024-01-31 07:30:00) count as seconds since the first. By default samples are one step apart.
    sensor
        Which column a sensor is, as name=column; once for each. By default the column of its name. Units are converted
        by name=column\\*factor, name=column/divisor, name=column-offset and both (voltage=U\\*0.001, °F to °C:
        temperature=T1/1.8-17.78), and name=column-first is what lies above the record's first value measured.
    design
        The same for designs: power=Q1, or power=Q1\\*0.01.
    particles
        M, parameter particles; 512 by default.
    seed
        Seed of all randomness.
    out
        Folder for the numbers (JSON), draws and residuals (CSV), figures (PNG), a page with all of it (HTML) and, with
        the extra arviz, a NetCDF file; by default posteriors/SYSTEM.
    """
    import jax

    from nestbed.evaluation.posterior import posterior as infer
    from nestbed.faces import netcdf, results
    from nestbed.faces.cli import measured
    from nestbed.faces.findings import find
    from nestbed.faces.terminal import bars, say
    from nestbed.faces.terminal.posterior import posterior as show
    from nestbed.numerics import storage
    from nestbed.numerics.errors import seed_from
    from nestbed.systems import load, name_of

    if not files:
        raise NestbedError("nestbed posterior needs the files of one record or more, such as measured.csv.")
    model = load(system)
    seed_from(seed)
    records = measured.read(model, files, time, (*sensor, *design))
    folder = storage.writable(Path("posteriors") / name_of(model) if out is None else out)
    key = jax.random.key(seed)
    observations, designs, times = ([each[i] for each in records] for i in range(3))
    with bars.Working("posterior"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the model does not explain")  # it is told in the end
        result = infer(key, model, observations, designs, times=times, particles=particles)
    found = find(jax.random.fold_in(key, 2), model, result, records, [str(file) for file in files])
    show(found)
    written = results.save(found, folder)
    say(f"Saved {folder}: {', '.join(written)}")
    if results.NETCDF not in written:
        say(f"For a file that ArviZ reads, {netcdf.ADVICE}.")
