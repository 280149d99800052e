"""What an evaluation was asked for: which policies, from files or by name, and with which settings."""

import contextlib
import math
import os
from pathlib import Path
from typing import Any, NamedTuple

from nestbed import systems
from nestbed.evaluation.comparison import Score, Spread
from nestbed.model.system import BaseSystem
from nestbed.numerics.errors import NestbedError, at_least_one, at_least_zero, seed_from
from nestbed.policies.baselines import BASELINES, baseline
from nestbed.runs import folder as folders
from nestbed.training.config import IDADConfig, TrainConfig


class Settings(NamedTuple):
    """How policies are scored."""

    seeds: int
    trajectories: int
    particles: int
    moves: int
    belief: str
    horizon: int
    contrastive: int  # 0: no bounds
    seed: int

    def checked(self) -> "Settings":
        """Return them, or say which one is not possible."""
        at_least_one(**{name: value for name, value in self._asdict().items() if name in COUNTS})
        at_least_zero(contrastive=self.contrastive)
        seed_from(self.seed)
        return self

    def of_comparison(self) -> dict[str, Any]:
        """Return them as `nb.compare` takes them."""
        given = {name: value for name, value in self._asdict().items() if name != "seed"}
        return {**given, "contrastive": self.contrastive or None}

    @property
    def told(self) -> str:
        """All of them in a line."""
        inner = f"M = {self.particles}, {self.moves} moves" if self.belief == "ibis" else "exact belief"
        draws = f", L = {self.contrastive:,}" if self.contrastive else ""
        return f"T = {self.horizon}, N = {self.trajectories}, {inner}{draws}, {self.seeds} seed{'s' * (self.seeds > 1)}"


COUNTS = ("seeds", "trajectories", "particles", "moves", "horizon")


class Found(NamedTuple):
    """A policy and the system it belongs to."""

    name: str
    policy: Any
    system: BaseSystem
    title: str  # the system's name
    horizon: int | None  # of its training, where that is known
    budget: str  # of its training, where that is to be told


def policy(source: str, system: str | None, horizon: int | None) -> Found:
    """Return the policy of a run's folder, of a policy file, or of a baseline's name for so many experiments."""
    model = None if system is None else systems.load(system)
    place = Path(source)
    if source in BASELINES and not place.exists():
        if model is None:
            raise NestbedError(f"the baseline {source!r} needs a system; add --system, such as --system cart_pole.")
        return Found(source, baseline(source, model, horizon), model, str(system), None, "")
    if place.is_dir():
        inside = folders.within(place)
        if len(inside) > 1:
            names = ", ".join(found.name for found in inside)
            raise NestbedError(f"{place} holds several runs: {names}; give one, or `nestbed compare` them all.")
        return _trained(place.resolve().name, inside[0], model, system)
    if place.exists():
        return _trained(str(place), place, model, system)
    known = ", ".join(BASELINES)
    raise NestbedError(
        f"there is no {source}: give the folder of a run, a policy file such as policy_last.npz, or a baseline with "
        f"--system: {known}."
    )


def trained(places: list[Path], system: BaseSystem) -> dict[str, Found]:
    """Return the policies of run folders and policy files, named as shortly as can be."""
    found = [one for place in places for one in ([place] if _is_file(place) else folders.within(place))]
    found = list(dict.fromkeys(found))
    short = [_short(place) for place in found]
    clear = len({*short}) == len(short) and not {*short} & {*BASELINES}
    names = short if clear else [str(place) if place.parent.name else f"./{place}" for place in found]
    return {name: _trained(name, place, system, None) for name, place in zip(names, found, strict=True)}


def _is_file(place: Path) -> bool:
    return place.is_file() or (place.suffix == ".npz" and not place.is_dir())


def _short(place: Path) -> str:
    """Return the last parts of a path that tell it apart: of a file also its run, of a seed also its training."""
    parts = Path(os.path.abspath(place)).parts
    count = 2 if _is_file(place) else 1
    if len(parts) > count and parts[-count].startswith("seed_"):
        count += 1
    return "/".join(parts[-count:])


def _trained(name: str, place: Path, system: BaseSystem | None, title: str | None) -> Found:
    """Return the mean policy of a run's folder after its last iteration, or that of a policy file."""
    if place.is_dir():
        made = folders.load_run(place, system).policy
        config: TrainConfig | IDADConfig | None = folders.load_config(place)
    else:
        made, config = folders.load_policy(place, system), _beside(place)
    horizon, budget = (None, "") if config is None else (config.horizon, config.budget)
    return Found(name, made.mean(), made.system, _title(title, made.system), horizon, budget)


def _beside(file: Path) -> TrainConfig | IDADConfig | None:
    """Return the settings of the run whose folder a policy file lies in, None if it lies elsewhere."""
    with contextlib.suppress(NestbedError):
        return folders.load_config(file.parent) if folders.holds_run(file.parent) else None
    return None


def evaluated(score: Score, settings: Settings) -> list[tuple[str, Spread, str]]:
    """Return the estimate and the bounds, each with a word on what it is."""
    limit = f", ≤ log M = {math.log(settings.particles):.2f} a step" if settings.belief == "ibis" else ""
    rows = [("EIG", Spread(score.mean, score.sd, score.standard_error), f"estimate{limit}")]
    if score.spce is not None and score.snmc is not None:
        most = math.log1p(settings.contrastive)
        rows.append(("sPCE", score.spce, f"below, ≤ log(L + 1) = {most:.2f}"))
        rows.append(("sNMC", score.snmc, "above"))
    return rows


def _title(given: str | None, system: BaseSystem) -> str:
    known = [name for name, kind in systems.CATALOGUE.items() if kind is type(system)]
    return given or (known[0] if known else system.name)
