"""Run directories: configuration, metrics, checkpoints and policies, all plain data. Loading one never runs code.

    config.toml      the full configuration, ready to be used again
    run.json         system, key, versions
    metrics.jsonl    one line per iteration
    checkpoint.npz   all that training carries; checkpoint_before.npz is the one before it
    policy_best.npz, policy_last.npz
    curve.png         drawn by the command line

Files are written beside their place and moved into it, so each is whole or not there. A line of metrics is written
before its checkpoint: lines past the checkpoint belong to an iteration that will be done again.
"""

import contextlib
import hashlib
import json
import math
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nestbed.model.system import BaseSystem
from nestbed.numerics import storage
from nestbed.numerics.errors import NestbedError, at_least_one
from nestbed.runs import fingerprint
from nestbed.runs.run import BEST, LAST, Log, Run, digest, of_start, provenance
from nestbed.training import registry, toml
from nestbed.training.config import POLICY_KINDS, Config, PolicyConfig
from nestbed.training.trainer import Metrics, Trained, TrainingState

CHECKPOINT, BEFORE = "checkpoint.npz", "checkpoint_before.npz"
POLICIES = LAST, BEST
METRICS, ABOUT, CONFIG = "metrics.jsonl", "run.json", "config.toml"
CURVE, DAMAGED = "curve.png", "checkpoint_damaged.npz"
FILES = (CHECKPOINT, BEFORE, *POLICIES, METRICS, ABOUT, CONFIG, CURVE, DAMAGED)
LARGEST = {METRICS: 2**28, ABOUT: 2**20, CONFIG: 2**16}
"""Bytes that a file may hold at most; half a million iterations in the case of the metrics."""
FIRST_METHOD = "score_climbing"
"""What runs were trained by before there were several methods."""
LONGEST = 200
"""Characters of a system's name."""
NATS = 1e12
"""More than this is no gain."""


def load_run(folder: str | os.PathLike[str], system: BaseSystem | None = None) -> Run:
    """Read a run; one of your own systems must be given, since a folder holds data and no code."""
    return load(Path(folder), system)[0]


def load(place: Path, system: BaseSystem | None) -> tuple[Run, str]:
    """Return a folder's run and the name of the checkpoint that it was read from."""
    check_files(place)
    about, config = read_about(place), load_config(place)
    system = fingerprint.same_system(place, about["system"], system)
    template, mark = _template(place, system, config), _mark(about, config)
    state, source = _read_checkpoint(place, template, mark, outdated(about, system, config))
    done, rows = int(state.iteration), read_metrics(place)
    if not 0 <= done < len(rows):
        raise NestbedError(f"{place / METRICS} lacks iterations that the checkpoint has done; restore it from a copy.")
    key = jax.random.wrap_key_data(jnp.array(about["key"], jnp.uint32), impl="threefry2x32")
    return Run(config, rows[: done + 1], about, system, key, state), source


def outdated(about: dict[str, Any], system: BaseSystem, config: Config) -> bool:
    """Return whether a run was begun with other sources than these."""
    return bool(about.get("sources") != digest(system, config))


