"""Systems from their names, or from a user's own file: `load("cart_pole")`, `load("my_motor.py:Motor")`."""

import runpy
import sys
import traceback
from functools import cache
from pathlib import Path

from nestbed.model.system import BaseSystem
from nestbed.numerics.errors import NestbedError, did_you_mean
from nestbed.systems.registry import SYSTEMS


def load(name: str) -> BaseSystem:
    """Return the built-in system of that name, or the one that a file defines: "path/to/file.py:ClassName"."""
    if ":" in str(name):
        return _from_file(*str(name).rsplit(":", 1))
    if str(name) not in SYSTEMS:
        raise NestbedError(
            f"there is no built-in system {name!r}; {did_you_mean(str(name), SYSTEMS)}; a system of your own is "
            "written path/to/file.py:ClassName.",
            topic="system",
        )
    return _built_in(SYSTEMS[str(name)].load())


def name_of(system: BaseSystem) -> str:
    """Return the name that a built-in system is loaded by, or that of a user's class."""
    known = [entry.name for entry in SYSTEMS.values() if entry.load() is type(system)]
    return known[0] if known else system.name


@cache
def _built_in(kind: type[BaseSystem]) -> BaseSystem:
    return kind()


def _from_file(file: str, name: str) -> BaseSystem:
    """Run the file and make the system it defines."""
    if not Path(file).is_file():
        raise NestbedError(f"there is no file {file}; write the system as path/to/file.py:ClassName.")
    beside = str(Path(file).resolve().parent)  # a file may import another beside it, as a script may
    if beside not in sys.path:
        sys.path.append(beside)
    try:
        found = runpy.run_path(file)
    except NestbedError:
        raise
    except (Exception, SystemExit) as error:
        raise NestbedError(f"{file} does not run: {_reason(error, file)}.") from error
    kinds = {key: value for key, value in found.items() if isinstance(value, type) and issubclass(value, BaseSystem)}
    if name not in kinds:
        own = [key for key, value in kinds.items() if value.__module__ == "<run_path>"]
        raise NestbedError(f"{file} has no system {name!r}; {did_you_mean(name, own)}.")
    missing = sorted(getattr(kinds[name], "__abstractmethods__", ()))
    if missing:
        raise NestbedError(f"{name} in {file} has no method {', '.join(missing)}; define it to make it a system.")
    try:
        return kinds[name]()
    except NestbedError:
        raise
    except Exception as error:
        raise NestbedError(f"{name} in {file} cannot be made: {_reason(error, file)}.") from error


def _reason(error: BaseException, file: str) -> str:
    """Return an error with the line of the user's own file that led to it, however deep in a library it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).resolve() == Path(file).resolve()]
    first = next(iter(str(error).strip().splitlines()), "it says no more")
    reason = f"{type(error).__name__}: {first.rstrip('.')}"
    if isinstance(error, SyntaxError) or not own:
        return reason  # a syntax error says itself where it is
    return f"{reason} (line {own[-1].lineno} of {Path(file).name})"
