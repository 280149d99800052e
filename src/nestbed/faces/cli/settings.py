"""The settings that a training was asked to use: by a method's name, a file, single assignments or a stored run."""

import dataclasses
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nestbed.numerics.errors import NestbedError
from nestbed.runs import folder as runs
from nestbed.training import registry, toml
from nestbed.training.config import Config


def requested(place: Path, resume: bool, method: str | None, file: Path | None, pairs: Iterable[str]) -> Config:
    """Return the settings for a run's folder: those of the method or the stored run, changed by file and pairs."""
    given, changes = {} if file is None else toml.read(file), assignments(pairs)
    begun = unchanged(place, resume, method, given)
    _check_method(begun, {**given, **changes})
    return begun.updated(given).updated(changes)


def _check_method(config: Config, changes: dict[str, Any]) -> None:
    """Say so where a setting is none of the method's, but one of another method."""
    known = {field.name for field in dataclasses.fields(config)} | {"method"}
    for name in changes if changes.get("method", config.method) == config.method else ():
        if name not in known:
            for method in registry.METHODS:
                if name in {field.name for field in dataclasses.fields(registry.config(method))}:
                    raise NestbedError(
                        f"{name} is a setting of {method}, but the method is {config.method}; add --method {method}, "
                        "or leave it out."
                    )


def unchanged(place: Path, resume: bool, method: str | None, given: dict[str, Any]) -> Config:
    """Return what the settings given on the command line are changes of."""
    wanted = None if method is None else registry.config(method)
    if not (resume and runs.holds_run(place)):
        return wanted or registry.config(given.get("method"))
    stored = runs.load_config(place)
    if wanted is not None and wanted.method != stored.method:
        raise NestbedError(
            f"the run in {place} was trained by {stored.method}, but --method is {method}; a resumed run keeps its "
            "method, so leave --method out, or train in another folder."
        )
    return stored


def assignments(pairs: Iterable[str]) -> dict[str, Any]:
    """Return settings written as `key=value`, such as `eta=0.5`, `policy.cell=lstm` or `policy.head=[64, 64]`."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip():
            raise NestbedError(f"--set got {pair!r}; write key=value, as in eta=0.5.")
        table = settings
        *tables, last = name.strip().split(".")
        for part in tables:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise NestbedError(f"--set got {pair!r}, but {part} was set to {table!r} before; give one of the two.")
        table[last] = _value(text.strip())
    return settings


def _value(text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
        return parsed["value"] if len(parsed) == 1 else text
    except (ValueError, RecursionError):
        return {"True": True, "False": False}.get(text, text)
