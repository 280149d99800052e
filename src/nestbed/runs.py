"""Run directories: configuration, metrics, checkpoints and policies, all plain data. Loading one never runs code.

    config.toml      the full configuration, ready to be used again
    run.json         system, key, versions
    metrics.jsonl    one line per iteration
    checkpoint.npz   all that training carries; checkpoint_before.npz is the one before it
    policy_best.npz, policy_last.npz
    curve.png

Files are written beside their place and moved into it, so each is whole or not there. A line of metrics is written
before its checkpoint: lines past the checkpoint belong to an iteration that will be done again.
"""

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nestbed import published, sources, storage, systems
from nestbed.errors import NestbedError, at_least_one
from nestbed.evaluation.eig import cores
from nestbed.evaluation.intervals import chance_above
from nestbed.fingerprint import check, describe, same, same_system
from nestbed.policies.recurrent import Recurrent
from nestbed.system import BaseSystem
from nestbed.training.config import IDADConfig, TrainConfig, named, parse
from nestbed.training.methods import trainer
from nestbed.training.trainer import Metrics, Progressed

CHECKPOINT, BEFORE = "checkpoint.npz", "checkpoint_before.npz"
POLICIES = "policy_last.npz", "policy_best.npz"
METRICS, ABOUT, CONFIG = "metrics.jsonl", "run.json", "config.toml"
CURVE, DAMAGED = "curve.png", "checkpoint_damaged.npz"
FILES = (CHECKPOINT, BEFORE, *POLICIES, METRICS, ABOUT, CONFIG, CURVE, DAMAGED)
MOST = {METRICS: 2**28, ABOUT: 2**20, CONFIG: 2**16}
"""Bytes that a file may hold at most; half a million iterations in the case of the metrics."""
LONGEST = 200
"""Characters of a system's name."""
NATS = 1e12
"""More than this is no gain."""
PACKAGES = ("nestbed", "jax", "jaxlib", "equinox", "optax", "numpyro", "numpy")


@dataclasses.dataclass(frozen=True)
class Log:
    """How a run was set up and how it went."""

    config: TrainConfig | IDADConfig
    metrics: list[Metrics] = dataclasses.field(repr=False)
    about: dict[str, Any] = dataclasses.field(repr=False)

    @property
    def iteration(self) -> int:
        """How many iterations are done."""
        return int(self.metrics[-1]["iteration"])

    @property
    def seed(self) -> int:
        """The seed that the key was made from, if it was made by jax.random.key(seed)."""
        return int(self.about["key"][-1])

    @property
    def finished(self) -> bool:
        """Whether all iterations are done."""
        return self.iteration >= self.config.iterations

    @property
    def title(self) -> str:
        """What was trained, in a line or two."""
        return f"{self.about['system']['name']}: {self.config.headline}"

    @property
    def verdict(self) -> str | None:
        """What to know of a training that made its policy worse; None if no error says so."""
        last, best, start = self.metrics[-1], max(self.metrics, key=lambda row: row["eig"]), self.metrics[0]
        if self._below(last, start, 1):
            told = f"the training made the policy worse: {_gained(last)}, but {_gained(start)}"
        elif self._below(last, best, len(self.metrics)):
            told = f"the last policy is not the best: {_gained(last)}, from {_gained(start)}"
        else:
            return None
        kept = f"the best was {_gained(best)}, which is kept as {POLICIES[1]} (run.best)"
        return f"{told}; {kept}; try {self.config.remedies}, and compare it with baselines."

    def _below(self, row: Metrics, other: Metrics, among: int) -> bool:
        """Return whether one iteration gained less than another, chosen from so many, by more than the errors allow."""
        size = self.config.trajectories
        errors = [(math.nan if r.get("eig_error") is None else r["eig_error"], size) for r in (other, row)]
        return chance_above(other["eig"] - row["eig"], *errors) > 1.0 - 0.025 / among

    def published(self) -> np.ndarray | None:
        """Return the paper's learning curve, if it was made with this run's system and settings."""
        name, belief = self.about["system"]["name"], self.config.belief
        if name not in systems.CATALOGUE or not same(self.about["system"], systems.load(name)):
            return None
        own = TrainConfig(belief=belief, iterations=self.config.iterations).resolve(systems.load(name))
        return published.training_curve(name, belief) if own == self.config else None


