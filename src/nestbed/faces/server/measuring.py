"""Measurements by the number of their step: each counts once, however often it is sent."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nestbed.faces.server.course import ENDS
from nestbed.faces.server.refusal import conflict
from nestbed.numerics.errors import NestbedError, did_you_mean

if TYPE_CHECKING:
    from nestbed.faces.server.course import Course
    from nestbed.faces.server.forms import Measurement
    from nestbed.live.session import Session

FAR = 1e6
"""Standard deviations from what was predicted beyond which a number is taken for a mistake, not for a measurement."""
TINY = 1e-12
"""What a standard deviation counts as at least."""
LONGEST, SHORTEST = 1000.0, 1e-3
"""Steps of the model that may pass between two measurements."""


def ordered(found: dict[str, float | None], names: tuple[str, ...], what: str) -> list[float]:
    """Return values in the order of their names; NaN for null."""
    for name in found:
        if name not in names:
            raise NestbedError(f"there is no {what} {name!r}; {did_you_mean(name, names)}.")
    missing = [name for name in names if name not in found]
    if missing:
        null = "; give null for what was not measured" if what == "sensor" else ""
        raise NestbedError(f"the {what} {missing[0]!r} is missing{null}.")
    return [math.nan if found[name] is None else float(found[name]) for name in names]  # type: ignore[arg-type]


def take(session: "Session", form: "Measurement", course: "Course") -> None:
    """Take in a measurement of the step that is awaited; raise where it is of another."""
    system = session.system
    y = ordered(form.y, system.observation_names, "sensor")
    applied = None if form.applied is None else ordered({**form.applied}, system.design_names, "design")
    if form.step == 0 and session.first is None:
        if applied is not None:
            raise NestbedError("before step 0 there is no design, so leave 'applied' out.")
        session.update(y, time=form.time)
        return
    awaited = session.step + 1 if session.first is not None else 0
    if form.step != awaited:
        again = " (or of step 1, after GET /sessions/{id}/design)" if session.first is None else ""
        raise conflict(f"the measurement is of step {form.step}, but that of step {awaited}{again} is awaited.")
    _check_time(session, form.time)
    if applied is not None:
        predicted = session.posterior.predicted(np.array(applied), ENDS)
    else:
        predicted = course.lines[-1].get("next", {}) if course.step == session.step else {}
    _check_near(predicted, dict(zip(system.observation_names, y, strict=True)))
    session.update(y, applied=applied, time=form.time)


def check_same(session: "Session", form: "Measurement") -> None:
    """Raise unless the numbers are those that were taken in for that step."""
    system = session.system
    y = ordered(form.y, system.observation_names, "sensor")
    known = session.first if form.step == 0 else session.history[form.step - 1].observation
    same = known is not None and np.array_equal(np.array(y), known, equal_nan=True)
    if form.applied is not None and form.step > 0:
        applied = ordered({**form.applied}, system.design_names, "design")
        same = same and np.array_equal(np.array(applied), session.history[form.step - 1].applied)
    if form.time is not None and form.step > 0:
        same = same and form.time == session.history[form.step - 1].time
    if not same:
        raise conflict(
            f"step {form.step} was measured already, with other numbers; what was taken in counts, and step "
            f"{session.step + 1} is awaited."
        )


def answer(session: "Session", step: int) -> dict[str, Any]:
    """Return what a measurement came to: the same however often it is asked."""
    rows = session.history[:step]
    gain = rows[-1].gain if rows else 0.0
    total = sum(each.gain for each in rows)
    names = session.system.observation_names
    p = rows[-1].p.tolist() if rows else [math.nan] * len(names)
    return {
        "step": step,
        "gain": gain if math.isfinite(gain) else None,
        "total": total if math.isfinite(total) else None,
        "p": {name: value if math.isfinite(value) else None for name, value in zip(names, p, strict=True)},
    }


def _check_time(session: "Session", time: float | None) -> None:
    if time is None:
        return
    steps = (time - session.time) / session.system.step
    if steps > LONGEST or 0.0 < steps < SHORTEST:
        raise NestbedError(
            f"the time {time:g} is {steps:.3g} steps of the model after the last observation, at {session.time:g}; "
            f"give times in the model's unit, between {SHORTEST:g} and {LONGEST:g} steps apart."
        )


def _check_near(predicted: Mapping[str, Sequence[float | None]], seen: dict[str, float]) -> None:
    """Refuse numbers so far from what was predicted that they are mistakes: no belief comes back from one."""
    for name, (mean, low, high) in predicted.items():
        if mean is None or low is None or high is None or math.isnan(seen[name]):
            continue
        away = abs(seen[name] - mean) / max((high - low) / (2.0 * 1.96), TINY)
        if away > FAR:
            raise NestbedError(
                f"{name} = {seen[name]:g} is {away:.0e} standard deviations from what was predicted, {low:.3g} to "
                f"{high:.3g}; check its unit and sign, or give null if it is no measurement."
            )
