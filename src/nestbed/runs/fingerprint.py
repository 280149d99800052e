"""Systems as plain data, to tell whether a stored run or policy belongs to the one at hand.

Settings are compared as they are written. Equations are compared by what they give: their values at fixed points, which
are stored with them, so that neither a nested program nor another way of writing the same formula misleads.
"""

import hashlib
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from nestbed import systems
from nestbed.model import checks, predictive, sensors
from nestbed.model.system import BaseSystem
from nestbed.numerics import programs
from nestbed.numerics.errors import NestbedError

POINTS = 16
"""States, designs and parameters at which equations are compared."""
FARTHER = 10.0
"""How much farther from the middle the states of a second set of points are."""
TOLERANCE = 1e-7
"""Values differ if they do by more than this, relative to themselves and to the size that the others have."""
SEEN = ("sensors", "resolution", "delay", "state_particles")
"""Settings that are told only where there are any: systems of which every state is seen have none."""
_ADDRESS = re.compile(r"0x[0-9a-f]+")


def describe(system: BaseSystem) -> dict[str, Any]:
    """Return a system as plain data: its name, its settings, and the values of its equations at some points."""
    points = _points(system)
    values = {name: _numbers(rows) for name, rows in _values(system, points).items()}
    equations = {"points": points.tolist(), "values": values}
    return {"name": systems.name_of(system), "settings": settings(system), "equations": equations}


def settings(system: BaseSystem) -> dict[str, Any]:
    """Return the settings that decide a system's numbers, as plain data."""
    decide = {name: value for name, value in system._settings.items() if name not in ("defaults", "units")}
    return {name: _plain(value) for name, value in decide.items() if value or name not in SEEN}


def check(stored: dict[str, Any]) -> None:
    """Raise a ValueError, KeyError, TypeError or AttributeError unless this is a system as `describe` gives it."""
    stored["settings"].items(), str.upper(stored["name"])
    points, values = stored["equations"]["points"], stored["equations"]["values"]
    if np.array(points, float).ndim != 2 or not np.isfinite(np.array(points, float)).all():
        raise ValueError("the points at which its equations are compared are not finite numbers")
    for name, rows in values.items():
        if np.array(rows, float).shape[1:] != (len(points),):
            raise ValueError(f"the values of its {name} are not one for each point")


def same(stored: dict[str, Any], system: BaseSystem) -> bool:
    """Return whether a described system is this one: name, settings and equations."""
    if (stored["name"], stored["settings"]) != (systems.name_of(system), settings(system)):
        return False
    try:
        return changed_equation(stored, system) is None
    except ValueError:  # points of another system
        return False


def changed_equation(stored: dict[str, Any], system: BaseSystem) -> str | None:
    """Return which equation gives other values at the stored points than it did, None if all give the same."""
    points = np.array(stored["equations"]["points"], float)
    wanted = len(system.state_names) + len(system.design_names) + len(system.parameter_names)
    if points.shape[1] != wanted:
        raise ValueError(f"the points at which its equations are compared have {points.shape[1]} numbers, not {wanted}")
    before = {name: np.array(rows, float) for name, rows in stored["equations"]["values"].items()}
    now = _values(system, points)
    changed = [name for name in {**before, **now} if not _alike(before.get(name), now.get(name))]
    return changed[0] if changed else None


def _changed(place: Path, stored: dict[str, Any], system: BaseSystem) -> str | None:
    try:
        return changed_equation(stored, system)
    except ValueError as error:
        raise NestbedError(f"{place} is damaged: {error}; restore it from a copy.") from None


