"""What a terminal shows: bars with rates and time left, tables, a curve in characters."""

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from statistics import mean, median, stdev
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table
from rich.text import Text

from nestbed.numerics.text import visible

if TYPE_CHECKING:
    from nestbed.evaluation.comparison import Comparison, Spread
    from nestbed.model.system import BaseSystem
    from nestbed.runs.folder import Log, Run


class SafeConsole(Console):
    """A console that shows every text as it is: no markup, no emoji codes, control characters written out."""

    def __init__(self, stderr: bool = False):
        super().__init__(stderr=stderr, markup=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the text to be shown."""
        return super().render_str(visible(text), **options)


class Words(TextColumn):
    """A column of a bar that shows every text as it is."""

    def __init__(self, text_format: str, style: str = "none", table_column: Column | None = None):
        super().__init__(text_format, style=style, markup=False, table_column=table_column)

    def render(self, task: Task) -> Text:
        """Return the text to be shown."""
        return Text(visible(self.text_format.format(task=task)), style=self.style)


def systems(loaded: "dict[str, BaseSystem]") -> None:
    """Print systems with their states, designs, parameters and settings."""
    table = Table(title="Built-in systems", show_lines=True)
    table.add_column("system", no_wrap=True)
    for heading in ("state", "designs", "unknown parameters"):
        table.add_column(heading)
    for name, system in loaded.items():
        unit = system.units
        limits = zip(system.design_names, system.designs.low, system.designs.high, strict=True)
        d = system.defaults
        settings = f"T = {d.horizon}, N = {d.trajectories}\nM = {d.particles}, η = {d.eta:g}\nslew {d.slew_penalty:g}"
        table.add_row(
            Text.assemble((name, "bold"), "\n", (settings, "dim")),
            "\n".join(f"{n} ({unit[n]})" for n in system.state_names),
            "\n".join(f"{n} in [{low:g}, {high:g}] {unit[n]}" for n, low, high in limits),
            "\n".join(f"{n} ({unit[n]})" for n in system.parameter_names),
        )
    SafeConsole().print(table)


def scores(found: "Comparison", title: str, caption: str) -> None:
    """Print one line per policy, the best in bold, and how sure it is that one beats another."""
    bounded = found[0].spce is not None
    told = f"{caption}\nin expectation sPCE ≤ EIG ≤ sNMC" if bounded else caption
    table = Table(title=title, caption=told)
    table.add_column("policy", no_wrap=True)
    headings = ("EIG (nats)", "sd over seeds", "standard error", *(("sPCE", "sNMC") if bounded else ()))
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=heading in ("sPCE", "sNMC"))
    best = max(score.mean for score in found)
    for score in found:
        style = "bold" if score.mean == best else ""
        numbers = [f"{score.mean:.2f}", _or_dash(score.sd, 2), _or_dash(score.standard_error, 3)]
        numbers += [
            f"{bound.mean:.2f}±{_or_dash(bound.standard_error, 2)}"
            for bound in (score.spce, score.snmc)
            if bound is not None
        ]
        table.add_row(score.policy, *numbers, style=style)
    console = SafeConsole()
    console.print(table)
    if len(found) > 1:
        console.print(_chances(found))


def _chances(found: "Comparison") -> Table:
    """Return the probability that each policy beats each other one, numbered to save room."""
    table = Table(
        title="probability that the policy of the row gains more than that of the column",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("policy", no_wrap=True)
    for i in range(len(found)):
        table.add_column(str(i + 1), justify="right", no_wrap=True)
    for i, score in enumerate(found):
        chances = [found.beats(score.policy, other.policy) for other in found]
        cells = ["–" if i == j else _chance(chance) for j, chance in enumerate(chances)]
        table.add_row(f"{i + 1} {score.policy}", *cells)
    return table


def _chance(value: float) -> str:
    """Return a probability of two digits that never claims to be certain."""
    return "–" if value != value else ">.99" if value > 0.995 else "<.01" if value < 0.005 else f"{value:.2f}"[1:]


def evaluation(rows: "list[tuple[str, Spread, str]]", title: str, caption: str) -> None:
    """Print what is known of one policy: an estimate a line, with a remark."""
    table = Table(title=title, caption=caption)
    for heading, side in (("", "left"), ("nats", "right"), ("st. error", "right"), ("sd of seeds", "right")):
        table.add_column(heading, justify=side)  # type: ignore[arg-type]
    table.add_column("estimate or bound", no_wrap=True)
    for name, spread, remark in rows:
        numbers = (f"{spread.mean:.2f}", _or_dash(spread.standard_error, 3), _or_dash(spread.sd, 2))
        table.add_row(name, *numbers, remark)
    SafeConsole().print(table)


def runs(found: "Sequence[Log]") -> None:
    """Print runs of one training: settings, the last iterations and the curve."""
    first = found[0]
    table = Table(title=first.title, caption=_settings(first), box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    columns = [name for name in COLUMNS if any(name in row for run in found for row in run.metrics)]
    for heading in ("seed" if len(found) > 1 else "iter.", *(COLUMNS[name][0] for name in columns)):
        table.add_column(heading, justify="right", no_wrap=True)
    if len(found) > 1:
        rows = [(str(run.seed), *_cells(run.metrics[-1], columns)) for run in found]
    else:
        rows = [(str(row["iteration"]), *_cells(row, columns)) for row in first.metrics]
    for row in rows if len(rows) <= 12 else [*rows[:3], ("…",) * len(rows[0]), *rows[-8:]]:
        table.add_row(*row)
    console = SafeConsole()
    console.print(table)
    console.print(curve([[row["eig"] for row in run.metrics] for run in found]))
    if len(found) == 1:
        best = max(first.metrics, key=lambda row: row["eig"])
        console.print(f"{_done(first)}; best estimate {best['eig']:.2f} nats after iteration {best['iteration']}.")
    else:
        last = [run.metrics[-1]["eig"] for run in found]
        console.print(f"Last EIG of {len(found)} trainings: {mean(last):.2f} ± {stdev(last):.2f} nats (mean ± sd).")


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
"""What a row of metrics is shown by: a heading and a way to write the number."""
LEGENDS = {
    "score_climbing": "EIG ± standard error of the mean policy (nats); of the sweep: log-evidence, effective sample "
    "size of the trajectories, how often they were resampled, accepted Metropolis moves; entropy of the policy's noise",
    "idad": "EIG ± standard error of the policy (nats); of the iteration's gradient steps: mean of the bound sPCE, "
    "learning rate, mean length of the gradient",
}


def _cells(row: dict[str, Any], columns: Sequence[str]) -> tuple[str, ...]:
    values = [row.get(name) for name in columns]
    shown = zip(values, columns, strict=True)
    return tuple("–" if value is None or value != value else COLUMNS[name][1](value) for value, name in shown)


def _done(run: "Log") -> str:
    return f"{run.iteration} of {run.config.iterations} iterations done"


def _settings(run: "Log") -> str:
    return f"{run.config.details}\n{LEGENDS[run.config.method]}"


def curve(lines: Sequence[Sequence[float]], width: int = 60, height: int = 12) -> Text:
    """Draw curves against their index in characters, with the axis' ends named."""
    values = [value for line in lines for value in line if math.isfinite(value)]
    last = max(len(line) for line in lines) - 1
    low, high = min(values, default=0.0), max(values, default=1.0)
    span = (high - low) or 1.0
    width = min(width, 2 * last + 1) if last else 1
    grid = [[" "] * width for _ in range(height)]
    for line in lines:
        for i, value in enumerate(line):
            if math.isfinite(value):
                column = round(i / last * (width - 1)) if last else 0
                grid[height - 1 - round((value - low) / span * (height - 1))][column] = "•"
    margin = max(len(f"{end:.2f}") for end in (low, high))
    names = {0: f"{high:.2f}", height - 1: f"{low:.2f}"}
    rows = [f"{names.get(i, ''):>{margin}} ┤{''.join(row)}" for i, row in enumerate(grid)]
    axis = f"{'':{margin}} └{'─' * width}"
    ends = f"{'':{margin}}  0{last!s:>{width - 1}}  iterations" if last else f"{'':{margin}}  0  iterations"
    return Text("\n".join(["EIG of the mean policy (nats)", *rows, axis, ends]))


class Training:
    """Watches training runs: live in a terminal, line by line elsewhere, not at all if quiet."""

    def __init__(self, names: Sequence[str], iterations: int, quiet: bool):
        self.console = SafeConsole(stderr=True)
        self.quiet = quiet
        self.live: Live | None = None
        columns = (
            Words("{task.description}"),
            BarColumn(12),
            MofNCompleteColumn(),
            Words("{task.fields[told]}", style="bold"),
            TimeRemainingColumn(compact=True),
        )
        self.bar = Progress(*columns, console=self.console, speed_estimate_period=120.0)
        self.tasks: dict[str, TaskID] = {}
        if not quiet and self.console.is_terminal:
            for name in names:
                told = "compiling …" if name == names[0] else ""
                self.tasks[name] = self.bar.add_task(name, total=iterations, told=told, start=False)
            self.live = Live(self.bar, console=self.console, refresh_per_second=8)

    def __enter__(self) -> "Training":
        if self.live is not None:
            self.live.start()
        elif not self.quiet:
            print("starting; the first two steps compile for some seconds …", file=sys.stderr, flush=True)
        return self

    def __exit__(self, *error: object) -> None:
        if self.live is not None:
            self.live.update(self.bar)  # the result follows with a curve of its own
            self.live.stop()

    def of(self, name: str) -> Callable[["Run"], None]:
        """Return what to call with one of the runs after each of its iterations."""
        return lambda run: self._show(name, run)

    def _show(self, name: str, run: "Run") -> None:
        if self.quiet:
            return
        row, total = run.metrics[-1], run.config.iterations
        told = f"EIG {row['eig']:.3f} ± {_or_dash(row['eig_error'], 3)} nats"
        steady = [r["seconds"] for r in run.metrics[2:]][-10:]  # the first iterations compile
        pace = median(steady) if steady else 0.0  # one of them may have compiled, after a run was resumed
        rate = f"{1.0 / pace:.2f}/s" if pace > 0.0 else ""
        if run.iteration == 0:
            rate = "compiling …"
        if self.live is not None:
            task = self.tasks[name]
            if run.iteration > 0:
                self.bar.start_task(task)
            self.bar.update(task, completed=run.iteration, told=f"{told} {rate}")
            self.live.update(Group(self.bar, curve([[r["eig"] for r in run.metrics]])))
            return
        left = f"{(total - run.iteration) * pace:.0f} s left" if steady else ""
        parts = (f"{name}: iteration {run.iteration}/{total}", told, rate, left)
        print(visible("  ".join(part for part in parts if part), keep=""), file=sys.stderr, flush=True)


class Comparing:
    """A bar per policy with its rate and the time left; says when it compiles."""

    def __init__(self, policies: Iterable[str], total: int):
        columns = (
            Words("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            Words("trajectories {task.fields[rate]}"),
            TimeRemainingColumn(),
        )
        self.bar = Progress(*columns, console=SafeConsole(stderr=True))
        self.tasks = {name: self.bar.add_task(name, total=total, rate="", start=False) for name in policies}

    def __enter__(self) -> "Comparing":
        self.bar.start()
        first = next(iter(self.tasks.values()))
        self.bar.update(first, rate="compiling …")
        if not self.bar.console.is_terminal:
            print("scoring; each policy compiles for some seconds first …", file=sys.stderr, flush=True)
        return self

    def __call__(self, name: str, count: int) -> None:
        """Count trajectories of one policy."""
        task = self.tasks[name]
        self.bar.start_task(task)
        self.bar.update(task, advance=count)
        speed = self.bar.tasks[task].speed
        self.bar.update(task, rate=f"{speed:.0f}/s" if speed else "")

    def __exit__(self, *error: object) -> None:
        self.bar.stop()


def _or_dash(value: float | None, digits: int) -> str:
    """Return the number, or a dash where there is none, such as the spread of a single seed."""
    return "–" if value is None or value != value else f"{value:.{digits}f}"
