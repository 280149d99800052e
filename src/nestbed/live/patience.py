"""A call that is not waited for for ever."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Unanswered(BaseException):
    """Time is up; no error, so that what is called does not take it for one of its own."""


@contextlib.contextmanager
def patience(seconds: float | None) -> Iterator[None]:
    """Raise `Unanswered` within what takes longer; for ever where there is no alarm clock or a thread has none."""
    main = threading.current_thread() is threading.main_thread()
    if seconds is None or not main or not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGALRM, _ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _ring(number: int, frame: FrameType | None) -> None:
    raise Unanswered
