"""Rigs from a user's own file: `load("my_rig.py:Rig", …)`, or the model itself: "simulated"."""

import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from nestbed.model.system import BaseSystem
from nestbed.numerics.errors import NestbedError
from nestbed.rigs import base
from nestbed.rigs.simulated import Simulated


def load(name: str, system: BaseSystem, key: jax.Array, theta: Sequence[str] = ()) -> Any:
    """Return the rig that a file makes, "path/to/file.py:Name", or a simulated one with these parameters."""
    if name == "simulated":
        return Simulated(system, key, dict(_parameter(each) for each in theta))
    if theta:
        raise NestbedError("true parameters are for a simulated rig only; leave them out.")
    file, _, made = name.rpartition(":")
    if not file or not Path(file).is_file():
        raise NestbedError(f"there is no rig {name!r}; write path/to/file.py:Name, or simulated.")
    try:
        known = runpy.run_path(file)
        if made not in known:
            raise NestbedError(f"{file} has no {made!r}; name the class or function in it that makes the rig.")
        rig = known[made]() if callable(known[made]) else known[made]
    except NestbedError:
        raise
    except Exception as error:
        raise NestbedError(f"the rig {name} cannot be made: {type(error).__name__}: {error}.") from error
    base.check(rig)
    return rig


def _parameter(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise NestbedError(f"{text!r} is no parameter with its value; write name=value, such as mass=1.2.") from None
