"""Bars: what `nb.train` and `nb.compare` call while they work."""

import sys
from collections.abc import Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TimeElapsedColumn, TimeRemainingColumn

from nestbed.faces.terminal.console import SafeConsole, Words, or_dash, say
from nestbed.faces.terminal.curve import curve

if TYPE_CHECKING:
    from nestbed.numerics import progress
    from nestbed.runs.run import Run


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
            Words("{task.fields[status]}", style="bold"),
            TimeRemainingColumn(compact=True),
        )
        self.bar = Progress(*columns, console=self.console, speed_estimate_period=120.0)
        self.tasks: dict[str, TaskID] = {}
        if not quiet and self.console.is_terminal:
            for name in names:
                status = "compiling …" if name == names[0] else ""
                self.tasks[name] = self.bar.add_task(name, total=iterations, status=status, start=False)
            self.live = Live(self.bar, console=self.console, refresh_per_second=8)

    def __enter__(self) -> "Training":
        if self.live is not None:
            self.live.start()
        elif not self.quiet:
            say("starting; the first two steps compile for some seconds …", sys.stderr)
        return self

    def __exit__(self, *error: object) -> None:
        if self.live is not None:
            self.live.update(self.bar)  # the result follows with a curve of its own
            self.live.stop()

    def of(self, name: str) -> "progress.Watch[Run]":
        """Return what to call with one of the runs after each of its iterations."""
        return lambda run: None if self.quiet else self._show(name, run)

    def beginning(self, name: str) -> "progress.Watch[progress.Progress]":
        """Return what to call with how far one of the runs is before its first iteration."""

        told: set[str] = set()

        def show(step: "progress.Progress") -> None:
            best = getattr(step, "best", None)
            what = step.name if best is None else "searching for the plan, rounds"
            gained = "" if best is None else f": {best:.2f} nats"
            if self.live is not None:
                self.bar.update(self.tasks[name], status=f"{what}, {step.done} of {step.total}{gained}")
            elif not self.quiet and what not in told:
                told.add(what)
                say(f"{name}: {what.partition(',')[0]} …", sys.stderr)

        return show

    def _show(self, name: str, run: "Run") -> None:
        row, total = run.metrics[-1], run.config.iterations
        eig = f"EIG {row['eig']:.3f} ± {or_dash(row['eig_error'], 3)} nats"
        steady = [r["seconds"] for r in run.metrics[2:]][-10:]  # the first iterations compile
        pace = median(steady) if steady else 0.0  # one of them may have compiled, after a run was resumed
        rate = f"{1.0 / pace:.2f}/s" if pace > 0.0 else ""
        if run.iteration == 0:
            rate = "compiling …"
        if self.live is not None:
            task = self.tasks[name]
            if run.iteration > 0:
                self.bar.start_task(task)
            self.bar.update(task, completed=run.iteration, status=f"{eig} {rate}")
            self.live.update(Group(self.bar, curve([[r["eig"] for r in run.metrics]])))
            return
        left = f"{(total - run.iteration) * pace:.0f} s left" if steady else ""
        parts = (f"{name}: iteration {run.iteration}/{total}", eig, rate, left)
        say("  ".join(part for part in parts if part), sys.stderr)


class Searching:
    """Watches a search: a bar with the time left and the best gain so far."""

    def __init__(self, name: str):
        columns = (Words("{task.description}"), BarColumn(), Words("{task.fields[status]}"), TimeRemainingColumn())
        self.bar = Progress(*columns, console=SafeConsole(stderr=True))
        self.task = self.bar.add_task(name, total=None, status="compiling …")

    def __enter__(self) -> "Searching":
        self.bar.start()
        return self

    def __call__(self, step: "progress.Progress") -> None:
        """Show how far it is, and the best so far."""
        best = getattr(step, "best", None)
        own = f"{step.done} of {step.total}" if step.name == self.bar.tasks[self.task].description else "certifying …"
        status = own if best is None else f"best so far {best:.2f} nats"
        self.bar.update(self.task, completed=step.done, total=step.total, status=status)

    def __exit__(self, *error: object) -> None:
        self.bar.stop()


class Working:
    """Shows on a terminal that something is at work, and for how long; elsewhere only that it is."""

    def __init__(self, name: str):
        console = SafeConsole(stderr=True)
        columns = (Words("{task.description}"), BarColumn(), TimeElapsedColumn())
        self.bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.words = f"{name}, compiling at first …"
        self.bar.add_task(self.words, total=None)

    def __enter__(self) -> "Working":
        if self.bar.disable:
            say(self.words, sys.stderr)
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()


class Evaluating:
    """A bar per policy with its rate and the time left; says when it compiles."""

    def __init__(self, policies: Iterable[str], total: int):
        columns = (
            Words("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            Words("records {task.fields[rate]}"),
            TimeRemainingColumn(),
        )
        self.bar = Progress(*columns, console=SafeConsole(stderr=True))
        self.tasks = {name: self.bar.add_task(name, total=total, rate="", start=False) for name in policies}

    def __enter__(self) -> "Evaluating":
        self.bar.start()
        first = next(iter(self.tasks.values()))
        self.bar.update(first, rate="compiling …")
        if not self.bar.console.is_terminal:
            say("evaluating; each policy compiles for some seconds first …", sys.stderr)
        return self

    def __call__(self, step: "progress.Progress") -> None:
        """Show how many records of one policy are done."""
        task = self.tasks[step.name]
        self.bar.start_task(task)
        self.bar.update(task, completed=step.done, total=step.total)
        speed = self.bar.tasks[task].speed
        self.bar.update(task, rate=f"{speed:.0f}/s" if speed else "")

    def __exit__(self, *error: object) -> None:
        self.bar.stop()
