"""Ctrl-C that is never lost.

Python drops an exception that is raised where nobody can catch it: in a callback of the garbage collector, of which jax
has one, or while an object is finalised; and a library that is broken off while it is imported makes something else of
it. So the command line notes that it was asked to stop, and loops ask at each turn whether it was.
"""

import contextlib
import gc
import os
import signal
import sys
import threading
from types import CodeType, FrameType
from typing import Any, NoReturn

from nestbed.numerics.registry import resolve

_IMPORT = "<frozen importlib._bootstrap>"
STATUS = 130
"""Exit status after Ctrl-C."""

_asked = False
_working = False


def install() -> None:
    """Obey Ctrl-C from now on, unless this process was started to ignore it, as in the background."""
    main = threading.current_thread() is threading.main_thread()
    if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _ask)
        sys.unraisablehook = _unraisable


def check() -> None:
    """Stop here if that was asked for; from the first time on there is work to be ended in good order."""
    global _working
    _working = True
    if _asked:
        raise KeyboardInterrupt


def asked() -> bool:
    """Return whether Ctrl-C was pressed."""
    return _asked


def taken() -> bool:
    """Return whether Ctrl-C was pressed, and forget it: whoever asks obeys it in a way of their own."""
    global _asked
    was, _asked = _asked, False
    return was


def ignore() -> None:
    """Take no more of them: this process is about to end."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def stop() -> NoReturn:
    """Say so and leave."""
    ignore()
    print("nestbed: stopped", file=sys.stderr)
    leave()


def leave(status: int = STATUS) -> NoReturn:
    """End at once: threads that still compile would crash while the interpreter is taken down around them."""
    ignore()
    with contextlib.suppress(OSError):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    os._exit(status)


def _ask(number: int, frame: FrameType | None) -> None:
    global _asked
    _asked = True
    codes = _codes(frame)
    importing = any(code.co_filename == _IMPORT for code in codes)
    if importing and not _working:
        stop()
    if not importing and not _dropped(codes):
        raise KeyboardInterrupt


def _codes(frame: FrameType | None) -> list[CodeType]:
    """Return what is being run, the innermost first."""
    codes = []
    while frame is not None:
        codes.append(frame.f_code)
        frame = frame.f_back
    return codes


def _dropped(codes: list[CodeType]) -> bool:
    """Return whether an exception raised there would be dropped."""
    callbacks = [getattr(callback, "__code__", None) for callback in gc.callbacks]
    return any(code in callbacks or code.co_name == "__del__" for code in codes)


def _unraisable(unraisable: Any) -> None:
    """Say nothing of a dropped KeyboardInterrupt, which is obeyed at the next turn."""
    if unraisable.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(unraisable)


def run(home: str) -> None:
    """Import a command line ("module:function") and run it; Ctrl-C is obeyed from the first import on."""
    install()
    try:
        resolve(home)()
    except (Exception, KeyboardInterrupt):
        if not asked():
            raise
        stop()  # an import broken off may have made another error of it
    finally:
        ignore()  # what is left to do is to end
