"""Systems as plain data, to tell whether a stored run or policy belongs to the one at hand."""

import hashlib
import re
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from nestbed import checks, systems
from nestbed.errors import NestbedError
from nestbed.system import BaseSystem

_ADDRESS = re.compile(r"0x[0-9a-f]+")


def describe(system: BaseSystem) -> dict[str, Any]:
    """Return a system as plain data: its name, its settings and a fingerprint of its equations."""
    known = [name for name, kind in systems.CATALOGUE.items() if kind is type(system)]
    settings = {name: _plain(value) for name, value in system._settings.items() if name not in ("defaults", "units")}
    counts = system.state_names, system.design_names, system.parameter_names
    x, u, theta = (tuple(jnp.ones(()) for _ in names) for names in counts)

    def equations(x: Any, u: Any, theta: Any) -> Any:
        views = [getattr(system, name, None) for name in ("features", "view")]
        named = (system.State(*x), system.Design(*u)), (system.State(*x),)
        seen = [view(*at) for view, at in zip(views, named, strict=True) if callable(view)]
        return system.rates(x, u, theta), system.variance(x, u, theta), system.parameters.log_density(theta), seen

    traced = jax.make_jaxpr(equations)(x, u, theta)
    text = _ADDRESS.sub("", traced.pretty_print(use_color=False))
    constants = [np.asarray(value).tobytes() for value in traced.consts]
    print_of = hashlib.sha256(b"".join([text.encode(), *constants])).hexdigest()[:16]
    return {"name": known[0] if known else system.name, "settings": settings, "equations": print_of}


def same_system(place: Path, stored: dict[str, Any], system: BaseSystem | None, resuming: bool = False) -> BaseSystem:
    """Return the system that a file belongs to, or say in what the given one differs."""
    if system is None:
        if stored["name"] not in systems.CATALOGUE:
            raise NestbedError(
                f"{place} was trained on {stored['name']}, which is not built in; give the system too, as the second "
                "argument (on the command line as path/to/file.py:ClassName, for `evaluate` after --system)."
            )
        system = systems.load(stored["name"])
    checks.instance(system)
    given = describe(system)
    if given["name"] != stored["name"]:
        raise NestbedError(
            f"{place} was trained on {stored['name']}, but the system is {given['name']}; give the one it was "
            "trained on, or another folder."
        )
    ours, theirs = given["settings"], stored["settings"]
    changed = [name for name in {**theirs, **ours} if ours.get(name) != theirs.get(name)]
    if changed:
        name = changed[0]
        raise NestbedError(
            f"{place} was trained on {stored['name']} with {name} = {theirs.get(name)}, but the system has "
            f"{ours.get(name)}; give the variant it was trained on, or another folder."
        )
    if given["equations"] != stored["equations"]:
        told = (
            f"{place} was trained on {stored['name']}, whose equations (or jax's way to write them) have changed since"
        )
        if resuming:
            raise NestbedError(f"{told}; train in another folder.")
        warnings.warn(f"{told}; its policy may not suit them.", stacklevel=3)
    return system


def _plain(value: Any) -> Any:
    """Return a setting of a system as JSON would give it back."""
    if isinstance(value, dist.Distribution):
        arguments = value.get_args()
        told = f"{type(value).__name__}({', '.join(f'{n}={np.asarray(v).tolist()}' for n, v in arguments.items())})"
        base = getattr(value, "base_dist", None)
        return told if base is None or base.get_args() == arguments else f"{told} of {_plain(base)}"
    if hasattr(value, "items"):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return f"array {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()[:16]}"
    return value if isinstance(value, int | float | str | None) else _ADDRESS.sub("", repr(value))
