"""Records as they were measured: gaps, uneven times, several of them, as one table of rows that a filter goes through.

A row is a design, the time until the next observation, and that observation. Times longer than the system's step are
cut into parts after which nothing was measured. A row that takes no time begins another record with its observation.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from nestbed.likelihood.base import Record
from nestbed.model import checks, sensors
from nestbed.model.system import BaseSystem
from nestbed.numerics.errors import NestbedError

ROUNDING = 1e-6
"""Share of a step by which a time may be longer without being cut: clocks are read with an error."""
LONGEST = 100_000
"""Rows beyond which a time is taken for one in another unit."""


class Measured(NamedTuple):
    """One record: T + 1 observations, T designs, and when the observations were made; NaN is not measured."""

    observations: Float[np.ndarray, "T1 dy"]
    designs: Float[np.ndarray, "T du"]
    times: Float[np.ndarray, " T1"] | None = None


class Table(NamedTuple):
    """Records in one table; the first observation of the first stands before its first row."""

    record: Record  # N = 1; designs have the time of each row as their last column
    experiment: Int[np.ndarray, " rows"]  # which of all experiments a row belongs to; −1: it begins a record
    memory: int  # rows that the longest delay reaches back

    @property
    def ends(self) -> Int[np.ndarray, " T"]:
        """The row with which each experiment ends."""
        rows = np.flatnonzero(self.experiment >= 0)
        found = np.zeros(int(self.experiment.max()) + 1, int)
        np.maximum.at(found, self.experiment[rows], rows)
        return found


def several(observations: Any) -> bool:
    """Return whether these are observations of several records: a list of tables, not one table or an array."""
    return isinstance(observations, list | tuple) and bool(len(observations)) and np.ndim(observations[0]) == 2


def read(system: BaseSystem, observations: Any, designs: Any, times: Any) -> list[Measured]:
    """Return records, checked one by one."""
    if not several(observations):
        return [_checked(system, observations, designs, times, "the record")]
    if not isinstance(designs, list | tuple) or len(designs) != len(observations):
        got = len(designs) if hasattr(designs, "__len__") else 1
        raise NestbedError(
            f"there are {len(observations)} records of observations but {got} of designs; give a list of each, one "
            "entry per record."
        )
    if times is not None and (not isinstance(times, list | tuple) or len(times) != len(observations)):
        raise NestbedError(f"there are {len(observations)} records, so times must be a list with one entry for each.")
    every = times or [None] * len(observations)
    rows = zip(observations, designs, every, strict=True)
    return [_checked(system, y, u, t, f"record {i}") for i, (y, u, t) in enumerate(rows)]


def _checked(system: BaseSystem, observations: Any, designs: Any, times: Any, what: str) -> Measured:
    y = checks.numbers(f"the observations of {what}", observations)
    u = checks.numbers(f"the designs of {what}", designs)
    dy, du = len(system.observation_names), len(system.design_names)
    if y.ndim != 2 or u.ndim != 2 or (y.shape[1], u.shape[1]) != (dy, du) or len(y) != len(u) + 1 or not len(u):
        raise NestbedError(
            f"{what} has observations of shape {y.shape} and designs of shape {u.shape}, but {system.name} needs "
            f"(T+1, {dy}) and (T, {du}): one more observation than designs, one column for each of "
            f"{(*system.observation_names,)} and {(*system.design_names,)}."
        )
    if np.isinf(y).any():
        row, column = np.argwhere(np.isinf(y))[0]
        raise NestbedError(
            f"the observations of {what} hold {y[row, column]} at row {row} ({system.observation_names[column]}); give "
            "what was not measured as NaN."
        )
    if not np.isfinite(u).all():
        row, column = np.argwhere(~np.isfinite(u))[0]
        raise NestbedError(
            f"the designs of {what} hold {u[row, column]} at row {row} ({system.design_names[column]}), but every "
            "design must be known; fill in what was applied, or leave out what came before or after."
        )
    if np.isnan(y).all():
        raise NestbedError(f"{what} has no measurement at all: every observation is NaN; check its columns.")
    return Measured(y, u, None if times is None else _checked_times(system, times, len(y), what))


def _checked_times(system: BaseSystem, times: Any, count: int, what: str) -> Float[np.ndarray, " T1"]:
    t = checks.numbers(f"the times of {what}", times)
    if t.shape != (count,):
        raise NestbedError(
            f"the times of {what} have the shape {t.shape}, but there are {count} observations: give one time for each."
        )
    if not np.isfinite(t).all():
        row = int(np.argmin(np.isfinite(t)))
        raise NestbedError(f"the time of {what} at row {row} is {t[row]}; give a finite time for each observation.")
    back = np.flatnonzero(np.diff(t) <= 0.0)
    if len(back):
        i = int(back[0])
        raise NestbedError(
            f"the times of {what} do not rise: {t[i]:g} at row {i} is followed by {t[i + 1]:g}; sort the rows, and "
            "keep one of those with the same time."
        )
    if (t[-1] - t[0]) / system.step > LONGEST:
        raise NestbedError(
            f"the times of {what} span {t[-1] - t[0]:g}, which is {(t[-1] - t[0]) / system.step:.3g} steps of "
            f"{system.name} (step = {system.step:g}); give times in the unit of the model, or a longer step.",
            topic="time",
        )
    return t


def regular(records: Sequence[Measured]) -> bool:
    """Return whether it is one record with nothing missing and no times of its own."""
    return len(records) == 1 and records[0].times is None and not np.isnan(records[0].observations).any()


def tabulated(system: BaseSystem, records: Sequence[Measured]) -> Table:
    """Return all records as one table."""
    rows: list[np.ndarray] = []
    seen: list[np.ndarray] = []
    which: list[int] = []
    done = 0
    for i, (observations, designs, times) in enumerate(records):
        if i:
            rows.append(np.append(np.array(system.rest_design), 0.0))
            seen.append(observations[0])
            which.append(-1)
        lengths = np.full(len(designs), system.step) if times is None else np.diff(times)
        for t, (u, length) in enumerate(zip(designs, lengths, strict=True)):
            parts = max(1, math.ceil(length / system.step - ROUNDING))
            rows += [np.append(u, length / parts)] * parts
            seen += [np.full(observations.shape[1], np.nan)] * (parts - 1) + [observations[t + 1]]
            which += [done + t] * parts
        done += len(designs)
    table = np.stack(rows)
    shortest = table[:, -1][table[:, -1] > 0.0].min()
    memory = math.ceil(sensors.memory(system) * system.step / shortest)
    late = max((float(late) for late in system.delay.values() if not isinstance(late, str)), default=0.0) * system.step
    if late > sensors.LONGEST * shortest:
        raise NestbedError(
            f"some samples are {shortest:.3g} apart, which is {late / shortest:.0f} times in the delay of {late:.3g}, "
            f"but {sensors.LONGEST} times is the most; leave some out, so that they lie further apart."
        )
    observations = np.concatenate([records[0].observations[:1], np.stack(seen)])
    record = Record(jnp.asarray(observations[None]), jnp.asarray(table[None]))
    return Table(record, np.array(which), min(memory, sensors.LONGEST))
