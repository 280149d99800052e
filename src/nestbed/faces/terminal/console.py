"""Text on a terminal, whatever the names in it are made of."""

from typing import Any, TextIO

from rich.console import Console
from rich.progress import Task, TextColumn
from rich.table import Column
from rich.text import Text

from nestbed.numerics.text import visible


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


def say(text: str, stream: TextIO | None = None) -> None:
    """Print a line, at once."""
    print(visible(text, keep=""), file=stream, flush=True)


def or_dash(value: float | None, digits: int) -> str:
    """Return the number, or a dash where there is none, such as the spread of a single seed."""
    return "–" if value is None or value != value else f"{value:.{digits}f}"
