"""How trainings went: the table of their iterations, the curve, and what to know of those that failed."""

from collections.abc import Callable, Sequence
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from nestbed.faces.terminal.console import SafeConsole, say
from nestbed.faces.terminal.curve import curve
from nestbed.training.registry import METHODS

if TYPE_CHECKING:
    from nestbed.runs.run import Log

COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "eig": ("EIG", "{:.3f}".format),
    "eig_error": ("±", "{:.3f}".format),
    "log_evidence": ("log Ẑ", "{:.2f}".format),
    "ess": ("ESS", "{:.0f}".format),
    "resampled": ("resampled", str),
    "acceptance": ("moved", lambda share: f"{100 * share:.0f} %"),
    "entropy": ("entropy", "{:.2f}".format),
    "spce": ("sPCE", "{:.3f}".format),
    "learning_rate": ("learning rate", "{:.3g}".format),
    "gradient_norm": ("gradient", "{:.3g}".format),
    "seconds": ("sec.", "{:.2f}".format),
}
"""What a metric is shown by: a heading and a way to write the number; others go by their names."""
UNSHOWN = ("iteration", "rejuvenated", "seconds_sweep", "seconds_gradient", "seconds_evaluation")
ADAPTING = ("adapting", "adapting_low", "adapting_high")
"""What adapting gains, with its interval: of the last iteration only, so it is told in a sentence."""
"""Metrics that are shown otherwise, or not at all, to save room."""


def runs(logs: "Sequence[Log]") -> None:
    """Print runs of one training: settings, the last iterations and the curve."""
    first = logs[0]
    legend = METHODS.find(first.config.method).legend
    table = Table(title=first.title, caption=f"{first.config.details}\n{legend}", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    names = columns(logs)
    for heading in ("seed" if len(logs) > 1 else "iter.", *(column(name)[0] for name in names)):
        table.add_column(heading, justify="right", no_wrap=True)
    if len(logs) > 1:
        rows = [(str(log.seed), *cells(log.metrics[-1], names)) for log in logs]
    else:
        rows = [(str(row["iteration"]), *cells(row, names)) for row in first.metrics]
    for row in rows if len(rows) <= 12 else [*rows[:3], ("…",) * len(rows[0]), *rows[-8:]]:
        table.add_row(*row)
    console = SafeConsole()
    console.print(table)
    console.print(curve([[row["eig"] for row in log.metrics] for log in logs]))
    console.print(_summary(logs))


def verdicts(logs: "Sequence[Log]") -> None:
    """Say which trainings made their policy worse."""
    for log in logs:
        if log.verdict is not None:
            seed = f"seed {log.seed}: " if len(logs) > 1 else ""
            say(f"Beware: {seed}{log.verdict}")


def columns(logs: "Sequence[Log]") -> list[str]:
    """Return the metrics to show, those that are known first."""
    names = dict.fromkeys(name for log in logs for row in log.metrics for name in row)
    return [
        *(name for name in COLUMNS if name in names),
        *(n for n in names if n not in (*COLUMNS, *UNSHOWN, *ADAPTING)),
    ]


def column(name: str) -> tuple[str, Callable[[Any], str]]:
    """Return a metric's heading and how its number is written."""
    return COLUMNS.get(name, (name, "{:.3g}".format))


def cells(row: dict[str, Any], columns: Sequence[str]) -> tuple[str, ...]:
    """Return an iteration's metrics as text."""
    values = [row.get(name) for name in columns]
    shown = zip(values, columns, strict=True)
    return tuple("–" if value is None or value != value else column(name)[1](value) for value, name in shown)


def _summary(logs: "Sequence[Log]") -> str:
    if len(logs) > 1:
        last = [log.metrics[-1]["eig"] for log in logs]
        return f"Last EIG of {len(logs)} trainings: {mean(last):.2f} ± {stdev(last):.2f} nats (mean ± sd)."
    done = f"{logs[0].iteration} of {logs[0].config.iterations} iterations done"
    row = logs[0].metrics[-1]
    if all(name in row for name in ADAPTING):
        more, low, high = (row[name] for name in ADAPTING)
        return (
            f"{done}; what is handed out gains {row['eig']:.2f} nats; adapting gains {more:+.3f} beside the plan "
            f"(95 %: {low:+.3f} to {high:+.3f})."
        )
    best = max(logs[0].metrics, key=lambda row: row["eig"])
    return f"{done}; best estimate {best['eig']:.2f} nats after iteration {best['iteration']}."
