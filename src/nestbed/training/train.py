"""`nb.train`: run a training, keep it in a folder, go on where it stopped."""

from collections.abc import Callable
from os import PathLike
from pathlib import Path

import jax

from nestbed import checks, interrupts, noise, runs, storage
from nestbed.errors import NestbedError, NonFiniteError
from nestbed.runs import Run
from nestbed.system import BaseSystem
from nestbed.training.config import IDADConfig, TrainConfig
from nestbed.training.methods import trainer
from nestbed.training.trainer import DivergedError

Progress = Callable[[Run], None]
"""Called with the run after each iteration, and once before the first."""


def train(
    key: jax.Array,
    system: BaseSystem,
    config: TrainConfig | IDADConfig | None = None,
    *,
    out: str | PathLike[str] | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Run:
    """Learn a policy for a system, by score climbing (nb.TrainConfig) or iDAD (nb.IDADConfig).

    What the configuration leaves open comes from `system.defaults`.

    With `out` every iteration is saved in that folder, and `resume` continues the run it holds, if any: the result
    is the same, to the last bit, as that of a run never stopped.
    """
    checks.instance(system)
    if config is not None and not isinstance(config, TrainConfig | IDADConfig):
        raise NestbedError(
            f"the configuration is of type {type(config).__name__}; give an nb.TrainConfig(...) or an "
            "nb.IDADConfig(...)."
        )
    full = (config or TrainConfig()).resolve(system)
    key = noise.as_key(key)
    if out is None:
        if resume:
            raise NestbedError("there is nothing to resume without a folder; give out=....")
        return _climb(_first(key, system, full), None, progress)
    folder = storage.writable(Path(out))
    with storage.locked(folder):
        runs.check_files(folder)
        run = _open(key, system, full, folder, resume)
        run = _climb(run, folder, progress)
        with storage.saving(folder):
            runs.figure(run, folder)
    return run


def _first(key: jax.Array, system: BaseSystem, config: TrainConfig | IDADConfig) -> Run:
    interrupts.check()
    state, row = trainer(system, config).begin(jax.random.fold_in(key, 0))
    return runs.fresh(key, system, config, state, row)


def _open(key: jax.Array, system: BaseSystem, config: TrainConfig | IDADConfig, folder: Path, resume: bool) -> Run:
    """Return the run to go on with: the one in the folder, or a new one."""
    if runs.holds_run(folder):
        if not resume:
            raise NestbedError(
                f"the folder {folder} holds a run already; continue it with --resume (resume=True) or choose another."
            )
        found = runs.resumable(folder, system, config, key)
        if found is not None:
            return found
    trainer(system, config).template()  # complains of what cannot be built, before anything is written
    runs.begin(folder, key, system, config)
    run = _first(key, system, config)
    runs.record(run, folder)
    return run


def _climb(run: Run, folder: Path | None, progress: Progress | None) -> Run:
    method = trainer(run.system, run.config)
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
            runs.record(run, folder)
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
