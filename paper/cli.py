"""The command line of the reproduction: parse, call, print."""

import io
import shlex
import sys
import warnings
from pathlib import Path
from typing import Annotated

import cyclopts
from cyclopts import Parameter

from nestbed.numerics import interrupts
from nestbed.numerics.errors import NestbedError, at_least_one, did_you_mean
from nestbed.numerics.text import sentence, visible

app = cyclopts.App(name="python -m paper", version_flags=[], suppress_keyboard_interrupt=False)


@app.default
def reproduce(
    systems: Annotated[list[str], Parameter(negative="")],
    *,
    quick: bool = False,
    seeds: int | None = None,
    out: Path | None = None,
) -> None:
    """Compute every table and figure of the paper again, beside the published numbers, and write one report.

    Every cell is kept as soon as it is done: after Ctrl-C the same command goes on where it stopped. All systems take
    about 40 minutes on two cores, --quick a few.

    Examples:

    python -m paper linear_pendulum

    python -m paper all --quick

    python -m paper cart_pole double_link --seeds 3 --out results/arms

    Parameters
    ----------
    systems
        linear_pendulum, nonlinear_pendulum, cart_pole, double_link, or all.
    quick
        Small trainings and few seeds: shows how it goes, proves nothing.
    seeds
        Policies trained with IO-SMC² for each system, 5 by default (1 if quick).
    out
        Folder of the reproduction, by default results/reproduction (or results/reproduction_quick).
    """
    from paper import report, tables, terminal
    from paper.cells import plan
    from paper.reproduce import reproduce
    from paper.studies import FULL, PUBLISHED, QUICK, SYSTEMS

    for name in systems:
        if name not in (*SYSTEMS, "all"):
            raise NestbedError(f"the paper has no system {name!r}; {did_you_mean(name, [*SYSTEMS, 'all'])}.")
    names = tuple(name for name in SYSTEMS if name in systems or "all" in systems)
    scale = QUICK if quick else FULL
    trainings = scale.trainings if seeds is None else seeds
    at_least_one(seeds=trainings)
    folder = out or Path("results") / ("reproduction_quick" if quick else "reproduction")
    cells = plan(names, scale, trainings)
    try:
        interrupts.check()
        with terminal.Reproducing(cells) as watch:
            done = reproduce(cells, folder, scale, watch)
    except KeyboardInterrupt:
        _complain(f"stopped; finished cells are kept in {folder}. Continue with")
        print(visible(f"  {shlex.join(['python', '-m', 'paper', *sys.argv[1:]])}", keep=""), file=sys.stderr)
        sys.exit(interrupts.STATUS)
    page = report.write(done, scale, folder)
    terminal.reproduced([row for row in tables.estimates(done) if row.policy in PUBLISHED], report.NAMES)
    print(visible(f"The report is {page}; tables as CSV and the figures are beside it.", keep=""))


def main() -> None:
    """Run the command line; a complaint is one sentence and the exit status 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ² still shows the rest
    warnings.showwarning = lambda message, *place, **more: _complain(str(message))
    try:
        app(sys.argv[1:], print_error=False, exit_on_error=False)
    except (cyclopts.CycloptsError, NestbedError) as error:
        _complain(str(error))
        sys.exit(2)
    except SystemExit as error:
        if error.code != interrupts.STATUS:
            raise
        interrupts.leave()


def _complain(text: str) -> None:
    print(sentence(f"nestbed: {text}"), file=sys.stderr)
