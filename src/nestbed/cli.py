"""The command line: parse, call, print."""

import io
import shlex
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import cyclopts
from cyclopts import Parameter

from nestbed import __version__

if TYPE_CHECKING:
    from nestbed.runs import Run
    from nestbed.system import BaseSystem
    from nestbed.training.config import IDADConfig, TrainConfig
    from nestbed.training.train import Progress

app = cyclopts.App(
    name="nestbed",
    version=__version__,
    suppress_keyboard_interrupt=False,
    help="Learn how to excite a dynamical system so that its unknown parameters reveal themselves.\n\n"
    "Start with `nestbed systems`, train with `nestbed train nonlinear_pendulum`, look with `nestbed show`, and see "
    "what it gained with `nestbed compare`.",
)


@app.command
def systems() -> None:
    """List the built-in systems: states, designs with their limits, unknown parameters and settings."""
    from nestbed import terminal
    from nestbed.systems import CATALOGUE, load

    terminal.systems({name: load(name) for name in CATALOGUE})


@app.command
def config(system: str, *, method: str = "score_climbing") -> None:
    """Print the settings that `nestbed train` uses for a system, as TOML to change and give back by --config.

    Examples:

    nestbed config cart_pole > my.toml

    nestbed config cart_pole --method idad > my.toml

    Parameters
    ----------
    system
        A built-in system, or path/to/file.py:ClassName.
    method
        score_climbing, idad, or idad_paper for iDAD at the paper's sizes.
    """
    from nestbed.systems import load
    from nestbed.training.config import named

    print(named(method).resolve(load(system)).toml(), end="")


@app.command
def train(
    system: str,
    *,
    out: Path | None = None,
    method: str | None = None,
    config: Path | None = None,
    set: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    seed: int | None = None,
    seeds: int | None = None,
    resume: bool = False,
    quiet: bool = False,
    tensorboard: bool = False,
) -> None:
    """Learn a policy that chooses the most informative inputs, by Markovian score climbing or iDAD.

    Every iteration is saved, so Ctrl-C or a power cut loses one iteration at most.

    Examples:

    nestbed train nonlinear_pendulum --out runs/pendulum

    nestbed train cart_pole --set iterations=30 policy.cell=lstm --seeds 5

    nestbed train my_motor.py:Motor --config my.toml --out runs/motor

    nestbed train cart_pole --method idad --out runs/cart_pole_idad

    nestbed train nonlinear_pendulum --out runs/pendulum --resume

    Parameters
    ----------
    system
        A built-in system (`nestbed systems` lists them), or path/to/file.py:ClassName.
    out
        Folder of the run; by default runs/SYSTEM. Several seeds go into seed_0, seed_1, … within it.
    method
        score_climbing unless --config names another; idad, a baseline that climbs the sPCE bound through the simulator,
        with sizes for minutes on two cores; or idad_paper, the same with the paper's, which take days there. With
        --resume it is that of the folder.
    config
        TOML file of settings; `nestbed config SYSTEM` prints one to start from.
    set
        Single settings, over those of the file: key=value, as in eta=0.5 or policy.head=[64,64].
    seed
        Seed of all randomness, 0 unless told: the same seed gives the same numbers.
    seeds
        How many trainings, with the seeds seed, seed + 1, …; 1 unless told.
    resume
        Go on with what the folder holds, under its own settings and seeds; the result is that of a run never stopped.
        `--set iterations=50` makes it longer.
    quiet
        Show nothing but the result.
    tensorboard
        Also write TensorBoard events into the folder.
    """
    from nestbed import terminal
    from nestbed.systems import load
    from nestbed.training.config import assignments, read

    model = load(system)
    folder = out or Path("runs") / system.rpartition(":")[2]
    places = _places(folder, seed, seeds, resume)
    given = {} if config is None else read(config)
    settings = _settings(next(iter(places.values())), resume, method, given)
    for changes in (given, assignments(set or [])):
        settings = settings.updated(changes)
    settings = settings.resolve(model)
    found: list[Run] = []
    try:
        names = {k: f"seed {k}" if len(places) > 1 else system for k in places}
        with terminal.Training(list(names.values()), settings.iterations, quiet) as watch:
            for k, place in places.items():
                found.append(_train(k, model, settings, place, resume, tensorboard, watch.of(names[k])))
    except KeyboardInterrupt:
        resumed = sys.argv[1:] if resume else [*sys.argv[1:], "--resume"]
        print(f"nestbed: stopped; every finished iteration is saved in {folder}. Continue with", file=sys.stderr)
        print(f"  nestbed {shlex.join(resumed)}", file=sys.stderr)
        sys.exit(130)
    if not quiet:
        terminal.runs(found)
    if len(found) > 1:
        from nestbed import figures, storage

        with storage.saving(folder):
            figures.learning_curve(found, folder / "curve.png", found[0].title)
    last = ", ".join(f"{run.metrics[-1]['eig']:.2f}" for run in found)
    print(f"EIG of the mean policy: {last} nats. Saved in {folder}: the curve is {folder / 'curve.png'}")
    if settings.budget:
        print(f"Spent: {settings.budget}")
    print(f"Next: nestbed compare {system} {folder}")


