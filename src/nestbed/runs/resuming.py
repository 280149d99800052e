"""Runs that are gone on with: those that belong to what was asked for, and those that no longer do."""

import dataclasses
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

from nestbed.model.system import BaseSystem
from nestbed.numerics import storage
from nestbed.numerics.blocks import cores
from nestbed.numerics.errors import NestbedError
from nestbed.runs import folder as folders
from nestbed.runs.fingerprint import same_system
from nestbed.runs.run import Run
from nestbed.training.config import Config


def resumable(folder: Path, system: BaseSystem, config: Config, key: jax.Array) -> Run | None:
    """Return the folder's run to go on with, None if it stopped before its first checkpoint; others are refused."""
    folders.check_files(folder)
    about, stored = folders.read_about(folder), folders.load_config(folder)
    same_system(folder, about["system"], system, resuming=True)
    if about["key"] != np.asarray(jax.random.key_data(key)).tolist():
        raise NestbedError(f"the run in {folder} has another seed or key; give its own, or choose another folder.")
    if stored.method != config.method:
        raise NestbedError(
            f"the run in {folder} was trained by {stored.method}, but {config.method} was asked for; a resumed run "
            "keeps its method, so leave that out, or train in another folder."
        )
    _warn_of_cores(folder, about)
    theirs, ours = stored.plain(), config.plain()
    changed = sorted(name for name in ours if ours[name] != theirs[name])
    longer = changed == ["iterations"] and stored.extendable and ours["iterations"] > theirs["iterations"]
    if changed and not longer:
        name = changed[0]
        raise NestbedError(
            f"the run in {folder} has {name} = {theirs[name]!r}, but {ours[name]!r} was asked for; a resumed run keeps "
            "its settings (only iterations may grow, under a constant schedule), so leave that out, or train in "
            "another folder."
        )
    never = not any(os.path.lexists(folder / name) for name in (folders.CHECKPOINT, folders.BEFORE, *folders.POLICIES))
    if never and len(folders.read_metrics(folder)) == 1:
        return None
    run, source = folders.load(folder, system)
    if folders.outdated(about, system, stored):
        warnings.warn(
            f"the run in {folder} was begun with other sources of nestbed, so what is resumed here is no longer the "
            "result of a run never stopped; for that, train in another folder.",
            stacklevel=4,
        )
    run = dataclasses.replace(run, config=config)
    if source != folders.CHECKPOINT and os.path.lexists(folder / folders.CHECKPOINT):
        with storage.saving(folder):  # the damaged one must not take the place of the one before it
            os.replace(folder / folders.CHECKPOINT, folder / folders.DAMAGED)
    folders.rewind(run, folder)
    return run


def _warn_of_cores(folder: Path, about: dict[str, Any]) -> None:
    """Warn if a run goes on with one core that began with several, or the other way round."""
    began = about.get("cores")
    if isinstance(began, int) and (began == 1) != (cores() == 1):
        warnings.warn(
            f"the run in {folder} began on {began} core(s) and goes on with {cores()}: a single core sums the matrix "
            "products of gradient steps in another order, so its numbers part in about the eighth digit.",
            stacklevel=4,
        )


def discard_outdated(folder: Path, system: BaseSystem) -> None:
    """Remove a run that was begun with other sources: what training would give now is not known from it."""
    if not folders.holds_run(folder):
        return
    if not folders.outdated(folders.read_about(folder), system, folders.load_config(folder)):
        return
    with storage.locked(folder), storage.saving(folder):
        aside = folder.with_name(f".{folder.name}.outdated")
        shutil.rmtree(aside, ignore_errors=True)
        os.replace(folder, aside)  # at once: half a folder would be taken for a run
        shutil.rmtree(aside)
