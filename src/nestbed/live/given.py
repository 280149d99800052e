"""What is given to a session, checked before it counts: each mistake gets one sentence, and nothing is lost by it."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from nestbed import likelihood as likelihoods
from nestbed.belief.base import FAR
from nestbed.likelihood.base import Record
from nestbed.model import checks, predictive
from nestbed.model.system import BaseSystem
from nestbed.numerics import programs
from nestbed.numerics.errors import NestbedError, at_least_one, did_you_mean
from nestbed.policies.signals import Replay

FARTHEST = math.sqrt(2.0 * FAR)
"""Standard deviations that leave an outcome a density that no outcome of a model has."""
DRAWS = 256
"""Draws of the prior by which first observations are judged."""


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


def first(system: BaseSystem, seen: np.ndarray) -> None:
    """Raise where a record cannot begin with an observation: it is too large, or too far from the start."""
    likelihood = likelihoods.of(system)
    if not system.hidden:
        rows: Any = np.stack([seen, seen])[None], np.array(system.rest_design)[None, None]
        likelihood.check_record(Record(*rows))
        return _within_reach(system, seen)
    means, variances = (np.array([np.broadcast_to(v, DRAWS) for v in part]) for part in _expected_first(system))
    middle = means.mean(axis=1)
    sd = np.sqrt(variances.mean(axis=1) + means.var(axis=1))
    off = np.nan_to_num(np.abs(seen - middle) / sd)
    if (off > FARTHEST).any():
        i = int(np.argmax(off))
        raise NestbedError(
            f"{system.observation_names[i]} = {seen[i]:g} is {off[i]:.2g} standard deviations from what {system.name} "
            f"shows at first, {middle[i]:.3g}; check its unit and sign, or give it as not measured."
        )
    return None


def _within_reach(system: BaseSystem, seen: np.ndarray) -> None:
    """Raise where a state that is seen as it is lies where no rig of the prior gets to: it may begin anywhere else."""
    places = np.stack([np.ravel(value) for value in predictive.visited(system).x])
    places = np.where(np.isfinite(places), places, np.nan)
    low, middle, high = np.nanquantile(places, (0.05, 0.5, 0.95), axis=1)
    span = np.where(high > low, high - low, np.inf)
    off = np.nan_to_num(np.abs(seen - middle) / span)
    if (off > FARTHEST).any():
        i = int(np.argmax(off))
        raise NestbedError(
            f"{system.observation_names[i]} = {seen[i]:g} at first is {off[i]:.2g} times as far from {middle[i]:.3g} "
            f"as what inputs and noise make of {system.name}; check its unit and sign, or give it as not measured."
        )


@programs.cached(maxsize=64)
def _expected_first(system: BaseSystem) -> Any:
    return likelihoods.of(system).first_expected(tuple(value[:DRAWS] for value in system.parameters.draws))


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