@app.command
def show(*folders: Path) -> None:
    """Print training runs and draw their curves: settings, iterations, gains.

    Example: nestbed show runs/nonlinear_pendulum

    Parameters
    ----------
    folders
        Folders of runs; one that holds several seeds is shown as one training.
    """
    from nestbed import figures, runs, storage, terminal
    from nestbed.errors import NestbedError

    if not folders:
        raise NestbedError("nestbed show needs the folder of a run, such as runs/nonlinear_pendulum.")
    for folder in folders:
        logs = [runs.load_log(place) for place in runs.within(folder)]
        terminal.runs(logs)
        with storage.saving(folder):
            figures.learning_curve(logs, folder / "curve.png", logs[0].title)
        print(f"Drawn in {folder / 'curve.png'}")


@app.command
def compare(
    system: str,
    runs: Annotated[list[Path] | None, Parameter(consume_multiple=True, negative="")] = None,
    *,
    baselines: Annotated[list[str], Parameter(consume_multiple=True, negative="")] = ["random", "prbs"],  # noqa: B006
    seeds: int = 25,
    trajectories: int = 16,
    particles: int = 1024,
    moves: int = 3,
    belief: str = "ibis",
    horizon: int | None = None,
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """Compare how much information policies gain about a system's unknown parameters.

    Examples:

    nestbed compare cart_pole --baselines random prbs --out results/cart_pole

    nestbed compare nonlinear_pendulum runs/nonlinear_pendulum

    Parameters
    ----------
    system
        A built-in system (`nestbed systems` lists them), or path/to/file.py:ClassName.
    runs
        Folders of trained policies; their mean policies after the last iteration are scored.
    baselines
        Policies to score beside them: random, prbs (all channels together) or prbs_independent (a coin for each).
    seeds
        Independent estimates per policy; their spread is the sd of the table.
    trajectories
        N: simulated records per estimate.
    particles
        M: parameter particles per record. One experiment's estimated gain cannot exceed log M.
    moves
        Metropolis steps whenever a record's particles are resampled.
    belief
        ibis (particles), or exact for systems that are linear in their parameters.
    horizon
        T: experiments (time steps) per record; by default that of the runs' training, or else the system's own.
    seed
        Seed of all randomness: the same seed gives the same numbers.
    out
        Folder for the table (CSV) and the figure (PNG); made if missing.
    """
    import jax

    from nestbed import figures, storage, terminal
    from nestbed.errors import NestbedError, at_least_one
    from nestbed.evaluation import comparison
    from nestbed.systems import load

    at_least_one(seeds=seeds, trajectories=trajectories, particles=particles, moves=moves)
    if horizon is not None:
        at_least_one(horizon=horizon)
    _check_seeds(seed, 1)
    model = load(system)
    trained = _trained(runs or [], model)
    policies = {
        **{name: run.policy.mean() for name, run in trained.items()},
        **{name: _baseline(name, model) for name in baselines},
    }
    lengths = {run.config.horizon for run in trained.values()}
    horizon = horizon or (lengths.pop() if len(lengths) == 1 else model.horizon)
    if not policies:
        raise NestbedError("there is nothing to compare; name a run's folder or --baselines, such as random.")
    folder = None if out is None else storage.writable(out)
    with terminal.Comparison(policies, seeds * trajectories) as advance:
        scores = comparison.compare(
            jax.random.key(seed),
            model,
            policies,
            seeds=seeds,
            trajectories=trajectories,
            particles=particles,
            moves=moves,
            belief=belief,
            horizon=horizon,
            progress=advance,
        )
    steps = horizon
    inner = f"M = {particles}, {moves} moves" if belief == "ibis" else "exact belief"
    settings = f"T = {steps}, N = {trajectories}, {inner}, {seeds} seed{'s' * (seeds > 1)}"
    terminal.scores(scores, system, settings)
    if folder is not None:
        try:
            comparison.save_table(scores, folder / "comparison.csv")
            figures.information_gain(scores, model, folder / "comparison.png", name=system)
        except OSError as error:
            raise NestbedError(
                f"could not save to {folder}: {error.strerror}; the table above is all there is, so free some room or "
                "choose another --out and repeat."
            ) from None
        print(f"Saved {folder / 'comparison.csv'} and {folder / 'comparison.png'}")


def _places(folder: Path, seed: int | None, seeds: int | None, resume: bool) -> dict[int, Path]:
    """Return the folder of each seed: those that a folder to be resumed holds, or those asked for."""
    from nestbed import runs
    from nestbed.errors import NestbedError, at_least_one

    if resume and not folder.exists():
        raise NestbedError(f"there is nothing to resume in {folder}; correct --out, or leave out --resume to begin.")
    if resume and seed is None and seeds is None and runs.any_within(folder):
        return {runs.load_seed(place): place for place in runs.within(folder)}
    first, count = 0 if seed is None else seed, 1 if seeds is None else seeds
    at_least_one(seeds=count)
    _check_seeds(first, count)
    if count == 1:
        if runs.any_within(folder) and not runs.holds_run(folder):
            raise NestbedError(f"the folder {folder} holds several seeds; give --seeds or --resume, or another --out.")
        return {first: folder}
    if runs.holds_run(folder):
        raise NestbedError(f"the folder {folder} holds a single run; leave out --seeds, or give another --out.")
    return {k: folder / f"seed_{k}" for k in range(first, first + count)}


def _settings(place: Path, resume: bool, method: str | None, given: dict[str, Any]) -> "TrainConfig | IDADConfig":
    """Return what the settings given on the command line are changes of."""
    from nestbed import runs
    from nestbed.errors import NestbedError
    from nestbed.training.config import TrainConfig, named

    wanted = None if method is None else named(method)
    if not (resume and runs.holds_run(place)):
        return wanted or named(given.get("method", TrainConfig.method))
    stored = runs.load_config(place)
    if wanted is not None and wanted.method != stored.method:
        raise NestbedError(
            f"the run in {place} was trained by {stored.method}, but --method is {method}; a resumed run keeps its "
            "method, so leave --method out, or train in another folder."
        )
    return stored


def _train(
    seed: int,
    system: "BaseSystem",
    config: "TrainConfig | IDADConfig",
    folder: Path,
    resume: bool,
    tensorboard: bool,
    show: "Progress",
) -> "Run":
    import jax

    from nestbed.training.events import Events
    from nestbed.training.train import train

    events = Events(folder / "tensorboard") if tensorboard else None

    def progress(run: "Run") -> None:
        show(run)
        if events is not None:
            events.write(run)

    return train(jax.random.key(seed), system, config, out=folder, resume=resume, progress=progress)


def _trained(folders: list[Path], system: "BaseSystem") -> "dict[str, Run]":
    from nestbed.runs import load_run, within

    places = [place for folder in folders for place in within(folder)]
    short = ["/".join(place.parts[-2:]) if place.name.startswith("seed_") else place.name for place in places]
    names = short if len({*short}) == len(short) else [str(place) for place in places]
    return {name: load_run(place, system) for name, place in zip(names, places, strict=True)}


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


def _check_seeds(seed: int, count: int) -> None:
    from nestbed.errors import NestbedError

    if not 0 <= seed <= 2**32 - count:
        raise NestbedError(f"the seed is {seed}, but it must be a whole number from 0 to {2**32 - count}.")


def _warn(message: Warning | str, category: type[Warning], *place: object, **more: object) -> None:
    print(f"nestbed: {message}", file=sys.stderr)


def main() -> None:
    """Run the command line; a complaint is one sentence and the exit status 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without η still shows the rest
    warnings.showwarning = _warn
    try:
        app()
    except ValueError as error:
        if not any(kind.__module__ == "nestbed.errors" for kind in type(error).__mro__):
            raise
        print(f"nestbed: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("nestbed: stopped", file=sys.stderr)
        sys.exit(130)
