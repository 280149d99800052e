"""Packages whose names are imported when they are first asked for, so that importing them stays light."""

import importlib
from collections.abc import Mapping
from typing import Any


def exported(package: str, name: str, homes: Mapping[str, str]) -> Any:
    """Return a public name of a package from the module within it that it lives in."""
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(sorted(homes))}")
    return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
