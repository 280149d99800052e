"""`nestbed train`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from cyclopts import Parameter

from nestbed.faces.cli import listing
from nestbed.numerics import interrupts
from nestbed.numerics.errors import NestbedError, at_least_one, seed_from
from nestbed.training.registry import METHODS

if TYPE_CHECKING:
    from nestbed.model.system import BaseSystem
    from nestbed.numerics.progress import Progress, Watch
    from nestbed.policies.base import Policy
    from nestbed.runs.run import Run
    from nestbed.training.config import Config


def train(
    system: Annotated[str, listing.system()],
    *,
    out: Path | None = None,
    method: Annotated[
        str | None,
        listing.entries("{}; by default that of --config, or else the first. With --resume the folder's.", METHODS),
    ] = None,
    config: Path | None = None,
    set: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    start: Path | None = None,
    seed: listing.Whole | None = None,
    seeds: listing.Whole | None = None,
    resume: bool = False,
    quiet: bool = False,
    tensorboard: bool = False,
) -> None:
    """Learn a policy that chooses the most informative inputs.

    By default the best plan is searched for, feedback is learned on top of it, and what is handed out is the simplest
    policy that nothing surely beats. `--method score_climbing` trains as the paper has it.

    Every iteration is saved, so Ctrl-C or a power cut loses one iteration at most.

    For example:

    nestbed train nonlinear_pendulum --out runs/pendulum

    nestbed train cart_pole --method score_climbing --set iterations=30 policy.cell=lstm --seeds 5

    nestbed train my_motor.py:Motor --config my.toml --out runs/motor

    nestbed train cart_pole --method idad --out runs/cart_pole_idad

    nestbed train nonlinear_pendulum --out runs/pendulum --resume

    Parameters
    ----------
    out
        Folder of the run; by default runs/SYSTEM. Several seeds go into seed_0, seed_1, … within it.
    config
        TOML file of settings; `nestbed config SYSTEM` prints one to start from.
    set
        Single settings, over those of the file: key=value, as in eta=0.5 or policy.head=[64,64].
    start
        Folder of a plan, or inputs as CSV, to begin with: feedback is learned on them, without a search.
    seed
        Seed of all randomness, by default 0: the same seed gives the same numbers.
    seeds
        How many trainings, with the seeds seed, seed + 1, …; by default 1.
    resume
        Go on with what the folder holds, under its own settings and seeds; the result is that of a run never stopped.
        `--set iterations=50` makes it longer.
    quiet
        Show nothing but the result.
    tensorboard
        Also write TensorBoard events into the folder.
    """
    from nestbed.faces.cli import sources
    from nestbed.faces.cli.settings import requested
    from nestbed.faces.terminal import bars
    from nestbed.systems import load

    model = load(system)
    folder = out or Path("runs") / system.rpartition(":")[2]
    places = folders(folder, seed, seeds, resume)
    settings = requested(next(iter(places.values())), resume, method, config, set or []).resolve(model)
    inputs = None if start is None else sources.inputs(start, model)
    names = {k: f"seed {k}" if len(places) > 1 else system for k in places}
    trained: list[Run] = []
    try:
        interrupts.check()
        with bars.Training(list(names.values()), settings.iterations, quiet) as bar:
            for k, place in places.items():
                watch = bar.of(names[k]), bar.beginning(names[k])
                trained.append(_train(k, model, settings, place, resume, tensorboard, inputs, *watch))
    except (Exception, KeyboardInterrupt) as error:
        if not isinstance(error, KeyboardInterrupt) and not interrupts.asked():
            raise
        _stopped(folder, resume)  # a library may have made another error of it
    _report(trained, system, folder, quiet)


def folders(folder: Path, seed: int | None, seeds: int | None, resume: bool) -> dict[int, Path]:
    """Return the folder of each seed: those that a folder to be resumed holds, or those asked for."""
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


def _train(
    seed: int,
    system: BaseSystem,
    config: Config,
    folder: Path,
    resume: bool,
    tensorboard: bool,
    start: Policy | None,
    bar: Watch[Run],
    beginning: Watch[Progress],
) -> Run:
    """Train with one seed and draw its curve."""
    import jax

    from nestbed.faces import figures
    from nestbed.faces.events import Events
    from nestbed.runs.train import train

    watchers = [bar, Events(folder).write] if tensorboard else [bar]

    def progress(run: Run) -> None:
        for watch in watchers:
            watch(run)

    key = jax.random.key(seed)
    watched: Any = {"progress": progress, "beginning": beginning}
    run = train(key, system, config, out=folder, resume=resume, start=start, **watched)
    figures.save_curve([run], folder)
    return run


def _stopped(folder: Path, resume: bool) -> NoReturn:
    """Say how to go on, and leave."""
    from nestbed.faces.terminal import say
    from nestbed.runs import folder as runs

    resumed = sys.argv[1:] if resume else [*sys.argv[1:], "--resume"]
    kept = (
        f"every finished iteration is saved in {folder}. Continue"
        if runs.any_within(folder)
        else "nothing was finished yet. Begin again"
    )
    say(f"nestbed: stopped; {kept} with", sys.stderr)
    say(f"  {shlex.join(['nestbed', *resumed])}", sys.stderr)
    sys.exit(interrupts.STATUS)


def _report(trained: list[Run], system: str, folder: Path, quiet: bool) -> None:
    """Show what was learned and say what to do next."""
    from nestbed.faces import figures
    from nestbed.faces.terminal import say, tables, training
    from nestbed.runs.folder import CURVE

    if not quiet:
        training.runs(trained)
    curve = figures.save_curve(trained, folder) if len(trained) > 1 else folder / CURVE
    for run in trained:
        if run.comparison is not None and run.outcome is not None:
            tables.comparison(
                run.comparison, system, f"T = {run.config.horizon}, {len(run.comparison[0].values)} records"
            )
            say(run.outcome)
    last = ", ".join(f"{run.metrics[-1]['eig']:.2f}" for run in trained)
    handed = "policy that is handed out" if trained[0].config.compares else "mean policy"
    say(f"EIG of the {handed}: {last} nats. Saved in {folder}: the curve is {curve}")
    if trained[0].config.budget:
        say(f"Spent: {trained[0].config.budget}")
    for run in trained if not quiet else []:
        _tell_of_noise(run)
    training.verdicts(trained)
    say(f"Next: {shlex.join(['nestbed', 'compare', system, str(folder)])}")


def _tell_of_noise(run: Run) -> None:
    """Say whether a policy gains more with its noise or without, where gains are certified and it was not said yet."""
    import jax

    from nestbed.evaluation.comparison import compare
    from nestbed.faces.terminal import say

    if run.config.compares or not getattr(run.config, "certifies", False):
        return
    policies = {"mean": run.policy.mean(), "sampled": run.policy}
    settings: Any = {"horizon": run.config.horizon, "records": run.config.judged}
    found = compare(jax.random.fold_in(run.key, run.iteration), run.system, policies, **settings)
    more = found.difference("mean", "sampled")
    low, high = more.interval
    which = "better" if low > 0.0 else "worse" if high < 0.0 else "no better or worse"
    say(
        f"Without its noise the policy gains {found[0].mean:.2f} nats, with it {found[1].mean:.2f}: without is {which} "
        f"({more.mean:+.2f}, 95 %: {low:+.2f} to {high:+.2f})."
    )
