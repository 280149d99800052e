"""The command line: parse, call, print."""

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import cyclopts

from nestbed import __version__

if TYPE_CHECKING:
    from nestbed.evaluation.comparison import Score
    from nestbed.system import BaseSystem

app = cyclopts.App(
    name="nestbed",
    version=__version__,
    suppress_keyboard_interrupt=False,
    help="Learn how to excite a dynamical system so that its unknown parameters reveal themselves.\n\n"
    "Start with `nestbed systems`, then `nestbed compare nonlinear_pendulum`.",
)


@app.command
def systems() -> None:
    """List the built-in systems: states, designs with their limits, unknown parameters and settings."""
    from rich.console import Console
    from rich.table import Table

    from nestbed.systems import CATALOGUE, load

    table = Table(title="Built-in systems", show_lines=True)
    table.add_column("system", no_wrap=True)
    for heading in ("state", "designs", "unknown parameters"):
        table.add_column(heading)
    for name in CATALOGUE:
        system = load(name)
        unit = system.units
        limits = zip(system.design_names, system.designs.low, system.designs.high, strict=True)
        d = system.defaults
        settings = f"T = {d.horizon}, N = {d.trajectories}\nM = {d.particles}, η = {d.eta:g}\nslew {d.slew_penalty:g}"
        table.add_row(
            f"[bold]{name}[/]\n[dim]{settings}[/]",
            "\n".join(f"{n} ({unit[n]})" for n in system.state_names),
            "\n".join(f"{n} in [{low:g}, {high:g}] {unit[n]}" for n, low, high in limits).replace("[", r"\["),
            "\n".join(f"{n} ({unit[n]})" for n in system.parameter_names),
        )
    Console().print(table)


@app.command
def compare(
    system: str,
    *,
    baselines: Annotated[list[str], cyclopts.Parameter(consume_multiple=True, negative="")] = ["random", "prbs"],  # noqa: B006
    seeds: int = 25,
    trajectories: int = 16,
    particles: int = 1024,
    moves: int = 3,
    horizon: int | None = None,
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """Compare how much information policies gain about a system's unknown parameters.

    Example: nestbed compare cart_pole --baselines random prbs --out results/cart_pole

    Parameters
    ----------
    system
        Name of a built-in system; `nestbed systems` lists them.
    baselines
        Policies to score: random, prbs (all channels together) or prbs_independent (a coin for each).
    seeds
        Independent estimates per policy; their spread is the sd of the table.
    trajectories
        N: simulated records per estimate.
    particles
        M: parameter particles per record. One experiment's estimated gain cannot exceed log M.
    moves
        Metropolis steps whenever a record's particles are resampled.
    horizon
        T: experiments per record; the system's own by default.
    seed
        Seed of all randomness: the same seed gives the same numbers.
    out
        Folder for the table (CSV) and the figure (PNG); made if missing.
    """
    import jax

    from nestbed.errors import NestbedError, at_least_one
    from nestbed.evaluation import comparison
    from nestbed.systems import load

    at_least_one(seeds=seeds, trajectories=trajectories, particles=particles, moves=moves, baselines=len(baselines))
    if horizon is not None:
        at_least_one(horizon=horizon)
    if not 0 <= seed < 2**32:
        raise NestbedError(f"the seed is {seed}, but it must be a whole number from 0 to {2**32 - 1}.")
    model = load(system)
    policies = {name: _baseline(name, model) for name in baselines}
    folder = None if out is None else _writable(out)
    with _progress(policies, seeds * trajectories) as advance:
        scores = comparison.compare(
            jax.random.key(seed),
            model,
            policies,
            seeds=seeds,
            trajectories=trajectories,
            particles=particles,
            moves=moves,
            horizon=horizon,
            progress=advance,
        )
    steps = model.horizon if horizon is None else horizon
    settings = f"T = {steps}, N = {trajectories}, M = {particles}, {moves} moves, {seeds} seed{'s' * (seeds > 1)}"
    _print_scores(scores, system, settings)
    if folder is not None:
        try:
            comparison.save_table(scores, folder / "comparison.csv")
            comparison.save_figure(scores, model, folder / "comparison.png", name=system)
        except OSError as error:
            raise NestbedError(
                f"could not save to {folder}: {error.strerror}; the table above is all there is, so free some room or "
                "choose another --out and repeat."
            ) from None
        print(f"Saved {folder / 'comparison.csv'} and {folder / 'comparison.png'}")


def _baseline(name: str, system: "BaseSystem") -> object:
    from nestbed.errors import NestbedError, did_you_mean
    from nestbed.policies import PRBS, Random

    makers = {
        "random": lambda: Random(system),
        "prbs": lambda: PRBS(system),
        "prbs_independent": lambda: PRBS(system, channels="independent"),
    }
    if name not in makers:
        raise NestbedError(f"there is no baseline {name!r}; {did_you_mean(name, makers)}.")
    return makers[name]()


def _writable(folder: Path) -> Path:
    """Make the folder now, so that nothing is computed in vain."""
    from nestbed.errors import NestbedError

    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        reason = "it is a file" if folder.is_file() else error.strerror
        raise NestbedError(f"cannot write to the folder {folder}: {reason}; choose another --out.") from None
    return folder


def _print_scores(scores: "list[Score]", title: str, caption: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, caption=caption)
    table.add_column("policy")
    for heading in ("EIG (nats)", "sd over seeds", "standard error"):
        table.add_column(heading, justify="right")
    best = max(score.mean for score in scores)
    for score in scores:
        style = "bold" if score.mean == best else ""
        numbers = (f"{score.mean:.2f}", _or_dash(score.sd, 2), _or_dash(score.standard_error, 3))
        table.add_row(score.policy, *numbers, style=style)
    Console().print(table)


def _or_dash(value: float, digits: int) -> str:
    """Return the number, or a dash where one seed or one trajectory says nothing of a spread."""
    return "–" if value != value else f"{value:.{digits}f}"


class _progress:  # noqa: N801  # used like a function
    """A bar per policy with its rate and the time left; says when it compiles."""

    def __init__(self, policies: dict[str, object], total: int):
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("trajectories {task.fields[rate]}"),
            TimeRemainingColumn(),
        )
        self.bar = Progress(*columns, console=Console(stderr=True))
        self.tasks = {name: self.bar.add_task(name, total=total, rate="", start=False) for name in policies}

    def __enter__(self) -> "_progress":
        self.bar.start()
        first = next(iter(self.tasks.values()))
        self.bar.update(first, rate="[dim]compiling …[/]")
        return self

    def __call__(self, name: str, count: int) -> None:
        task = self.tasks[name]
        self.bar.start_task(task)
        self.bar.update(task, advance=count)
        speed = self.bar.tasks[task].speed
        self.bar.update(task, rate=f"{speed:.0f}/s" if speed else "")

    def __exit__(self, *error: object) -> None:
        self.bar.stop()


def main() -> None:
    """Run the command line; a complaint is one sentence and the exit status 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without η still shows the rest
    try:
        app()
    except ValueError as error:
        if type(error).__module__ != "nestbed.errors":
            raise
        print(f"nestbed: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("nestbed: stopped", file=sys.stderr)
        sys.exit(130)
