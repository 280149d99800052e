"""Measurements by the number of their step: each counts once, however often it is sent."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from nestbed.faces.server.course import ENDS
from nestbed.faces.server.refusal import conflict
from nestbed.numerics.errors import NestbedError, did_you_mean

if TYPE_CHECKING:
    from nestbed.faces.server.course import Course
    from nestbed.faces.server.forms import Measurement
    from nestbed.live.session import Session

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
    predicted = {} if applied is None else session.posterior.predicted(np.array(applied), ENDS)
    session.update(y, applied=applied, time=form.time)
    course.predicted[session.step] = predicted


def check_same(session: "Session", form: "Measurement") -> None:
    """Raise unless the numbers are those that were taken in for that step."""
    system = session.system
    y = ordered(form.y, system.observation_names, "sensor")
    known = session.first if form.step == 0 else session.measured(form.step)
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