def _points(system: BaseSystem) -> np.ndarray:
    """Return rows of a state, a design and unconstrained parameters, where random designs lead."""
    seen = predictive.visited(system)
    position = system.parameters.unconstrain(seen.theta)
    rows = np.stack([*seen.x, *seen.u, *(np.asarray(value) for value in position)], axis=1)
    moved = rows[predictive.RIGS :]  # from the start alone little can be told
    moved = moved[np.isfinite(moved).all(axis=1)]
    rows = moved if len(moved) else rows[: predictive.RIGS]
    near = rows[len(rows) * np.arange(POINTS) // POINTS]
    far = near.copy()  # where limits and end stops may be, at the corners of the box
    states, ends = len(system.state_names), len(system.state_names) + len(system.design_names)
    middle = np.median(rows[:, :states], axis=0)
    far[:, :states] = middle + FARTHER * (far[:, :states] - middle)
    corners = np.array([system.designs.low, system.designs.high])
    far[:, states:ends] = corners[
        np.arange(POINTS)[:, None] // 2 ** np.arange(ends - states) % 2, np.arange(ends - states)
    ]
    return np.concatenate([near, far])


def _values(system: BaseSystem, points: np.ndarray) -> dict[str, np.ndarray]:
    """Return rows of values, one for each point, of every equation; what is not finite is NaN."""
    programs.current(type(system), system._settings, vars(system))
    found = {name: np.asarray(rows) for name, rows in _equations(system)(jnp.asarray(points.T)).items()}
    return {name: np.where(np.isfinite(rows), rows, np.nan) for name, rows in found.items()}


@programs.cached(maxsize=64)
def _equations(system: BaseSystem) -> Callable[[jax.Array], dict[str, jax.Array]]:
    """Return the program that evaluates every equation of a system; as for filters, one system has one program."""
    cuts = np.cumsum([len(system.state_names), len(system.design_names)])

    def evaluate(columns: jax.Array) -> dict[str, jax.Array]:
        x, u, position = (tuple(part) for part in jnp.split(columns, cuts))
        theta = system.parameters.constrain(position)
        found = {
            "drift": system.rates(x, u, theta),
            "variance": system.variance(x, u, theta),
            "prior": system.parameters.log_density(position),
        }
        if shared := system.shared_variance(x, u, theta):
            found["shared variance"] = shared
        if system.sensors:
            found["sensors"] = (*sensors.seen(system, x, theta), *sensors.variances(system, x, u, theta))
        features, view = (getattr(system, name, None) for name in ("features", "view"))
        if callable(features):
            found["features"] = features(system.State(*x), system.Design(*u))
        size = columns.shape[1]
        if callable(view):
            shown = tuple(jnp.broadcast_to(value, (size,)) for value in sensors.seen(system, x, theta))
            found["view"] = jax.vmap(lambda *seen: view(system.Observation(*seen)))(*shown)
        return {
            name: jnp.stack([jnp.broadcast_to(jnp.asarray(leaf, float), (size,)) for leaf in jax.tree.leaves(rows)])
            for name, rows in found.items()
        }

    return jax.jit(evaluate)


def _alike(before: np.ndarray | None, now: np.ndarray | None) -> bool:
    """Return whether values are the same but for rounding, which grows with what they are made of."""
    if before is None or now is None or before.shape != now.shape:
        return False
    slack = TOLERANCE * np.array([_size(row) for row in before]).reshape(-1, 1)
    close = np.abs(now - before) <= TOLERANCE * np.abs(before) + slack
    return bool(np.all(close | (np.isnan(before) & np.isnan(now))))


def _size(row: np.ndarray) -> float:
    """Return how large the values of one output are, those that are 0 or not finite apart."""
    sizes = np.abs(row[np.isfinite(row) & (row != 0.0)])
    return float(np.median(sizes)) if len(sizes) else 0.0


def _numbers(rows: np.ndarray) -> list[list[float | None]]:
    """Return rows as JSON has numbers, which knows no NaN."""
    return [[None if value != value else value for value in row] for row in rows.tolist()]


def same_system(place: Path, stored: dict[str, Any], system: BaseSystem | None, resuming: bool = False) -> BaseSystem:
    """Return the system that a file belongs to, or say in what the given one differs."""
    check(stored)
    if system is None:
        if stored["name"] not in systems.SYSTEMS:
            raise NestbedError(
                f"{place} is of {stored['name']}, which is not built in; give the system too.", topic="system"
            )
        system = systems.load(stored["name"])
    checks.instance(system)
    if systems.name_of(system) != stored["name"]:
        raise NestbedError(
            f"{place} is of {stored['name']}, but the system is {systems.name_of(system)}; give the one it "
            "is of, or another folder."
        )
    ours, theirs = settings(system), stored["settings"]
    changed = [name for name in {**theirs, **ours} if ours.get(name) != theirs.get(name)]
    if changed:
        name = changed[0]
        raise NestbedError(
            f"{place} is of {stored['name']} with {name} = {theirs.get(name)}, but the system has "
            f"{ours.get(name)}; give the variant it is of, or another folder."
        )
    equation = _changed(place, stored, system)
    if equation is not None:
        sentence = f"{place} is of {stored['name']}, whose equations (the {equation}) have changed since"
        if resuming:
            raise NestbedError(f"{sentence}; train in another folder.")
        warnings.warn(f"{sentence}; its policy may not suit them.", stacklevel=3)
    return system


def _plain(value: Any) -> Any:
    """Return a setting of a system as JSON would give it back."""
    if isinstance(value, dist.Distribution):
        arguments = value.get_args()
        text = f"{type(value).__name__}({', '.join(f'{n}={np.asarray(v).tolist()}' for n, v in arguments.items())})"
        base = getattr(value, "base_dist", None)
        return text if base is None or base.get_args() == arguments else f"{text} of {_plain(base)}"
    if hasattr(value, "items"):
        return {_key(name): _plain(item) for name, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(str(_plain(item)) for item in value)
    if isinstance(value, float) and value != value:
        return "nan"
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return f"array {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()[:16]}"
    return value if isinstance(value, int | float | str | None) else _ADDRESS.sub("", repr(value))


def _key(name: Any) -> str:
    """Return a key as JSON has it: of parameters that are known together, their names."""
    return ", ".join(map(str, name)) if isinstance(name, tuple) else str(name)
