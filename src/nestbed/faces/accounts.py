"""Pages on what was trained and what was run live, for someone who was not there."""

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nestbed.faces import descriptions, reports
from nestbed.faces.figures import labelled
from nestbed.faces.page import Grid, Section, as_html
from nestbed.faces.terminal import training
from nestbed.numerics.packages import versions

if TYPE_CHECKING:
    from nestbed.faces.findings import Findings
    from nestbed.live.reading import Kept
    from nestbed.runs.run import Run

LONGEST = 200
"""Rows of a record that a page shows; all of them are in the folder."""


def run(found: "Run", name: str, pictures: Sequence[Path]) -> str:
    """Return what a training came to: gains, curve, what the policy does, certificates, settings, how to repeat it."""
    curve, course = pictures
    columns = training.columns([found])
    rows = [(str(row["iteration"]), *training.cells(row, columns)) for row in found.metrics]
    trained = Grid(("iteration", *(training.column(each)[0] for each in columns)), rows)
    sections = [
        Section(
            "In short", _came_to(found), pictures=[(course, "Designs and observations of rigs drawn from the prior")]
        ),
        descriptions.system(found.system),
        Section("How it was trained", [found.title, found.config.details], [trained], [(curve, "Gain by iterations")]),
    ]
    if found.comparison is not None:
        gains = reports.gains(found.comparison, str(found.winner))
        sections.insert(1, Section("What it gains", ["In nats; all on the same simulated rigs."], [gains]))
    about = found.about
    origin = {"key": about["key"], "precision": about.get("precision"), **_machine(about), **about.get("versions", {})}
    command = f"nestbed train {name} --config config.toml --seed {found.seed} --out ANOTHER"
    again = [
        f"With the same sources and number of cores, `{command}` gives the same numbers; config.toml is in the run's "
        "folder. nestbed export writes the policy as files that run without nestbed."
    ]
    sections.append(
        Section("Settings", again, [descriptions.settings(found.config.plain()), descriptions.settings(origin)])
    )
    return as_html(f"{found.system.name}: a policy that was trained", sections)


def _came_to(found: "Run") -> list[str]:
    """Return what a training came to, in sentences."""
    last, config = found.metrics[-1], found.config
    error = f" ± {last['eig_error']:.3f} (standard error)" if last.get("eig_error") is not None else ""
    about = ", ".join(found.system.parameter_names)
    words = [
        f"After {found.iteration} of {config.iterations} iterations of {config.method}, what is handed out is expected "
        f"to tell **{last['eig']:.2f} nats**{error} about {about} in {config.horizon} experiments."
    ]
    words += [each for each in (found.outcome, found.verdict) if each]
    own = next((each for each in found.comparison or () if each.policy == found.winner), None)
    if own is not None and own.violation is not None:
        words.append(f"With it, {own.violation}.")
    return words


def _machine(about: dict[str, object]) -> dict[str, object]:
    return {name: about[name] for name in ("python", "machine", "device", "cores") if name in about}


def session(kept: "Kept", found: "Findings | None", pictures: Sequence[Path]) -> str:
    """Return what a session did and what all of its records say."""
    system = kept.system
    sections = [Section("In short", _happened(kept, found))]
    if found is not None:
        sections += reports.measured(found, pictures)
    sections.append(descriptions.system(system))
    if kept.changed:
        sections.append(Section("Designs that would have broken limits", kept.changed[:LONGEST]))
    sections += [Section("The record", _cut(kept), [_record(kept)])] if kept.records else []
    origin = {"policy": kept.policy, "key": [*kept.words], "particles": kept.particles, "horizon": kept.horizon}
    again = [
        "All of it follows from session.json and journal.jsonl in the session's folder, by the system above; `nestbed "
        "posterior` infers from the record once more."
    ]
    sections.append(Section("Settings", again, [descriptions.settings({**origin, **versions()})]))
    return as_html(f"{system.name}: a session on a rig", sections)


def _happened(kept: "Kept", found: "Findings | None") -> list[str]:
    """Return what was done, in sentences."""
    count, most = kept.experiments, kept.horizon
    words = [f"**{count}** of {most} experiments were done on {kept.system.name}, with designs by {kept.policy}."]
    if kept.clocks is not None:
        begun, ended = (datetime.datetime.fromtimestamp(each, datetime.UTC) for each in kept.clocks)
        words[0] += f" They began on {begun:%d %B %Y at %H:%M} and ended on {ended:%d %B %Y at %H:%M} (UTC)."
    if found is not None:
        told = ", ".join(
            f"{each.name} {each.posterior[0]:.4g} ± {each.posterior[1]:.2g} {each.unit}".rstrip()
            for each in found.marginals
        )
        told_first = found.explanation.sentence[:1].upper() + found.explanation.sentence[1:]
        words.append(
            f"They gained **{found.gain:.2f} nats**; by them **{told}** (mean and standard deviation). {told_first}"
        )
    if kept.aborted is not None:
        words.append(f"The session was ended: {kept.aborted.rstrip('.')}.")
    if kept.changed:
        words.append(f"In {len(kept.changed)} of them the policy's design would have broken limits too often.")
    return words if count else [*words, "Nothing has been measured after a design, so there is nothing to infer from."]


def _cut(kept: "Kept") -> list[str]:
    rows = sum(len(each.observations) for each in kept.records)
    return [f"The first {LONGEST} of {rows} rows; all of them are in the session's folder."] if rows > LONGEST else []


def _record(kept: "Kept") -> Grid:
    """Return a row per observation, with the design that was applied from then on."""
    system, rows = kept.system, []
    for i, each in enumerate(kept.records):
        times = system.step * np.arange(len(each.observations)) if each.times is None else each.times
        designs = [*(tuple(f"{value:.4g}" for value in row) for row in each.designs), ("",) * len(system.design_names)]
        for time, y, u in zip(times, each.observations, designs, strict=True):
            rows.append((str(i), f"{time:.6g}", *("not measured" if v != v else f"{v:.4g}" for v in y), *u))
    names = [labelled(name, system) for name in (*system.observation_names, *system.design_names)]
    return Grid(("record", "time", *names), rows[:LONGEST])
