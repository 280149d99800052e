"""A curve in characters."""

import math
from collections.abc import Sequence

from rich.text import Text


def curve(lines: Sequence[Sequence[float]], width: int = 60, height: int = 12) -> Text:
    """Draw curves against their index, with the axis' ends named."""
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
