"""The report: what the cells say in words, tables and figures, as a page, as Markdown and as CSV files."""

import csv
import io
import math
from collections.abc import Iterable
from pathlib import Path

from nestbed import systems
from nestbed.faces import page
from nestbed.faces.page import Grid, Section
from nestbed.numerics import interrupts, storage
from nestbed.runs.folder import load_log
from nestbed.runs.run import Log
from paper import pictures, tables
from paper.reproduce import Done
from paper.studies import PUBLISHED, SYSTEMS, Scale

NAMES = {
    "random": "Random",
    "myopic": "Myopic",
    "prbs": "PRBS",
    "idad": "iDAD",
    "io_smc2": "IO-SMC²",
    "io_smc2_exact": "IO-SMC² (exact)",
    "prbs_independent": "PRBS, a coin for each channel",
    "maximum_length": "Maximum-length PRBS, held for 4",
    "chirp": "Chirp",
    "multisine": "Multisine",
    "greedy": "Greedy",
    "myopic_no_slew": "Myopic without slew penalty",
}


def write(done: list[Done], scale: Scale, folder: Path) -> Path:
    """Write the figures, the CSV files and the report; return the page."""
    with storage.saving(folder):
        storage.inside(folder, "figures")
        rows = tables.estimates(done)
        names = dict.fromkeys(each.cell.system for each in done)
        parts = [_system(name, done, rows, scale, folder) for name in names]
        interrupts.check()
        sections = [_summary(done, rows, scale), *parts, _costs(done)]
        _save_csv(folder, done, rows)
        title = "Nesting particle filters for experimental design: reproduction"
        storage.write(folder / "report.md", page.markdown(title, sections, folder).encode())
        place = folder / "report.html"
        storage.write(place, page.as_html(title, sections).encode())
    return place


def _summary(done: list[Done], rows: list[tables.Row], scale: Scale) -> Section:
    judged = tables.verdict(rows)
    seconds = sum(each.seconds for each in done)
    below = f"Of {judged.trained} cells {_listed(judged.below, 'below the paper by more than three errors')}."
    if not judged.trained:
        below = (
            "These trainings are too small to be compared, and so are the contrastive draws: no difference is given."
        )
    text = [
        "Every number of the paper's tables beside the one computed here. Gains are in nats. A difference is given in "
        "combined standard errors: of the mean over seeds here, of the paper's mean over 25 seeds, and of its rounding "
        "to two digits.",
        f"**Random, PRBS and Myopic** involve no training, so the two should agree: of {judged.cells} cells "
        f"{_listed(judged.beyond_two, 'beyond two')}; {_listed(judged.beyond_three, 'beyond three')}.",
        "**IO-SMC²**: the paper estimates one trained policy 25 times. Here the mean is over all trained policies, ± "
        "their sd, and “range” is from the lowest to the highest; “diff. tr.” is the difference if the sd of the "
        f"paper's 25 trainings is counted as the error of its one policy. {below} "
        "**iDAD** is one policy of a smaller budget than the paper's.",
        f"Settings: scale “{scale.name}”, T = 50, EIG with N = 16 and M = 1024 (three moves), sPCE and sNMC with 16 "
        f"records and {scale.contrastive:,} contrastive draws, {scale.estimates} seeds each. "
        f"All cells took {seconds / 60:.1f} minutes. {_versions(done)}.",
    ]
    return Section("Summary", text)


def _listed(rows: list[tables.Row], limit: str) -> str:
    if not rows:
        return f"none is {limit}"
    named = [
        f"{SYSTEMS[row.system].title} {NAMES[row.policy]} {_METRICS[row.metric]} ({row.difference:+.1f})"
        for row in rows
    ]
    return f"{len(rows)} {'is' if len(rows) == 1 else 'are'} {limit} ({'; '.join(named)})"


_METRICS = {"eig": "EIG", "spce": "sPCE", "snmc": "sNMC"}


def _versions(done: list[Done]) -> str:
    """Return what the cells were computed with."""
    names = dict.fromkeys(name for each in done for name in each.versions)
    found = {name: sorted({each.versions[name] for each in done if name in each.versions}) for name in names}
    return ", ".join(f"{name} {' and '.join(versions)}" for name, versions in found.items()) + "; filters in float64"