def _template(place: Path, system: BaseSystem, config: Config) -> TrainingState:
    """Return the shapes and types of a run's state, or say that its settings cannot be meant."""
    try:
        return registry.trainer(system, config).template()
    except NestbedError:
        raise
    except (ArithmeticError, MemoryError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise NestbedError(f"the settings in {place / CONFIG} cannot be meant: {reason}; restore them.") from None


def load_log(folder: str | os.PathLike[str]) -> Log:
    """Read how a run went, without its policies, so without its system."""
    place = Path(folder)
    check_files(place)
    return Log(load_config(place), read_metrics(place), read_about(place))


def check_files(folder: Path) -> None:
    """Raise if one of a run's files is a link, a pipe or a folder: a run must not reach out of its folder."""
    with _reading(folder):
        for name in FILES:
            storage.plain(folder / name)


@contextlib.contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Turn what the system refuses into a sentence."""
    try:
        yield
    except OSError as error:
        raise NestbedError(f"cannot read {file}: {error.strerror}.") from None


def within(folder: Path) -> list[Path]:
    """Return the run folders that a folder stands for: itself, or the seeds it holds."""
    if not any_within(folder):
        if os.path.lexists(folder / ABOUT):
            raise NestbedError(f"the run in {folder} stopped before its first iteration; resume it.", topic="resume")
        raise NestbedError(f"there is no run in {folder}: it has no {ABOUT}, and no seed_… folder that has one.")
    return [folder] if holds_run(folder) else _seeds(folder)


def any_within(folder: Path) -> bool:
    """Return whether a folder is a run or holds seeds."""
    return holds_run(folder) or bool(_seeds(folder))


def load_seed(folder: Path) -> int:
    """Read the seed that a run's key was made from."""
    return int(read_about(folder)["key"][-1])


def _seeds(folder: Path) -> list[Path]:
    with _reading(folder):
        places = [storage.unlinked(folder, place.name) for place in folder.glob("seed_*") if holds_run(place)]
    return sorted(places, key=lambda place: (len(place.name), place.name))


def load_policy(file: str | os.PathLike[str], system: BaseSystem | None = None) -> Trained:
    """Read one policy from `policy_best.npz` or `policy_last.npz`."""
    place = Path(file)
    if not os.path.lexists(place) or os.path.isdir(place):
        hint = "it is a folder, which nb.load_run reads" if os.path.isdir(place) else "there is no such file"
        raise NestbedError(f"cannot read the policy {place}: {hint}.")
    try:
        about = storage.parse_json(str(storage.read(place, {"about": 4 * LARGEST[ABOUT]})["about"]))
        system = fingerprint.same_system(place, _described(about["system"]), system)
        kind = POLICY_KINDS[about.get("kind", PolicyConfig.kind)]
        unscaled = {"scaled": False} if kind is PolicyConfig else {}  # of runs before there was a choice
        sizes = kind(**{**unscaled, **about["policy"]})
        sizes.check()
        horizon = about.get("horizon")
        if horizon is not None:
            at_least_one(horizon=horizon)
        template = eqx.filter_eval_shape(lambda: sizes.make(jax.random.key(0), system, horizon))
        return storage.unpack(template, storage.read(place, storage.sizes(template)))
    except storage.DAMAGES as error:
        if isinstance(error, NestbedError):
            raise
        raise NestbedError(f"{place} is not a policy that nestbed can read: {error}.") from None


def begin(folder: Path, key: jax.Array, system: BaseSystem, config: Config, start: Any = None) -> None:
    """Write what does not change while a run goes on, and no metrics yet."""
    with storage.saving(folder):
        _write_fixed(folder, config, provenance(key, system, config, start))
        storage.write(folder / METRICS, b"")


def record(run: Run, folder: Path) -> None:
    """Write the last iteration."""
    with storage.saving(folder):
        storage.append(folder / METRICS, _line(run.metrics[-1]).encode())
        _write_checkpoint(run, folder)
        _write_policies(run, folder)


def save(run: Run, folder: Path) -> Path:
    """Write a whole run to a folder that holds none."""
    place = storage.writable(folder)
    check_files(place)
    if (place / ABOUT).exists():
        raise NestbedError(f"the folder {place} holds a run already; choose another.")
    rewind(run, place)
    with storage.saving(place):
        _write_checkpoint(run, place)
    return place


def rewind(run: Run, folder: Path) -> None:
    """Make all files but the checkpoint those of this run, without any line of metrics after it."""
    with storage.saving(folder):
        _write_fixed(folder, run.config, run.about)
        storage.write(folder / METRICS, "".join(_line(row) for row in run.metrics).encode())
        _write_policies(run, folder)


def _write_fixed(folder: Path, config: Config, about: dict[str, Any]) -> None:
    storage.write(folder / CONFIG, toml.written(config).encode())
    storage.write(folder / ABOUT, (json.dumps(about, indent=2, ensure_ascii=False) + "\n").encode())


def check_start(folder: Path, start: Any) -> None:
    """Raise if a run that goes on did not begin with these inputs; once it has begun, none need be given."""
    if not os.path.lexists(folder / ABOUT):
        return
    began = read_about(folder).get("start")
    if began == of_start(start) or (start is None and holds_run(folder)):
        return
    given = "inputs that were given" if began else "no inputs, or others"
    raise NestbedError(f"the run in {folder} began with {given}; go on with the same, or choose another folder.")


def holds_run(folder: Path) -> bool:
    """Return whether a run was begun in the folder and has got as far as its first estimate."""
    files = [folder / name for name in (METRICS, CHECKPOINT, BEFORE)]
    return os.path.lexists(folder / ABOUT) and any(os.path.lexists(file) and os.lstat(file).st_size for file in files)


def _write_checkpoint(run: Run, folder: Path) -> None:
    mark = np.array(_mark(run.about, run.config))
    storage.write(folder / CHECKPOINT, storage.npz({"run": mark, **storage.pack(run.state)}), before=folder / BEFORE)


def _mark(about: dict[str, Any], config: Config) -> str:
    """Return what ties a checkpoint to its run: the key and all settings but the number of iterations."""
    settings = {name: value for name, value in config.plain().items() if name != "iterations"}
    return hashlib.sha256(json.dumps([about["key"], settings], sort_keys=True).encode()).hexdigest()[:HEX]


HEX = 16
"""Digits of a mark."""


def _write_policies(run: Run, folder: Path) -> None:
    sizes = run.config.sizes
    facts = {
        "system": run.about["system"],
        "kind": sizes.kind,
        "policy": sizes.plain(),
        "horizon": run.config.horizon,
    }
    about = np.array(json.dumps(facts))
    for name, policy in zip(POLICIES, (run.policy, run.best), strict=True):
        storage.write(folder / name, storage.npz({"about": about, **storage.pack(policy)}))


def _read_checkpoint(folder: Path, template: TrainingState, mark: str, outdated: bool) -> tuple[TrainingState, str]:
    """Return the newest whole checkpoint and its name."""
    found = [folder / name for name in (CHECKPOINT, BEFORE) if os.path.lexists(folder / name)]
    wanted = {"run": HEX * np.dtype("U1").itemsize, **storage.sizes(template)}
    for file in found:
        try:
            arrays = storage.read(file, wanted)
            state: TrainingState = storage.unpack(template, arrays)
            foreign = str(arrays["run"]) != mark
        except storage.DAMAGES:
            continue
        if foreign:
            raise NestbedError(
                f"{file} is of another run, or the settings or the key beside it were changed by hand; restore them."
            )
        if file != found[0]:
            warnings.warn(
                f"{found[0]} is damaged, so the checkpoint before it is used, of iteration {int(state.iteration)}.",
                stacklevel=3,
            )
        return state, file.name
    if not found:
        raise NestbedError(f"the run in {folder} has no {CHECKPOINT}; restore it from a copy, or train elsewhere.")
    if outdated:
        raise NestbedError(
            f"the checkpoints in {folder} were written by another version of nestbed, and this one cannot read them; "
            "take policy_last.npz with nb.load_policy, or train again in another folder."
        )
    raise NestbedError(
        f"no checkpoint in {folder} can be read: {' and '.join(file.name for file in found)} damaged; restore one from "
        "a copy, or take policy_last.npz with nb.load_policy, or train again in another folder."
    )


def read_about(folder: Path) -> dict[str, Any]:
    """Read what a run hangs on besides its configuration."""
    file = folder / ABOUT
    try:
        return _about(storage.read_json(file, LARGEST[ABOUT]))
    except FileNotFoundError:
        inside = ", ".join(place.name for place in _seeds(folder))
        hint = f"; it holds {inside}, of which one can be given" if inside else ""
        raise NestbedError(f"there is no run in {folder}: it has no {ABOUT}{hint}.") from None
    except OSError as error:
        raise NestbedError(f"cannot read {file}: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, NestbedError):
            raise
        raise NestbedError(f"{file} is damaged; restore it from a copy.") from None


def _about(found: Any) -> dict[str, Any]:
    """Return what a run hangs on, if it is such a thing."""
    _described(found["system"])
    key = found["key"]
    if type(key) is not list or len(key) != 2 or not all(type(word) is int and 0 <= word < 2**32 for word in key):
        raise ValueError("the key is not two whole numbers of 32 bits")
    json.dumps(found, ensure_ascii=False).encode()  # it will be written again
    return found


def _described(system: Any) -> dict[str, Any]:
    """Return a system's description, if it is one: its name will be shown, its settings compared."""
    name = system["name"]
    if not str.isidentifier(name) or len(name) > LONGEST or type(system["settings"]) is not dict:
        raise ValueError("the system has no name or no settings")
    fingerprint.check(system)
    return system


def load_config(folder: Path) -> Config:
    """Read the settings of a run; files from before there were several methods name none."""
    file = folder / CONFIG
    try:
        stored = toml.parse(storage.read_bytes(file, LARGEST[CONFIG]), file)
    except OSError as error:
        raise NestbedError(f"cannot read the configuration {file}: {error.strerror}.") from None
    config = registry.config(stored.get("method", FIRST_METHOD)).updated(stored)
    config.check()
    return config


def read_metrics(folder: Path) -> list[Metrics]:
    """Return the whole lines; the last one may be torn."""
    file = folder / METRICS
    try:
        lines = storage.read_bytes(file, LARGEST[METRICS]).splitlines()
    except OSError:
        raise NestbedError(f"the run in {folder} has no {METRICS}; restore it from a copy.") from None
    rows: list[Metrics] = []
    for line in lines:
        try:
            rows.append(_row(line, len(rows)))
        except (ValueError, TypeError, KeyError, OverflowError):
            if len(rows) < len(lines) - 1:
                raise NestbedError(f"line {len(rows) + 1} of {file} is damaged; restore it from a copy.") from None
    if not rows:
        raise NestbedError(f"the run in {folder} stopped before its first iteration; resume it.", topic="resume")
    return rows


def _row(line: bytes, iteration: int) -> Metrics:
    """Return one line of metrics, if it is that of the iteration: numbers by name, or nothing where there is none."""
    row: Metrics = storage.parse_json(line)
    if type(row) is not dict or {type(value) for value in row.values()} - {int, float, type(None)}:
        raise ValueError("there are other things than numbers")
    numbers = {name: math.nan if value is None else float(value) for name, value in row.items()}
    if row["iteration"] != iteration or not abs(numbers["eig"]) < NATS or not numbers["seconds"] >= 0.0:
        raise ValueError("it is another iteration, or one without a gain or a time")
    if row["eig_error"] is not None and not 0.0 <= numbers["eig_error"] < NATS:
        raise ValueError("the gain has no such error")
    return row


def _line(row: Metrics) -> str:
    return json.dumps({name: None if value != value else value for name, value in row.items()}) + "\n"
