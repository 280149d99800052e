"""Independent work in blocks, spread over the cores by threads."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from nestbed.numerics import interrupts

T = TypeVar("T")
Progress = Callable[[int], None]
"""Called with the number of records just finished, from any thread."""


def run(count: int, size: int, work: Callable[[int], T], progress: Progress | None = None) -> list[T]:
    """Return what `work` makes of each block's number, in order; `count` records in blocks of `size`."""

    def block(index: int) -> T:
        interrupts.check()
        found = work(index)
        if progress is not None:
            progress(min(size, count - index * size))
        return found

    blocks = -(-count // size)
    with ThreadPoolExecutor(min(blocks, cores())) as pool:
        return list(pool.map(block, range(blocks)))


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
