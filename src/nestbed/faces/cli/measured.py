"""Records from CSV files: which column shows what, by name, with simple conversions of units."""

import csv
import datetime
import io
import math
import re
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from nestbed.evaluation import records
from nestbed.evaluation.records import Measured
from nestbed.model.system import BaseSystem
from nestbed.numerics import storage
from nestbed.numerics.errors import NestbedError, did_you_mean

LARGEST = 1 << 28
"""Bytes that a file of measurements may have."""
PACE = 25.0
"""Steps that samples are apart, or parts of a step, beyond which time may be in another unit."""
MISSING = frozenset({"", "nan", "na", "n/a", "null", "none"})
"""What stands for a value that was not measured, in small letters."""
_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_CONVERSION = re.compile(
    rf"(?P<column>.+?)(?:(?P<scaled>[*/])(?P<factor>-?{_NUMBER}))?(?:(?P<sign>[+-])(?P<offset>{_NUMBER}|first))?"
)


class Sheet(NamedTuple):
    """A CSV file: its columns by name, as text, and the line of each row."""

    file: Path
    columns: dict[str, list[str]]
    lines: list[int]
    comma: bool  # whether decimals are written with a comma
    twice: frozenset[str]  # names of more than one column


def read(system: BaseSystem, files: Sequence[Path], time: str | None, pairs: Iterable[str]) -> list[Measured]:
    """Return one record per file; `pairs` are name=column of sensors and designs that are named otherwise there."""
    chosen = _chosen(system, pairs)
    found = []
    for file in files:
        sheet = _sheet(file)
        observations, designs = (
            np.stack([_values(sheet, name, chosen.get(name, name)) for name in names], axis=-1)
            for names in (system.observation_names, system.design_names)
        )
        times = system.step * np.arange(len(observations)) if time is None else _times(sheet, time)
        try:
            found += records.read(system, observations, designs[:-1], times)
        except NestbedError as error:
            rows = f" (Row 0 is line {sheet.lines[0]}.)" if " row " in str(error) else ""
            raise NestbedError(f"{file}: {error}{rows}", topic=error.topic) from None
        _warn_of_pace(system, sheet.file, times)
    return found


def _warn_of_pace(system: BaseSystem, file: Path, times: Float[np.ndarray, " T1"]) -> None:
    """Warn where samples are so far apart, or so near, that time may be in another unit than the model's."""
    apart = float(np.median(np.diff(times)))
    if not 1.0 / PACE <= apart / system.step <= PACE:
        warnings.warn(
            f"samples of {file} are {apart:.4g} apart, which is {apart / system.step:.3g} steps of {system.name} (step "
            f"= {system.step:g}): if that is another unit of time, convert it, as in --time COLUMN/1000.",
            stacklevel=3,
        )


def _chosen(system: BaseSystem, pairs: Iterable[str]) -> dict[str, str]:
    """Return what is written for each name that is given one."""
    found: dict[str, str] = {}
    known = (*system.observation_names, *system.design_names)
    for pair in pairs:
        name, equals, column = (part.strip() for part in pair.partition("="))
        if not equals or not column:
            raise NestbedError(f"got {pair!r}; write name=column, as in temperature=T1.")
        if name not in known:
            raise NestbedError(f"{system.name} has no sensor or design {name!r}; {did_you_mean(name, known)}.")
        if name in found:
            raise NestbedError(f"{name} is both {found[name]} and {column}; give one column for it.")
        found[name] = column
    return found


def _sheet(file: Path) -> Sheet:
    """Return what a file holds; columns are parted by comma, semicolon or tab, whichever its first line has most of."""
    text = _text(file)
    parting = max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text), delimiter=parting)
    try:
        header = [name.strip() for name in next(reader, [])]
        numbered = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise NestbedError(
            f"{file} cannot be read as CSV ({error}); give a row of names, one row per sample."
        ) from None
    _check_rows(file, header, numbered)
    columns = {
        name: [row[i].strip() if i < len(row) else "" for _, row in numbered] for i, name in enumerate(header) if name
    }
    twice = frozenset(name for name in header if header.count(name) > 1)
    return Sheet(file, columns, [line for line, _ in numbered], parting != ",", twice)


def _text(file: Path) -> str:
    if file.is_dir():
        raise NestbedError(f"{file} is a folder; give CSV files, one for each record.")
    try:
        return storage.read_bytes(file.resolve(), LARGEST).decode("utf-8-sig")
    except FileNotFoundError:
        raise NestbedError(f"there is no file {file}; give CSV with a row of names and one row per sample.") from None
    except UnicodeDecodeError:
        raise NestbedError(f"{file} is no text in UTF-8; save or export it as CSV in UTF-8.") from None
    except (OSError, ValueError) as error:
        raise NestbedError(
            f"{file} cannot be read ({error}); give CSV, a row of names and one row per sample."
        ) from None


