"""Reports for someone who was not there: one page that needs nothing else."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nestbed.faces import descriptions
from nestbed.faces.page import Grid, Section, as_html
from nestbed.faces.terminal import posterior as terminal

if TYPE_CHECKING:
    from nestbed.evaluation.comparison import Comparison
    from nestbed.faces.findings import Findings
    from nestbed.planning.plan import Plan


def plan(found: "Plan", picture: Path) -> str:
    """Return what a design found: the inputs, what they gain beside the baselines, what they tell, the settings."""
    about = ", ".join(found.target or found.system.parameter_names)
    best = max(found.comparison[1:], key=lambda each: each.mean)
    more = found.comparison.difference(found.comparison[0].policy, best.policy)
    words = [
        f"{found.horizon} inputs for {found.system.name} that tell **{found.gain.mean:.2f} nats** about {about}, where "
        f"{best.policy}, the best of the inputs of today, tells {best.mean:.2f}: {more.mean:.2f} more, with 95 % "
        f"confidence between {more.interval.low:.2f} and {more.interval.high:.2f}.",
    ]
    if found.violation is not None:
        words.append(f"With them, {found.violation}; {100 * found.risk:g} % were allowed.")
    sections = [
        Section(
            "The inputs", words, pictures=[(picture, "The inputs, where they lead (median and 90 % of rigs), gains")]
        ),
        Section(
            "What they gain",
            ["In nats; all on the same simulated rigs."],
            [gains(found.comparison, found.comparison[0].policy)],
        ),
        Section("What they tell", [found.identifiability.sentence], [_parameters(found), _directions(found)]),
        descriptions.system(found.system),
        Section(
            "Settings", _settings(found), [descriptions.settings({"key": [*found.key] or "not kept", **found.versions})]
        ),
        Section("Every input", ["inputs.csv has them with all digits."], [_inputs(found)]),
    ]
    return as_html(f"{found.system.name}: the inputs that tell most", sections)


def gains(comparison: "Comparison", chosen: str) -> Grid:
    """Return what policies gain, each with its interval and its bounds, and which of them was chosen."""
    rows = []
    for each in comparison:
        assert each.certificate is not None
        low, high = each.interval
        broken = () if each.violation is None else (f"{100 * each.violation.probability:.2g} %",)
        bounds = f"{each.certificate.lower:.3f} … {each.certificate.upper:.3f}"
        rows.append((each.policy, f"{each.mean:.3f}", f"{low:.3f} … {high:.3f}", bounds, *broken))
    limited = ("limits broken",) if comparison[0].violation is not None else ()
    return Grid(
        ("policy", "EIG", "95 % interval", "bounds", *limited),
        rows,
        frozenset({[row[0] for row in rows].index(chosen)}),
    )


def _parameters(found: "Plan") -> Grid:
    units = found.system.units
    rows = [(f"{name} ({units[name]})" if name in units else name, *rest) for name, *rest in found.identifiability.rows]
    return Grid(("parameter", "prior sd", "expected sd after", "share left", "done twice"), rows)


def _directions(found: "Plan") -> Grid:
    known = found.identifiability
    rows = [(each.name, f"{each.ratio:.2g}", f"{each.least:.2g}") for each in known.directions]
    return Grid(("direction", "sd after, of that before", f"after the best of {known.looked_at} other inputs"), rows)


def _settings(found: "Plan") -> list[str]:
    target = "" if found.target is None else f" --target {' '.join(found.target)}"
    return [
        f"T = {found.horizon}, a step of {found.system.step:g}, "
        f"{found.rounds} round{'s' * (found.rounds != 1)} of the search in "
        f"{found.seconds:.0f} s, {found.gain.records} records and L = {found.gain.draws} draws for each certificate.",
        f"`nestbed design SYSTEM --horizon {found.horizon}{target} --risk {found.risk:g}` searches again, and comes as "
        "near as its seconds allow; `nestbed compare SYSTEM FOLDER` certifies these inputs once more, on other rigs.",
    ]


def _inputs(found: "Plan") -> Grid:
    units = found.system.units
    names = [f"{name} ({units[name]})" if name in units else name for name in found.system.design_names]
    rows = [(str(t), *(f"{value:.4g}" for value in row)) for t, row in enumerate(found.inputs)]
    return Grid(("experiment", *names), rows)


def posterior(found: "Findings", pictures: Sequence[Path]) -> str:
    """Return what records say: parameters before and after, the fit, what is left of it, and where it comes from."""
    last = [descriptions.system(found.system), Section("Where it comes from", [_origin(found)])]
    return as_html(f"{found.system.name}: what was measured, and what it tells", [*measured(found, pictures), *last])


def measured(found: "Findings", pictures: Sequence[Path]) -> list[Section]:
    """Return what records say, section by section."""
    marginals, fit, residuals = pictures
    tests = Grid(
        ("sensor", "test", "found", "p", "samples"),
        [
            (each.sensor, each.kind, f"{each.value:.3g}", f"{each.p:.2g}", str(each.samples))
            for each in found.explanation.tests
        ],
    )
    return [
        Section(
            "What the data say",
            terminal.lines(found),
            [Grid(terminal.HEADINGS, terminal.rows(found)), _correlations(found)],
            [(marginals, "Each parameter before and after, with its 95 % interval")],
        ),
        Section("The fit", pictures=[(fit, "Measured, expected before each reading, hidden states, designs")]),
        Section(
            "What is left",
            [
                "Residuals are where outcomes lie in what was predicted before them, in standard normal numbers. Data "
                f"of the model itself fail any of these tests in about {100 * found.explanation.alarm:g} % of records."
            ],
            [tests],
            [(residuals, "Residuals over time, their histogram, and their autocorrelation")],
        ),
    ]


def _correlations(found: "Findings") -> Grid:
    names = found.system.parameter_names
    rows = [(name, *(f"{value:+.2f}" for value in found.correlation[i])) for i, name in enumerate(names)]
    return Grid(("correlation", *names), rows)


def _origin(found: "Findings") -> str:
    parts = [
        f"{name} ({len(each.observations)} samples)" for name, each in zip(found.names, found.records, strict=True)
    ]
    return (
        f"{found.system.name} with a step of {found.system.step:g}, {len(found.draws)} particles; records: "
        f"{', '.join(parts)}."
    )
