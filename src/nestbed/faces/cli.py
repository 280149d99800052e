"""The command line: parse, call, print."""

import io
import shlex
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import cyclopts
from cyclopts import Parameter

from nestbed import __version__
from nestbed.numerics import interrupts
from nestbed.numerics.errors import NestbedError
from nestbed.numerics.text import sentence, visible

if TYPE_CHECKING:
    from nestbed.evaluation.comparison import Comparison
    from nestbed.faces.reading import Settings
    from nestbed.model.system import BaseSystem
    from nestbed.runs.folder import Log, Run
    from nestbed.runs.train import Progress
    from nestbed.training.config import IDADConfig, TrainConfig

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
    from nestbed.faces import terminal
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
    from nestbed.faces import terminal
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
        interrupts.check()
        names = {k: f"seed {k}" if len(places) > 1 else system for k in places}
        with terminal.Training(list(names.values()), settings.iterations, quiet) as watch:
            for k, place in places.items():
                found.append(_train(k, model, settings, place, resume, tensorboard, watch.of(names[k])))
    except KeyboardInterrupt:
        resumed = sys.argv[1:] if resume else [*sys.argv[1:], "--resume"]
        _say(f"nestbed: stopped; every finished iteration is saved in {folder}. Continue with", sys.stderr)
        _say(f"  {shlex.join(['nestbed', *resumed])}", sys.stderr)
        sys.exit(interrupts.STATUS)
    if not quiet:
        terminal.runs(found)
    if len(found) > 1:
        from nestbed.faces import figures
        from nestbed.numerics import storage

        with storage.saving(folder):
            figures.learning_curve(found, folder / "curve.png", found[0].title)
    last = ", ".join(f"{run.metrics[-1]['eig']:.2f}" for run in found)
    _say(f"EIG of the mean policy: {last} nats. Saved in {folder}: the curve is {folder / 'curve.png'}")
    if settings.budget:
        _say(f"Spent: {settings.budget}")
    _print_verdicts(found)
    _say(f"Next: {shlex.join(['nestbed', 'compare', system, str(folder)])}")


@app.command
def show(*folders: Path) -> None:
    """Print training runs and draw their curves: settings, iterations, gains.

    Example: nestbed show runs/nonlinear_pendulum

    Parameters
    ----------
    folders
        Folders of runs; one that holds several seeds is shown as one training.
    """
    from nestbed.faces import figures, terminal
    from nestbed.numerics import storage
    from nestbed.runs import folder as runs

    if not folders:
        raise NestbedError("nestbed show needs the folder of a run, such as runs/nonlinear_pendulum.")
    for folder in folders:
        logs = [runs.load_log(place) for place in runs.within(folder)]
        terminal.runs(logs)
        with storage.saving(folder):
            figures.learning_curve(logs, folder / "curve.png", logs[0].title)
        _print_verdicts(logs)
        _say(f"Drawn in {folder / 'curve.png'}")


