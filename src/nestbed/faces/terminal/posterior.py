"""What a posterior says, on a terminal."""

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from nestbed.faces.terminal.console import SafeConsole

if TYPE_CHECKING:
    from nestbed.faces.findings import Findings

WHOLE = 6
"""Parameters up to which all their correlations are shown."""
STRONGEST = 8
"""Pairs that are shown of more."""


def posterior(found: "Findings") -> None:
    """Print parameters before and after, how they hang together, and what to think of it."""
    console = SafeConsole()
    console.print(_parameters(found))
    if len(found.marginals) > 1:
        console.print(_correlations(found))
    for line in lines(found):
        console.print(Text(line))


def lines(found: "Findings") -> list[str]:
    """Return the sentences of a posterior."""
    units = found.system.units
    course = ", ".join(
        f"{name} {mean:.4g} ± {sd:.2g} {units.get(name, '')}".rstrip() for name, mean, sd in found.hidden
    )
    told = [
        _capital(found.explanation.sentence),
        _capital(found.collapsed),
        _capital(found.untold),
        found.several,
        f"Gained in all: {found.gain:.2f} nats; log-evidence {found.log_evidence:.2f}; ESS {found.ess:.0f} of "
        f"{len(found.draws)} particles.",
        f"At the end: {course}." if course else "",
    ]
    return [line for line in told if line]


def rows(found: "Findings") -> list[tuple[str, ...]]:
    """Return each parameter as text: name, unit, prior, posterior, interval, how much narrower."""
    return [
        (
            each.name,
            each.unit,
            f"{each.prior[0]:.3g} ± {each.prior[1]:.2g}",
            f"{each.posterior[0]:.4g} ± {each.posterior[1]:.2g}",
            f"{each.quantiles[0]:.4g} … {each.quantiles[2]:.4g}",
            f"{each.narrower:.{0 if each.narrower >= 100 else 1}f} ×",
        )
        for each in found.marginals
    ]


HEADINGS = ("parameter", "unit", "prior", "posterior", "95 % interval", "narrower")


def _parameters(found: "Findings") -> Table:
    samples = sum(len(each.observations) for each in found.records)
    count = len(found.records)
    caption = f"mean ± sd; {samples} samples in {count} record{'s' * (count != 1)}"
    table = Table(title=f"{found.system.name}: what the data say", caption=caption, box=SIMPLE_HEAD)
    table.padding, table.show_edge, table.pad_edge = (0, 0, 0, 0), False, False
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in HEADINGS[:2] else "right", overflow="fold")
    for row in rows(found):
        table.add_row(*row)
    return table


def _correlations(found: "Findings") -> Table:
    names = found.system.parameter_names
    table = Table(title="correlations", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("", overflow="fold")
    if len(names) > WHOLE:
        table.add_column("", overflow="fold")
        table.add_column("", justify="right")
        for one, other, value in found.pairs[:STRONGEST]:
            table.add_row(one, other, f"{value:+.2f}")
        return table
    for name in names[:-1]:
        table.add_column(name, justify="right", overflow="fold")
    for i, name in enumerate(names[1:], start=1):
        table.add_row(name, *(f"{found.correlation[i, j]:+.2f}" if j < i else "" for j in range(len(names) - 1)))
    return table


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