@dataclasses.dataclass(frozen=True)
class Run(Log):
    """A training run with the policies it has learned so far, and all that is needed to go on."""

    system: BaseSystem
    key: jax.Array
    state: Progressed = dataclasses.field(repr=False)

    @property
    def policy(self) -> Recurrent:
        """The policy after the last iteration; `.mean()` is its mean policy."""
        return self.state.policy

    @property
    def best(self) -> Recurrent:
        """The policy of the iteration whose estimated gain was highest: chosen by a noisy estimate."""
        return self.state.best

    def after(self, state: Progressed, row: Metrics) -> "Run":
        """Return the run with one more iteration done."""
        return dataclasses.replace(self, state=state, metrics=[*self.metrics, row])

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the run to a folder, from which `nb.load_run` reads it and training can go on."""
        place = storage.writable(Path(folder))
        check_files(place)
        if (place / ABOUT).exists():
            raise NestbedError(f"the folder {place} holds a run already; choose another.")
        rewind(self, place)
        with storage.saving(place):
            _write_checkpoint(self, place)
            figure(self, place)
        return place


def _gained(row: Metrics) -> str:
    """Return what the policy of one iteration gained."""
    when = f"after iteration {row['iteration']}" if row["iteration"] else "untrained"
    return f"{row['eig']:.2f} ± {row['eig_error']:.2f} nats {when}"


def fresh(key: jax.Array, system: BaseSystem, config: TrainConfig | IDADConfig, state: Progressed, row: Metrics) -> Run:
    """Return a run that has just begun."""
    return Run(config, [row], provenance(key, system), system, key, state)


def versions() -> dict[str, str]:
    """Return the versions of all that numbers hang on."""
    return {name: importlib.metadata.version(name) for name in PACKAGES}


def provenance(key: jax.Array, system: BaseSystem) -> dict[str, Any]:
    """Return what a run's numbers hang on besides its configuration."""
    device = jax.devices()[0]
    return {
        "system": describe(system),
        "key": np.asarray(jax.random.key_data(key)).tolist(),
        "versions": versions(),
        "sources": sources.training(type(system)),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "device": f"{device.platform} ({device.device_kind})",
        "cores": cores(),
        "precision": "filters float64, networks float32",
    }


def load_run(folder: str | os.PathLike[str], system: BaseSystem | None = None) -> Run:
    """Read a run; one of your own systems must be given, since a folder holds data and no code."""
    return _load(Path(folder), system)[0]


def _load(place: Path, system: BaseSystem | None) -> tuple[Run, str]:
    """Return a folder's run and the name of the checkpoint that it was read from."""
    check_files(place)
    about, config = _read_about(place), load_config(place)
    system = same_system(place, about["system"], system)
    state, source = _read_checkpoint(place, _template(place, system, config), _mark(about, config))
    done, rows = int(state.iteration), _read_metrics(place)
    if not 0 <= done < len(rows):
        raise NestbedError(f"{place / METRICS} lacks iterations that the checkpoint has done; restore it from a copy.")
    key = jax.random.wrap_key_data(jnp.array(about["key"], jnp.uint32), impl="threefry2x32")
    return Run(config, rows[: done + 1], about, system, key, state), source