def _check_rows(file: Path, header: list[str], numbered: list[tuple[int, list[str]]]) -> None:
    """Raise where rows do not stand below the names."""
    if len(numbered) < 2:
        count = f"{len(numbered)} row{'s' * (len(numbered) != 1)}"
        raise NestbedError(f"{file} has {count} below its names; a record needs two samples or more.")
    if any(header) and all(_is_number(name) for name in header if name):
        raise NestbedError(f"{file} begins with numbers, {', '.join(filter(None, header))}; put a row of names first.")
    for line, row in numbered:
        if any(cell.strip() for cell in row[len(header) :]):
            raise NestbedError(
                f"{file} has {len(row)} cells in line {line} below {', '.join(header)}; begin with the row of names, "
                "and where decimals are written with a comma, part columns by semicolons."
            )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _values(sheet: Sheet, name: str, wanted: str) -> Float[np.ndarray, " T1"]:
    """Return a column's numbers, converted as is written behind its name."""
    column, factor, offset = _conversion(sheet, name, wanted)
    if column in sheet.twice:
        raise NestbedError(f"{sheet.file} has more than one column {column!r}; give each a name of its own.")
    cells = zip(sheet.lines, sheet.columns[column], strict=True)
    values = factor * np.array([_number(sheet, line, column, text) for line, text in cells])
    if offset is not None:
        return values + offset
    measured = values[np.isfinite(values)]
    return values - measured[0] if len(measured) else values


def _times(sheet: Sheet, wanted: str) -> Float[np.ndarray, " T1"]:
    """Return when samples were taken; dates with times of day count as seconds since the first of them."""
    column = _conversion(sheet, "time", wanted)[0]
    dates = _dates(sheet.columns[column])
    return _values(sheet if dates is None else _replaced(sheet, column, dates), "time", wanted)


def _dates(cells: list[str]) -> list[str] | None:
    """Return the seconds since the first of dates that are written as in ISO 8601, or None if these are none."""
    if all(_is_number(text) for text in cells):
        return None  # 20240115 is a number first
    try:
        moments = [None if text.lower() in MISSING else datetime.datetime.fromisoformat(text) for text in cells]
        first = next(moment for moment in moments if moment)
        return ["" if each is None else repr((each - first).total_seconds()) for each in moments]
    except (ValueError, TypeError, StopIteration):  # the second where only some have a time zone
        return None


def _replaced(sheet: Sheet, column: str, cells: list[str]) -> Sheet:
    return sheet._replace(columns={**sheet.columns, column: cells}, comma=False)


def _conversion(sheet: Sheet, name: str, wanted: str) -> tuple[str, float, float | None]:
    """Return the column, what to multiply it by and what to add; None: less the first value measured."""
    if wanted in sheet.columns:
        return wanted, 1.0, 0.0
    parts = _CONVERSION.fullmatch(wanted)
    column = parts["column"].strip() if parts else wanted
    if parts is None or column not in sheet.columns:
        near = next((known for known in sheet.columns if wanted.startswith(known)), None)
        how = (
            "say which it is"
            if near is None
            else f"units are converted as in {near}*0.001+273.15, {near}/60 or {near}-first"
        )
        raise NestbedError(
            f"{sheet.file} has no column {column!r} for {name}; {did_you_mean(column, sheet.columns)}; {how}."
        )
    factor = 1.0 if parts["factor"] is None else float(parts["factor"])
    if parts["scaled"] == "/":
        if factor == 0.0:
            raise NestbedError(f"got {wanted!r} for {name}; divide by a number that is not 0.")
        factor = 1.0 / factor
    if parts["offset"] == "first":
        if parts["sign"] == "+":
            raise NestbedError(f"got {wanted!r} for {name}; write {column}-first for what is above the first value.")
        return column, factor, None
    return column, factor, float(f"{parts['sign']}{parts['offset']}") if parts["offset"] else 0.0


def _number(sheet: Sheet, line: int, column: str, text: str) -> float:
    if text.lower() in MISSING:
        return math.nan
    try:
        return float(text.replace(",", ".") if sheet.comma else text)
    except ValueError:
        what = "decimals with a point" if _is_number(text.replace(",", ".")) else "a number"
        if ":" in text:
            what = "times as numbers, or as dates with times of day in one form, 2024-01-31 07:30:00"
        raise NestbedError(
            f"{sheet.file} has {text!r} in line {line} of column {column!r}; write {what}, or leave empty what was "
            "not measured."
        ) from None
