"""Independent work in blocks, spread over the cores by threads."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TypeVar

from nestbed.numerics import interrupts
from nestbed.numerics.progress import Progress, Step, Watch

T = TypeVar("T")


def run(
    count: int, size: int, work: Callable[[int], T], progress: Watch[Progress] | None = None, name: str = ""
) -> list[T]:
    """Return what `work` makes of each block's number, in order; `count` records in blocks of `size`."""
    done, lock = 0, Lock()

    def block(index: int) -> T:
        nonlocal done
        interrupts.check()
        found = work(index)
        if progress is not None:
            with lock:
                done += min(size, count - index * size)
                progress(Step(name, done, count))
        return found

    blocks = -(-count // size)
    with ThreadPoolExecutor(min(blocks, cores())) as pool:
        return list(pool.map(block, range(blocks)))


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
