"""What a folder says of the session that it holds, and whether that is the one at hand."""

import hashlib
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from nestbed.model.system import BaseSystem
from nestbed.numerics.errors import NestbedError, at_least_one
from nestbed.runs import fingerprint, sources

SAME = ("policy", "key", "particles", "gaps")
"""What must be as it was when the session began, beside the system."""
OTHERS = ("nestbed", "builtins", "abc", "equinox", "typing")
"""Packages whose classes are no user's code."""


def describe(
    system: BaseSystem, policy: dict[str, str], key: jax.Array, *, particles: int, gaps: bool, horizon: int
) -> dict[str, Any]:
    """Return what decides a session's numbers, as plain data."""
    return {
        "system": fingerprint.describe(system),
        "policy": policy,
        "key": np.asarray(jax.random.key_data(key)).tolist(),
        "particles": particles,
        "gaps": gaps,
        "horizon": horizon,
    }


def policy(given: Any, ready: Any) -> dict[str, str]:
    """Return the name of a policy, a digest of its numbers in the form that compiles, and one of the user's code."""
    numbers = [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(ready, eqx.is_inexact_array_like))]
    digest = hashlib.sha256(b"".join(str(each.shape).encode() + each.tobytes() for each in numbers))
    code = hashlib.sha256("\n".join(_codes(given)).encode())
    return {"name": type(given).__name__, "numbers": digest.hexdigest()[:16], "code": code.hexdigest()[:16]}


def _codes(policy: Any) -> list[str]:
    """Return the code of a policy's classes that are not nestbed's, and of the policies within it."""
    kinds = [kind for kind in type(policy).__mro__ if kind.__module__.partition(".")[0] not in OTHERS]
    within = [value for value in getattr(policy, "__dict__", {}).values() if hasattr(value, "step")]
    return [sources.bare(kind) for kind in kinds] + [code for each in within for code in _codes(each)]


def check(place: Path | None, known: dict[str, Any], head: dict[str, Any], system: BaseSystem) -> None:
    """Raise unless what a folder says of its session is so of this one."""
    try:
        same = fingerprint.same(known["system"], system)
        changed = [name for name in SAME if known[name] != head[name]]
        at_least_one(horizon=known["horizon"])
        was = known["system"]["name"]
    except (KeyError, TypeError, ValueError, AttributeError, NestbedError) as error:
        raise NestbedError(
            f"what {place} says of its session is damaged ({type(error).__name__}: {error}); restore it from a copy."
        ) from None
    if not same:
        raise NestbedError(
            f"the session in {place} is of {was} as it was then, but the system given is another or has changed; give "
            "that system, or another directory."
        )
    for name in changed:
        raise NestbedError(
            f"the session in {place} was begun with {name} = {_short(known[name])}, but now it is "
            f"{_short(head[name])}; give what it was begun with, or another directory."
        )


def _short(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value)
    return f"{value['name']} (numbers {value['numbers']}, code {value.get('code', 'unknown')})"
