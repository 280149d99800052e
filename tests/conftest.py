"""Strict settings for every test, and the command line without a new process."""

import gc
import signal
import subprocess
import sys
import warnings

import pytest

import nestbed  # noqa: F401  # sets float64 before jax starts

gc.set_threshold(200_000, 20, 20)  # tracing makes millions of small objects, and collecting them is a tenth of it


@pytest.fixture
def command(monkeypatch, capsys):
    """Return what runs a command of the command line here, and gives what a process would."""
    from nestbed.faces.cli.app import main

    handler, hook = signal.getsignal(signal.SIGINT), sys.unraisablehook
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["nestbed", *map(str, arguments)])
        status = 0
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            try:
                main()
            except SystemExit as end:
                status = end.code or 0
        return subprocess.CompletedProcess(sys.argv, status, *capsys.readouterr())

    yield call
    signal.signal(signal.SIGINT, handler)
    sys.unraisablehook = hook
