"""Configurations as TOML: written with a comment on every line, and read back."""

import dataclasses
import json
import tomllib
from pathlib import Path
from typing import Any

from nestbed.numerics.errors import NestbedError
from nestbed.training.config import Config


def written(config: Config) -> str:
    """Return the configuration as a TOML file with a comment on every line."""
    tables = {name: value for name, value in vars(config).items() if dataclasses.is_dataclass(value)}
    lines = [f"method = {_value(config.method)}", *_lines(config)]
    for name, table in tables.items():
        lines += ["", f"[{name}]", *_lines(table)]
    return "\n".join([*lines, ""])


def read(file: Path) -> dict[str, Any]:
    """Return the settings of a TOML file."""
    try:
        return parse(file.read_bytes(), file)
    except OSError as error:
        raise NestbedError(f"cannot read the configuration {file}: {error.strerror}.") from None


def parse(data: bytes, file: Path) -> dict[str, Any]:
    """Return the settings that a file holds."""
    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError:
        raise NestbedError(f"cannot read the configuration {file}: it is not a text file.") from None
    except (ValueError, RecursionError) as error:
        raise NestbedError(f"the configuration {file} is not TOML: {error}.") from None


def _lines(config: Any) -> list[str]:
    pairs = [
        (f"{f.name} = {_value(getattr(config, f.name))}", f.metadata["help"].format(**f.metadata))
        for f in dataclasses.fields(config)
        if f.metadata
    ]
    width = max(len(pair) for pair, _ in pairs)
    return [f"{pair:{width}s}  # {comment}" for pair, comment in pairs]


def _value(value: Any) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value)
