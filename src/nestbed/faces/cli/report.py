"""`nestbed report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from nestbed.faces.cli import listing
from nestbed.numerics.errors import NestbedError

if TYPE_CHECKING:
    from nestbed.model.system import BaseSystem


def report(
    place: Path,
    *,
    system: Annotated[str | None, listing.system()] = None,
    out: Path | None = None,
) -> None:
    """Write one page about a run, a session or a design, for someone who was not there.

    For example:

    nestbed report runs/pendulum

    nestbed report sessions/heater --out monday.html

    nestbed report designs/motor --system my_motor.py:Motor

    The page needs nothing else: words, figures, tables, the system's equations, settings, versions, and how to do it
    again.

    Parameters
    ----------
    place
        The folder of a run, of a session or of a design.
    system
        The model, where it is one of your own.
    out
        The file; by default report.html in that folder.
    """
    import tempfile

    from nestbed.faces.terminal import bars, say
    from nestbed.numerics import storage
    from nestbed.systems import load

    model = None if system is None else load(system)
    write = _kind(place)
    file = place / "report.html" if out is None else out
    if file.is_dir():
        raise NestbedError(
            f"{file} is a folder, but the report is one file; give its name, such as {file}/report.html."
        )
    storage.writable(file.parent)
    with tempfile.TemporaryDirectory() as pictures, bars.Working("report"):
        page = write(place, model, Path(pictures))
    with storage.saving(file.parent):
        storage.write(file, page.encode())
    say(f"Saved {file}")


def _kind(place: Path) -> Any:
    """Return what writes the page of what a folder holds."""
    from nestbed.live import reading
    from nestbed.planning.plan import FACTS
    from nestbed.runs import folder as runs

    if not place.is_dir():
        raise NestbedError(f"there is no folder {place}: give that of a run, of a session or of a design.")
    if (place / FACTS).is_file():
        return _design
    if reading.holds_session(place):
        return _session
    if runs.holds_run(place):
        return _run
    inside = [each.name for each in runs.within(place)]  # or it says what is missing
    raise NestbedError(f"{place} holds several runs: {', '.join(inside)}; give one of them.")


def _design(place: Path, system: BaseSystem | None, pictures: Path) -> str:
    from nestbed.faces import figures, reports
    from nestbed.planning.plan import load_plan

    plan = load_plan(place, system)
    figures.plan(plan, plan.predicted(), pictures / "plan.png")
    return reports.plan(plan, pictures / "plan.png")


def _run(place: Path, system: BaseSystem | None, pictures: Path) -> str:
    import jax

    from nestbed.faces import accounts, courses, figures
    from nestbed.policies.feedback import Feedback
    from nestbed.runs.folder import load_run
    from nestbed.systems import name_of

    run = load_run(place, system)
    policy = run.policy if isinstance(run.policy, Feedback) else run.policy.mean()
    figures.learning_curve([run], pictures / "curve.png", run.title)
    courses.course(jax.random.key(0), run.system, policy, run.config.horizon, pictures / "course.png")
    return accounts.run(run, name_of(run.system), [pictures / "curve.png", pictures / "course.png"])


def _session(place: Path, system: BaseSystem | None, pictures: Path) -> str:
    from nestbed.faces import accounts, results, sessions
    from nestbed.live import reading

    kept = reading.read(place, system)
    if not kept.records:
        return accounts.session(kept, None, [])
    found = sessions.findings(kept.key, kept.system, kept.records, kept.gain)
    return accounts.session(kept, found, results.draw(found, pictures))
