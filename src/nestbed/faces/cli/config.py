"""`nestbed config`."""

from __future__ import annotations

from typing import Annotated

from nestbed.faces.cli import listing
from nestbed.training.registry import METHODS


def config(
    system: Annotated[str, listing.system()],
    *,
    method: Annotated[str | None, listing.entries("{}; by default the first.", METHODS)] = None,
) -> None:
    """Print the settings that `nestbed train` uses for a system, as TOML to change and give back by --config.

    For example:

    nestbed config cart_pole > my.toml

    nestbed config cart_pole --method idad > my.toml
    """
    from nestbed.systems import load
    from nestbed.training import registry, toml

    print(toml.written(registry.config(method).resolve(load(system))), end="")
