"""`nb.train`: run a training, keep it in a folder, go on where it stopped."""

from os import PathLike
from pathlib import Path
from typing import Any

import jax

from nestbed.model import checks
from nestbed.model.system import BaseSystem
from nestbed.numerics import interrupts, noise, storage
from nestbed.numerics.errors import NestbedError, NonFiniteError
from nestbed.numerics.progress import Progress, Watch
from nestbed.policies.signals import inputs_of
from nestbed.runs import folder as folders
from nestbed.runs import resuming
from nestbed.runs.run import Run, fresh
from nestbed.training import registry
from nestbed.training.config import Config


class DivergedError(NestbedError):
    """Training met a number that is not finite; `run` is the run up to the iteration before."""

    def __init__(self, message: str, run: Run):
        super().__init__(message)
        self.run = run


def train(
    key: jax.Array,
    system: BaseSystem,
    config: Config | None = None,
    *,
    out: str | PathLike[str] | None = None,
    resume: bool = False,
    start: Any = None,
    progress: Watch[Run] | None = None,
    beginning: Watch[Progress] | None = None,
) -> Run:
    """Learn a policy for a system.

    Args:
        key: a jax key; the same key gives the same run, to the last bit.
        system: the model.
        config: the method and its settings: nb.PathwiseConfig (by default: the best plan with feedback on top of it),
            nb.ScoreClimbingConfig (IO-SMC² as published) or nb.IDADConfig. What it leaves open comes from
            `system.defaults`.
        out: a folder in which every iteration is saved.
        resume: continue the run that the folder holds, if any: the result is the same, to the last bit, as that of a
            run never stopped.
        start: inputs that the policy begins with: an `nb.Plan`, a signal, or one row per experiment. The default method
            puts feedback on them, without a search; others learn to apply them first.
        progress: called with the run after each iteration, and once before the first.
        beginning: called with how far it is with what comes before that, such as the search for a plan.

    Returns:
        The run, with `run.policy`, `run.best` and `run.metrics` (gains in nats); where the method compares policies in
        the end, `run.policy` is the one that won, `run.winner` its name and `run.comparison` what it was compared with.
    """
    checks.instance(system)
    if config is not None and not isinstance(config, Config):
        raise NestbedError(
            f"the configuration is of type {type(config).__name__}; give an nb.PathwiseConfig(...), an "
            "nb.ScoreClimbingConfig(...) or an nb.IDADConfig(...)."
        )
    full = (config or registry.config()).resolve(system)
    key = noise.as_key(key)
    beginnings: _Beginning = (None if start is None else inputs_of(system, start, full.horizon), beginning)
    if out is None:
        if resume:
            raise NestbedError("there is nothing to resume without a folder; give out=....")
        return _climb(_first(key, system, full, beginnings), None, progress)
    folder = storage.writable(Path(out))
    with storage.locked(folder):
        folders.check_files(folder)
        run = _open(key, system, full, folder, resume, beginnings)
        return _climb(run, folder, progress)


_Beginning = tuple[Any, Watch[Progress] | None]
"""Inputs to begin with, if any, and who watches."""


def _first(key: jax.Array, system: BaseSystem, config: Config, beginning: _Beginning) -> Run:
    interrupts.check()
    start, watch = beginning
    state, row = registry.trainer(system, config).begin(jax.random.fold_in(key, 0), watch, start)
    return fresh(key, system, config, state, row, start)


def _open(
    key: jax.Array,
    system: BaseSystem,
    config: Config,
    folder: Path,
    resume: bool,
    beginning: _Beginning,
) -> Run:
    """Return the run to go on with: the one in the folder, or a new one."""
    if resume:
        folders.check_start(folder, beginning[0])
    if folders.holds_run(folder):
        if not resume:
            raise NestbedError(f"the folder {folder} holds a run already; resume it or choose another.", topic="resume")
        found = resuming.resumable(folder, system, config, key)
        if found is not None:
            return found
    registry.trainer(system, config).template()  # complains of what cannot be built, before anything is written
    folders.begin(folder, key, system, config, beginning[0])
    run = _first(key, system, config, beginning)
    folders.record(run, folder)
    return run


def _climb(run: Run, folder: Path | None, progress: Watch[Run] | None) -> Run:
    method = registry.trainer(run.system, run.config)
    if progress is not None:
        progress(run)
    while not run.finished:
        interrupts.check()
        try:
            state, row = method.iterate(jax.random.fold_in(run.key, run.iteration + 1), run.state)
        except NonFiniteError as error:
            raise DivergedError(_diverged(run, folder, error), run) from None
        run = run.after(state, row)
        if folder is not None:
            folders.record(run, folder)
        if progress is not None:
            progress(run)
    return run


def _diverged(run: Run, folder: Path | None, error: Exception) -> str:
    kept = "as the error's .run" if folder is None else f"in {folder}"
    c = run.config
    clip = f"clip (now {c.clip:g}) to something smaller" if c.clip else "clip to 1 or so"
    return (
        f"training diverged in iteration {run.iteration + 1}: {str(error).rstrip('.')}; the policy after iteration "
        f"{run.iteration} is kept {kept}, so train again with a smaller learning_rate (now {c.learning_rate:g}) or set "
        f"{clip}."
    )
