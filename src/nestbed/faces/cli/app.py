"""The command `nestbed`: built from the registry of commands; mistakes get a sentence, with advice on flags."""

import io
import sys
import warnings

import cyclopts

from nestbed import __version__
from nestbed.faces.cli.registry import COMMANDS
from nestbed.numerics import interrupts
from nestbed.numerics.errors import NestbedError
from nestbed.numerics.text import sentence, visible

ADVICE = {
    ("resume", "train"): "--resume continues it",
    ("time", "posterior"): "--time COLUMN/1000 converts it",
    **{
        ("system", command): "--system path/to/file.py:ClassName for one of your own"
        for command in ("evaluate", "export", "report", "run")
    },
}
"""What to add to an error of some topic, by the command that met it: the core knows no flags."""


def build(command: str | None = None) -> cyclopts.App:
    """Return the command line; the command that is asked for has a page of help of its own, the others a line."""
    app = cyclopts.App(
        name="nestbed",
        version=__version__,
        suppress_keyboard_interrupt=False,
        help="Learn how to excite a dynamical system so that its unknown parameters reveal themselves.\n\n"
        "Start with `nestbed systems`, train with `nestbed train nonlinear_pendulum`, look with `nestbed show`, and "
        "see what it gained with `nestbed compare`.",
    )
    for order, (name, entry) in enumerate(COMMANDS.items()):
        app.command(entry.home, name=name, help=None if name == command else entry.help, sort_key=order)
    return app


def main() -> None:
    """Run the command line; a complaint is one sentence and the exit status 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without η still shows the rest
    warnings.showwarning = _warn
    interrupts.install()
    words = sys.argv[1:]
    command = next((word for word in words if word in COMMANDS), None)
    try:
        build(command)(words, print_error=False, exit_on_error=False)
    except cyclopts.CycloptsError as error:
        from rich.console import Console

        Console(stderr=True).print(cyclopts.CycloptsPanel(visible(str(error))))
        sys.exit(2)
    except NestbedError as error:
        print(sentence(f"nestbed: {_advised(error, command)}"), file=sys.stderr)
        sys.exit(2)
    except SystemExit as error:
        if error.code != interrupts.STATUS:
            raise
        interrupts.leave()
    except KeyboardInterrupt:
        interrupts.stop()
    except Exception:
        if not interrupts.asked():
            raise
        interrupts.stop()  # an import or a library has made another error of it


def _advised(error: NestbedError, command: str | None) -> str:
    advice = ADVICE.get((error.topic or "", command or ""))
    return str(error) if advice is None else f"{str(error).rstrip('.')} ({advice})."


def _warn(message: Warning | str, category: type[Warning], *place: object, **more: object) -> None:
    print(visible(f"nestbed: {message}"), file=sys.stderr)