def _system(name: str, done: list[Done], rows: list[tables.Row], scale: Scale, folder: Path) -> Section:
    own = [row for row in rows if row.system == name]
    here = [each for each in done if each.cell.system == name]
    study = SYSTEMS[name]
    trainings = {method: _logs(folder, method, here) for method in study.methods}
    trainings = {method: found for method, found in trainings.items() if found}
    section = Section(study.title)
    budget = [found[0].config.budget for method, found in trainings.items() if method == "idad"]
    if budget:
        section.text.append(f"iDAD's budget: {budget[0]}.")
    section.text.extend(_notes(own, scale.contrastive))
    section.grids.append(_paper_grid(own))
    others = [row for row in own if row.policy not in PUBLISHED]
    if others:
        section.text.append("The second table has the policies that the paper does not compare with.")
        section.grids.append(_other_grid(others))
    picture = folder / "figures" / f"{name}_policies.png"
    pictures.policies(own, NAMES, picture, study.title)
    section.pictures.append(
        (picture, "Every policy: the estimate, the lower bound, and the paper's numbers; bars are 95 % intervals.")
    )
    curves = {NAMES[method]: found for method, found in trainings.items() if method != "idad"}
    if curves:
        picture = folder / "figures" / f"{name}_training.png"
        pictures.learning_curves(curves, picture, f"{study.title}: training")
        caption = (
            "Gain of the mean policy while it is trained; grey: the paper's 25 trainings, if the settings are its own."
        )
        section.pictures.append((picture, caption))
    _extras(name, here, section, folder)
    return section


def _extras(name: str, here: list[Done], section: Section, folder: Path) -> None:
    """Add what only some systems have: Figure 1, a sample trajectory, the study of particles."""
    gained = tables.gains(here)
    if gained:
        picture = folder / "figures" / f"{name}_information_gain.png"
        pictures.information_gain(gained, NAMES, picture)
        caption = (
            "Figure 1: information gained in closed form, the paper's points at the experiments they were taken after."
        )
        section.pictures.append((picture, caption))
    for each in here:
        if each.cell.kind == "trajectory":
            picture = folder / "figures" / f"{name}_trajectory.png"
            record = each.result["observations"], each.result["designs"]
            pictures.trajectory(systems.load(name), *record, picture, SYSTEMS[name].title)
            caption = "One deployment of the first trained policy (mean), parameters at the prior's medians."
            section.pictures.append((picture, caption))
    swept = tables.particle_study(here)
    if swept:
        picture = folder / "figures" / f"{name}_particles.png"
        pictures.particle_study(swept, picture)
        section.pictures.append((picture, "Estimates of the first trained policy against the number of particles."))
        section.grids.append(_particle_grid(swept))


def _notes(own: list[tables.Row], contrastive: int) -> list[str]:
    """Say what the numbers themselves do not: where a bound is saturated, and what explains a difference."""
    notes = []
    limit = math.log1p(contrastive)
    full = [NAMES[row.policy] for row in own if row.metric == "spce" and row.mean > limit - 0.2]
    if full:
        notes.append(
            f"sPCE cannot exceed log(L + 1) = {limit:.2f}: here it is at that limit for {', '.join(full)}, and sNMC is "
            "far above the gain; both would need more than exp(gain) draws."
        )
    by = {row.policy: row for row in own if row.metric == "eig"}
    with_slew, without = by.get("myopic"), by.get("myopic_no_slew")
    if with_slew is not None and without is not None:
        notes.append(
            f"Myopic weighs its candidates with the training's slew penalty, as the published settings say, and gains "
            f"{with_slew.mean:.2f}, {_signed(with_slew.difference)} errors from the paper's {with_slew.paper_mean}; "
            f"without the penalty it gains {without.mean:.2f}, {_signed(without.difference)} errors from it."
        )
    return notes


def _logs(folder: Path, method: str, here: list[Done]) -> list[Log]:
    cells = [each.cell for each in here if (each.cell.kind, each.cell.policy) == ("training", method)]
    return [load_log(folder / cell.training) for cell in cells if cell.training is not None]


