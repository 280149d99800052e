"""Help that lists what there is.

A file whose commands use it has `from __future__ import annotations`: annotations are then evaluated whenever help is
shown, so that entries added to a registry since are in it.
"""

from typing import Annotated, Any

from cyclopts import Parameter

from nestbed.numerics.registry import Registry
from nestbed.systems.registry import SYSTEMS


def whole(kind: Any, tokens: Any) -> int:
    """Read a whole number: 4.5 is none."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"{tokens[0].value!r} is no whole number.") from None


Whole = Annotated[int, Parameter(converter=whole)]
"""A whole number on the command line."""


def entries(text: str, registry: Registry[Any]) -> Parameter:
    """Return a parameter whose help has all entries of a registry in place of {}."""
    return Parameter(help=text.format(registry.help))


def system(more: str = "") -> Parameter:
    """Return the parameter that names a system."""
    return Parameter(help=f"A built-in system ({', '.join(SYSTEMS)}), or path/to/file.py:ClassName{more}.")