def _template(place: Path, system: BaseSystem, config: TrainConfig | IDADConfig) -> Progressed:
    """Return the shapes and types of a run's state, or say that its settings cannot be meant."""
    try:
        return trainer(system, config).template()
    except NestbedError:
        raise
    except (ArithmeticError, MemoryError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise NestbedError(f"the settings in {place / CONFIG} cannot be meant: {reason}; restore them.") from None


def load_log(folder: str | os.PathLike[str]) -> Log:
    """Read how a run went, without its policies, so without its system."""
    place = Path(folder)
    check_files(place)
    return Log(load_config(place), _read_metrics(place), _read_about(place))


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
        raise NestbedError(f"there is no run in {folder}: it has no {ABOUT}, and no seed_… folder that has one.")
    return [folder] if holds_run(folder) else _seeds(folder)


def any_within(folder: Path) -> bool:
    """Return whether a folder is a run or holds seeds."""
    return holds_run(folder) or bool(_seeds(folder))


def load_seed(folder: Path) -> int:
    """Read the seed that a run's key was made from."""
    return int(_read_about(folder)["key"][-1])


def _seeds(folder: Path) -> list[Path]:
    with _reading(folder):
        places = [storage.unlinked(folder, place.name) for place in folder.glob("seed_*") if holds_run(place)]
    return sorted(places, key=lambda place: (len(place.name), place.name))


def load_policy(file: str | os.PathLike[str], system: BaseSystem | None = None) -> Recurrent:
    """Read one policy from `policy_best.npz` or `policy_last.npz`."""
    place = Path(file)
    if not os.path.lexists(place) or os.path.isdir(place):
        hint = "it is a folder, which nb.load_run reads" if os.path.isdir(place) else "there is no such file"
        raise NestbedError(f"cannot read the policy {place}: {hint}.")
    try:
        about = storage.parse_json(str(storage.read(place, {"about": 4 * MOST[ABOUT]})["about"]))
        system = same_system(place, _described(about["system"]), system)
        sizes = TrainConfig().updated({"policy": about["policy"]}).policy
        sizes.check()
        horizon = about.get("horizon")
        if horizon is not None:
            at_least_one(horizon=horizon)
        template = eqx.filter_eval_shape(
            lambda: Recurrent(jax.random.key(0), system, **vars(sizes), trained_for=horizon)
        )
        return storage.unpack(template, storage.read(place, storage.sizes(template)))
    except storage.DAMAGES as error:
        if isinstance(error, NestbedError):
            raise
        raise NestbedError(f"{place} is not a policy that nestbed can read: {error}.") from None


def begin(folder: Path, key: jax.Array, system: BaseSystem, config: TrainConfig | IDADConfig) -> None:
    """Write what does not change while a run goes on, and no metrics yet."""
    with storage.saving(folder):
        _write_fixed(folder, config, provenance(key, system))
        storage.write(folder / METRICS, b"")


def record(run: Run, folder: Path) -> None:
    """Write the last iteration."""
    with storage.saving(folder):
        storage.append(folder / METRICS, _line(run.metrics[-1]).encode())
        _write_checkpoint(run, folder)
        _write_policies(run, folder)


def rewind(run: Run, folder: Path) -> None:
    """Make all files but the checkpoint those of this run, without any line of metrics after it."""
    with storage.saving(folder):
        _write_fixed(folder, run.config, run.about)
        storage.write(folder / METRICS, "".join(_line(row) for row in run.metrics).encode())
        _write_policies(run, folder)


def _write_fixed(folder: Path, config: TrainConfig | IDADConfig, about: dict[str, Any]) -> None:
    storage.write(folder / CONFIG, config.toml().encode())
    storage.write(folder / ABOUT, (json.dumps(about, indent=2, ensure_ascii=False) + "\n").encode())


def figure(run: Run, folder: Path) -> None:
    """Draw the learning curve."""
    from nestbed import figures

    figures.learning_curve([run], folder / CURVE, run.title)


def resumable(folder: Path, system: BaseSystem, config: TrainConfig | IDADConfig, key: jax.Array) -> Run | None:
    """Return the folder's run to go on with, None if it stopped before its first checkpoint; others are refused."""
    check_files(folder)
    about, stored = _read_about(folder), load_config(folder)
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
    if _outdated(about, system):
        warnings.warn(
            f"the run in {folder} was begun with other sources of nestbed, so what is resumed here is no longer the "
            "result of a run never stopped; for that, train in another folder.",
            stacklevel=4,
        )
    never = not any(os.path.lexists(folder / name) for name in (CHECKPOINT, BEFORE, *POLICIES))
    if never and len(_read_metrics(folder)) == 1:
        return None
    run, source = _load(folder, system)
    run = dataclasses.replace(run, config=config)
    if source != CHECKPOINT and os.path.lexists(folder / CHECKPOINT):  # it must not take the place of the one before it
        with storage.saving(folder):
            os.replace(folder / CHECKPOINT, folder / DAMAGED)
    rewind(run, folder)
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
    if not holds_run(folder) or not _outdated(_read_about(folder), system):
        return
    with storage.locked(folder), storage.saving(folder):
        aside = folder.with_name(f".{folder.name}.outdated")
        shutil.rmtree(aside, ignore_errors=True)
        os.replace(folder, aside)  # at once: half a folder would be taken for a run
        shutil.rmtree(aside)


def _outdated(about: dict[str, Any], system: BaseSystem) -> bool:
    """Return whether a run was begun with other sources than these."""
    return bool(about.get("sources") != sources.training(type(system)))


def holds_run(folder: Path) -> bool:
    """Return whether a run was begun in the folder and has got as far as its first score."""
    files = [folder / name for name in (METRICS, CHECKPOINT, BEFORE)]
    return os.path.lexists(folder / ABOUT) and any(os.path.lexists(file) and os.lstat(file).st_size for file in files)


def _write_checkpoint(run: Run, folder: Path) -> None:
    mark = np.array(_mark(run.about, run.config))
    storage.write(folder / CHECKPOINT, storage.npz({"run": mark, **storage.pack(run.state)}), before=folder / BEFORE)


def _mark(about: dict[str, Any], config: TrainConfig | IDADConfig) -> str:
    """Return what ties a checkpoint to its run: the key and all settings but the number of iterations."""
    settings = {name: value for name, value in config.plain().items() if name != "iterations"}
    return hashlib.sha256(json.dumps([about["key"], settings], sort_keys=True).encode()).hexdigest()[:HEX]


HEX = 16
"""Digits of a mark."""


def _write_policies(run: Run, folder: Path) -> None:
    about = np.array(
        json.dumps(
            {"system": run.about["system"], "policy": run.config.plain()["policy"], "horizon": run.config.horizon}
        )
    )
    for name, policy in zip(POLICIES, (run.policy, run.best), strict=True):
        storage.write(folder / name, storage.npz({"about": about, **storage.pack(policy)}))


def _read_checkpoint(folder: Path, template: Progressed, mark: str) -> tuple[Progressed, str]:
    """Return the newest whole checkpoint and its name."""
    found = [folder / name for name in (CHECKPOINT, BEFORE) if os.path.lexists(folder / name)]
    wanted = {"run": HEX * np.dtype("U1").itemsize, **storage.sizes(template)}
    for file in found:
        try:
            arrays = storage.read(file, wanted)
            state: Progressed = storage.unpack(template, arrays)
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
    raise NestbedError(
        f"no checkpoint in {folder} can be read: {' and '.join(file.name for file in found)} damaged; restore one from "
        "a copy, or take policy_last.npz with nb.load_policy, or train again in another folder."
    )


def _read_about(folder: Path) -> dict[str, Any]:
    file = folder / ABOUT
    try:
        return _about(storage.read_json(file, MOST[ABOUT]))
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
    check(system)
    return system


def load_config(folder: Path) -> TrainConfig | IDADConfig:
    """Read the settings of a run; files from before there were several methods name none."""
    file = folder / CONFIG
    try:
        stored = parse(storage.read_bytes(file, MOST[CONFIG]), file)
    except OSError as error:
        raise NestbedError(f"cannot read the configuration {file}: {error.strerror}.") from None
    config = named(stored.get("method", TrainConfig.method)).updated(stored)
    config.check()
    return config


def _read_metrics(folder: Path) -> list[Metrics]:
    """Return the whole lines; the last one may be torn."""
    file = folder / METRICS
    try:
        lines = storage.read_bytes(file, MOST[METRICS]).splitlines()
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
        raise NestbedError(f"the run in {folder} stopped before its first iteration; continue it with --resume.")
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