@app.command
def evaluate(
    policy: str,
    *,
    system: str | None = None,
    seeds: int = 25,
    trajectories: int = 16,
    particles: int = 1024,
    moves: int = 3,
    belief: str = "ibis",
    contrastive: int = 1_000_000,
    horizon: int | None = None,
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """Say how good one policy is: its expected information gain, with a bound from below and one from above.

    Examples:

    nestbed evaluate runs/nonlinear_pendulum

    nestbed evaluate runs/motor/policy_best.npz --system my_motor.py:Motor

    nestbed evaluate chirp --system cart_pole

    Parameters
    ----------
    policy
        Folder of a run (its mean policy after the last iteration), a policy file (.npz), or a baseline such as random.
    system
        A built-in system, or path/to/file.py:ClassName; needed for baselines and for what was trained on a system of
        your own.
    seeds
        Independent estimates; their spread is the sd.
    trajectories
        N: simulated records per estimate.
    particles
        M: parameter particles per record. One experiment's estimated gain cannot exceed log M.
    moves
        Metropolis steps whenever a record's particles are resampled.
    belief
        ibis (particles), or exact for systems that are linear in their parameters.
    contrastive
        L: contrastive draws of the bounds; the lower one cannot exceed log(L + 1). 0 leaves the bounds out.
    horizon
        T: experiments (time steps) per record; by default that of the run's training, or else the system's own.
    seed
        Seed of all randomness: the same seed gives the same numbers.
    out
        Folder for the table (CSV) and the figure (PNG); made if missing.
    """
    from nestbed.faces import reading, terminal

    found = reading.policy(policy, system, horizon)
    steps = next(steps for steps in (horizon, found.horizon, found.system.horizon) if steps is not None)
    settings = reading.Settings(seeds, trajectories, particles, moves, belief, steps, contrastive, seed).checked()
    scores = _score(found.system, {found.name: found.policy}, settings, found.title, out, "evaluation")
    rows = reading.evaluated(scores[0], settings)
    caption = f"{settings.told}\nin expectation sPCE ≤ EIG ≤ sNMC" if settings.contrastive else settings.told
    terminal.evaluation(rows, f"{found.name} on {found.title}", caption)
    if found.budget:
        _say(f"Spent: {found.budget}")


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
    contrastive: int = 0,
    horizon: int | None = None,
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """Compare how much information policies gain about a system's unknown parameters.

    Examples:

    nestbed compare cart_pole --baselines random prbs chirp --out results/cart_pole

    nestbed compare nonlinear_pendulum runs/nonlinear_pendulum --contrastive 1000000

    nestbed compare nonlinear_pendulum runs/nonlinear_pendulum runs/nonlinear_pendulum/policy_best.npz

    Parameters
    ----------
    system
        A built-in system (`nestbed systems` lists them), or path/to/file.py:ClassName.
    runs
        Folders of runs, whose mean policies after the last iteration are scored, and policy files (.npz), such as
        runs/nonlinear_pendulum/policy_best.npz, whose mean policies are.
    baselines
        Policies to score beside them: random, prbs (limits by coin toss, all channels together), prbs_independent (a
        coin for each), maximum_length, chirp, multisine, myopic (as the paper has it) or greedy.
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
    contrastive
        L: draws for the bounds sPCE and sNMC beside the estimate, such as 1000000; 0 leaves them out.
    horizon
        T: experiments (time steps) per record; by default that of the runs' training, or else the system's own.
    seed
        Seed of all randomness: the same seed gives the same numbers.
    out
        Folder for the table (CSV) and the figure (PNG); made if missing.
    """
    from nestbed.faces import reading, terminal
    from nestbed.policies import baseline
    from nestbed.systems import load

    model = load(system)
    trained = reading.trained(runs or [], model)
    lengths = {found.horizon for found in trained.values() if found.horizon is not None}
    if horizon is None:
        horizon = lengths.pop() if len(lengths) == 1 else model.horizon
    settings = reading.Settings(seeds, trajectories, particles, moves, belief, horizon, contrastive, seed).checked()
    policies = {
        **{name: found.policy for name, found in trained.items()},
        **{name: baseline(name, model, horizon) for name in baselines},
    }
    if not policies:
        raise NestbedError(
            "there is nothing to compare; name a run's folder, a policy file or --baselines, such as random."
        )
    scores = _score(model, policies, settings, system, out)
    terminal.scores(scores, system, settings.told)
    for name, found in trained.items():
        if found.budget:
            _say(f"Spent on {name}: {found.budget}")


def _places(folder: Path, seed: int | None, seeds: int | None, resume: bool) -> dict[int, Path]:
    """Return the folder of each seed: those that a folder to be resumed holds, or those asked for."""
    from nestbed.numerics.errors import at_least_one, seed_from
    from nestbed.runs import folder as runs

    if resume and not folder.exists():
        raise NestbedError(f"there is nothing to resume in {folder}; correct --out, or leave out --resume to begin.")
    if resume and seed is None and seeds is None and runs.any_within(folder):
        return {runs.load_seed(place): place for place in runs.within(folder)}
    first, count = 0 if seed is None else seed, 1 if seeds is None else seeds
    at_least_one(seeds=count)
    seed_from(first, count)
    if count == 1:
        if runs.any_within(folder) and not runs.holds_run(folder):
            raise NestbedError(f"the folder {folder} holds several seeds; give --seeds or --resume, or another --out.")
        return {first: folder}
    if runs.holds_run(folder):
        raise NestbedError(f"the folder {folder} holds a single run; leave out --seeds, or give another --out.")
    return {k: folder / f"seed_{k}" for k in range(first, first + count)}


def _settings(place: Path, resume: bool, method: str | None, given: dict[str, Any]) -> "TrainConfig | IDADConfig":
    """Return what the settings given on the command line are changes of."""
    from nestbed.runs import folder as runs
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

    from nestbed.faces.events import Events
    from nestbed.runs.train import train

    events = Events(folder) if tensorboard else None

    def progress(run: "Run") -> None:
        show(run)
        if events is not None:
            events.write(run)

    return train(jax.random.key(seed), system, config, out=folder, resume=resume, progress=progress)


def _print_verdicts(found: "Sequence[Log]") -> None:
    """Say which trainings made their policy worse."""
    for run in found:
        if run.verdict is not None:
            seed = f"seed {run.seed}: " if len(found) > 1 else ""
            _say(f"Beware: {seed}{run.verdict}")


def _score(
    system: "BaseSystem",
    policies: dict[str, object],
    settings: "Settings",
    title: str,
    out: Path | None,
    name: str = "comparison",
) -> "Comparison":
    """Score policies while a bar shows how far it is, and save table and figure if there is a folder for them."""
    import jax

    from nestbed.evaluation import comparison
    from nestbed.faces import figures, terminal
    from nestbed.numerics import storage

    folder = None if out is None else storage.writable(out)
    if folder is not None:
        for kind in ("csv", "png"):
            storage.plain(folder / f"{name}.{kind}")
    interrupts.check()
    rounds = 2 if settings.contrastive else 1
    with terminal.Comparing(policies, rounds * settings.seeds * settings.trajectories) as advance:
        scores = comparison.compare(
            jax.random.key(settings.seed), system, policies, progress=advance, **settings.of_comparison()
        )
    if folder is not None:
        try:
            comparison.save_table(scores, folder / f"{name}.csv")
            figures.information_gain(scores, system, folder / f"{name}.png", name=title)
        except OSError as error:
            terminal.scores(scores, title, settings.told)
            raise NestbedError(
                f"could not save to {folder}: {error.strerror}; the table above is all there is, so free some room or "
                "choose another --out and repeat."
            ) from None
        _say(f"Saved {folder / name}.csv and {folder / name}.png")
    return scores


def _say(text: str, stream: TextIO | None = None) -> None:
    """Print a line, whatever the names in it are made of."""
    print(visible(text, keep=""), file=stream)


def _warn(message: Warning | str, category: type[Warning], *place: object, **more: object) -> None:
    print(visible(f"nestbed: {message}"), file=sys.stderr)


def main() -> None:
    """Run the command line; a complaint is one sentence and the exit status 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without η still shows the rest
    warnings.showwarning = _warn
    interrupts.install()
    try:
        app(print_error=False, exit_on_error=False)
    except cyclopts.CycloptsError as error:
        from rich.console import Console

        Console(stderr=True).print(cyclopts.CycloptsPanel(visible(str(error))))
        sys.exit(2)
    except NestbedError as error:
        print(sentence(f"nestbed: {error}"), file=sys.stderr)
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
