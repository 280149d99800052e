"""What a terminal shows of a reproduction: one bar over all cells, and the tables beside the paper's."""

import sys
from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from nestbed.faces.terminal import SafeConsole, Words
from paper.cells import Cell
from paper.reproduce import Done
from paper.tables import Row


class Reproducing:
    """One bar over all cells, weighted by what they are expected to cost; line by line where there is no terminal."""

    def __init__(self, cells: Sequence[Cell]):
        self.console = SafeConsole(stderr=True)
        self.total = sum(cell.cost for cell in cells)
        self.count, self.done = len(cells), 0
        columns = (
            Words("{task.fields[cells]} cells"),
            BarColumn(12),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            Words("{task.fields[left]}"),
            Words("{task.fields[cell]}", style="dim", table_column=Column(no_wrap=True, overflow="ellipsis")),
        )
        self.bar = Progress(*columns, console=self.console, disable=not self.console.is_terminal)
        self.task = self.bar.add_task("", total=self.total, cells=f"0/{self.count}", left="", cell="")
        self.spent = self.expected = self.passed = 0.0

    def __enter__(self) -> "Reproducing":
        self.bar.start()
        return self

    def __call__(self, cell: Cell, done: Done | None) -> None:
        """Show which cell is being computed, or count one that is done."""
        if done is None:
            self.bar.update(self.task, cell=f"{cell.name} …")
            if not self.console.is_terminal:
                print(f"cell {self.done + 1}/{self.count}  {cell.name} …", file=sys.stderr, flush=True)
            return
        self.done += 1
        self.passed += cell.cost
        if done.fresh:
            self.spent, self.expected = self.spent + done.seconds, self.expected + cell.cost
        pace = self.spent / self.expected if self.expected else 1.0
        left = _clock(pace * (self.total - self.passed))
        cells = f"{self.done}/{self.count}"
        self.bar.update(self.task, completed=self.passed, cells=cells, left=f"{left} left", cell=cell.name)
        if not self.console.is_terminal:
            spent = f"{done.seconds:.1f} s" if done.fresh else "kept from before"
            print(f"cell {cells}  {cell.name}  {spent}  {left} left", file=sys.stderr, flush=True)

    def __exit__(self, *error: object) -> None:
        self.bar.stop()


def _clock(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def reproduced(rows: Sequence[Row], names: Mapping[str, str]) -> None:
    """Print the published policies beside the paper, a system at a time."""
    console = SafeConsole()
    for system in dict.fromkeys(row.system for row in rows):
        table = Table(title=system, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("policy", no_wrap=True)
        for heading in ("EIG", "paper", "diff.", "sPCE", "paper", "diff."):
            table.add_column(heading, justify="right", no_wrap=True)
        own = {(row.policy, row.metric): row for row in rows if row.system == system and row.paper_mean is not None}
        for policy in dict.fromkeys(policy for policy, _ in own):
            cells: list[str | Text] = []
            for metric in ("eig", "spce"):
                row = own[policy, metric]
                off = "" if row.difference is None else f"{row.difference:+.1f}"
                bold = row.difference is not None and abs(row.difference) > 3
                cells += [f"{row.mean:.2f} ± {row.sd:.2f}", f"{row.paper_mean:.2f}", Text(off, "bold") if bold else off]
            table.add_row(names[policy], *cells)
        console.print(table)
    quick = all(row.difference is None for row in rows if row.metric == "spce")
    small = " A quick reproduction trains little: only untrained policies' EIG is compared." if quick else ""
    console.print(f"Nats, mean ± sd; differences in combined standard errors.{small}", style="dim")