def _paper_grid(rows: list[tables.Row]) -> Grid:
    """Return a line per policy of the paper; one that is off by more than three standard errors is marked."""
    by = {(row.policy, row.metric): row for row in rows}
    columns = ("policy", "EIG", "paper", "diff.", "diff. tr.", "range", "sPCE", "paper", "diff.", "sNMC")
    lines: list[tuple[str, ...]] = []
    marked: set[int] = set()
    for policy in dict.fromkeys(row.policy for row in rows if row.policy in PUBLISHED):
        eig, spce, snmc = (by[policy, metric] for metric in ("eig", "spce", "snmc"))
        if any(abs(row.difference or 0.0) > 3 for row in (eig, spce)):
            marked.add(len(lines))
        many = f"{eig.lowest:.2f} to {eig.highest:.2f}" if eig.policies > 1 else ""
        lines.append(
            (
                NAMES[policy],
                *(_own(eig), _paper(eig), _signed(eig.difference), _signed(eig.difference_trained), many),
                *(_own(spce), _paper(spce), _signed(spce.difference), _own(snmc)),
            )
        )
    return Grid(columns, lines, frozenset(marked))


def _own(row: tables.Row) -> str:
    return f"{row.mean:.2f} ± {row.sd:.2f}"


def _paper(row: tables.Row) -> str:
    return "–" if row.paper_mean is None else f"{row.paper_mean:.2f} ± {row.paper_sd:.2f}"


def _other_grid(rows: list[tables.Row]) -> Grid:
    names = dict.fromkeys(row.policy for row in rows)
    by = {(row.policy, row.metric): row for row in rows}
    lines = [
        (
            NAMES[name],
            *(_own(by[name, metric]) for metric in ("eig", "spce", "snmc")),
            f"{by[name, 'eig'].seconds:.0f}",
        )
        for name in names
    ]
    return Grid(("policy", "EIG", "sPCE (below)", "sNMC (above)", "seconds"), lines)


def _particle_grid(rows: list[tables.Particles]) -> Grid:
    columns = ("M", "EIG here", "EIG paper", "sPCE here", "sPCE paper", "log(M + 1)", "seconds")
    lines = [
        (
            str(row.particles),
            f"{row.eig[0]:.2f} ± {row.eig[1]:.2f}",
            "–" if row.paper is None else f"{row.paper['eig_mean']:.2f} ± {row.paper['eig_sd']:.2f}",
            f"{row.spce[0]:.2f} ± {row.spce[1]:.2f}",
            "–" if row.paper is None else f"{row.paper['spce_mean']:.2f} ± {row.paper['spce_sd']:.2f}",
            f"{row.limit:.2f}",
            f"{row.seconds:.0f}",
        )
        for row in rows
    ]
    return Grid(columns, lines)


def _costs(done: list[Done]) -> Section:
    lines = [(each.cell.name, f"{each.seconds:.1f}") for each in done]
    kinds = dict.fromkeys(each.cell.kind for each in done)
    totals = [(kind, f"{sum(d.seconds for d in done if d.cell.kind == kind):.0f}") for kind in kinds]
    text = ["Seconds of each cell, compilation included, one after the other on this machine; first by kind."]
    return Section("What it cost", text, [Grid(("kind", "seconds"), totals), Grid(("cell", "seconds"), lines)])


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.2f}"


def _save_csv(folder: Path, done: list[Done], rows: list[tables.Row]) -> None:
    _csv(folder / "policy_tables.csv", tables.Row._fields, rows)
    steps = [
        (gain.policy, t + 1, gain.mean[t], gain.sd[t], *_at(gain.paper, t + 1))
        for gain in tables.gains(done)
        for t in range(len(gain.mean))
    ]
    if steps:
        columns = ("policy", "experiments", "mean", "sd", "paper_mean", "paper_sd")
        _csv(folder / "information_gain_linear_pendulum.csv", columns, steps)
    swept = [
        (row.particles, *row.eig, *row.spce, row.limit, row.seconds, *((row.paper or {}).values()))
        for row in tables.particle_study(done)
    ]
    if swept:
        own = ("particles", "eig_mean", "eig_sd", "spce_mean", "spce_sd", "spce_limit", "seconds")
        theirs = ("paper_eig_mean", "paper_eig_sd", "paper_spce_mean", "paper_spce_sd", "paper_spce_limit")
        _csv(folder / "cart_pole_particle_sweep.csv", (*own, *theirs), swept)
    cells = [(each.cell.name, each.cell.kind, each.seconds) for each in done]
    _csv(folder / "cells.csv", ("cell", "kind", "seconds"), cells)


def _at(paper: object, experiments: int) -> tuple[object, object]:
    rows = [] if paper is None else [row for row in paper if row[0] == experiments]  # type: ignore[attr-defined]
    return (rows[0][1], rows[0][2]) if rows else ("", "")


def _csv(file: Path, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([f"{value:.6g}" if isinstance(value, float) else value for value in row])
    storage.write(file, stream.getvalue().encode())
