"""Child processes that have signals of their own and never outlive the test that started them."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

PATIENCE = 600
"""Seconds after which a child that should have ended by itself is taken for hung."""
_LAUNCH = (
    "import os, signal, sys; signal.signal(signal.SIGINT, {}); os.execv(sys.argv[1], sys.argv[1:])"  # survives exec
)
NESTBED = (sys.executable, "-m", "nestbed")
PAPER = (sys.executable, "-m", "paper")


@contextlib.contextmanager
def running(*command, interruptible=True, **options):
    """Start a command that Ctrl-C ends, even if these tests were started to ignore it; kill all that is left of it."""
    disposition = "signal.SIG_DFL" if interruptible else "signal.SIG_IGN"
    launch = [sys.executable, "-S", "-E", "-c", _LAUNCH.format(disposition), *map(str, command)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(launch, start_new_session=True, **{**streams, **options}) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def run(*command, **options):
    """Run a command to its end."""
    with running(*command, **options) as process:
        out, err = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def nestbed(*arguments, **options):
    """Run the command line to its end."""
    return run(*NESTBED, *arguments, **options)


def alive(folder):
    """Return the processes whose command line names a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if os.fsencode(folder) in entry.read_bytes():
                found.append(int(entry.parent.name))
    return found
