"""What is given to a session, checked before it counts: each mistake gets one sentence, and nothing is lost by it."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from nestbed.model import checks
from nestbed.model.system import BaseSystem
from nestbed.numerics.errors import NestbedError, at_least_one, did_you_mean
from nestbed.policies.signals import Replay


def values(found: Any, what: str, names: tuple[str, ...], missing: bool = False) -> np.ndarray:
    """Return one finite number for each name; NaN too where some may be `missing`."""
    numbers = checks.numbers(f"the {what}", found).reshape(-1)
    if len(numbers) != len(names):
        raise NestbedError(f"the {what} has {len(numbers)} numbers, but there are {len(names)}: {', '.join(names)}.")
    bad = np.isinf(numbers) if missing else ~np.isfinite(numbers)
    if bad.any():
        i = int(np.argmax(bad))
        raise NestbedError(f"the {what} has {names[i]} = {numbers[i]}; give a finite number.")
    return numbers


def line(system: BaseSystem, entry: dict[str, Any]) -> None:
    """Raise a KeyError, TypeError, ValueError or NestbedError if this is no line of a session of this system."""
    kind = entry["kind"]
    if kind in ("first", "update", "restart"):
        values(_read(entry["y"]), "observation", system.observation_names, missing=True)
    for name in ("u", "applied"):
        if name in entry:
            values(_read(entry[name]), "design", system.design_names)
    if kind == "extend":
        at_least_one(horizon=entry["horizon"])


def _read(numbers: Any) -> list[float]:
    return [math.nan if value is None else value for value in numbers]


def time(found: Any, last: float | None, step: float) -> float:
    """Return when an observation was made: after the last one, by default a step."""
    if found is None:
        return 0.0 if last is None else last + step
    if isinstance(found, bool) or not isinstance(found, int | float | np.number) or not math.isfinite(found):
        raise NestbedError(f"the time is {found!r}, but it must be a finite number.")
    if last is not None and found <= last:
        raise NestbedError(
            f"the time {found:g} is not after that of the last observation, {last:g}; give observations in their order."
        )
    return float(found)


def horizon(system: BaseSystem, policy: Any, wanted: int | None) -> int:
    """Return how many experiments are planned: as many as wanted, as the policy is made for, or as the system has."""
    if wanted is not None:
        return wanted
    own: list[Any] = [len(policy.table) * policy.hold] if type(policy) is Replay else []
    own += [getattr(policy, name, None) for name in ("longest", "trained_for")]
    return next((each for each in own if isinstance(each, int)), system.horizon)


def targets(system: BaseSystem, wanted: Mapping[str, float] | None) -> dict[str, float]:
    """Return the standard deviations that are asked for, by parameter."""
    for name in wanted or {}:
        if name not in system.parameter_names:
            raise NestbedError(
                f"target_sd names {name!r}, which is no parameter; {did_you_mean(str(name), system.parameter_names)}."
            )
    return dict(wanted or {})
