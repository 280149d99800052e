"""Policies to evaluate: from folders of runs, from policy files, or baselines by name."""

import contextlib
import difflib
import os
from pathlib import Path
from typing import NamedTuple

from nestbed.model.system import BaseSystem
from nestbed.numerics.errors import NestbedError
from nestbed.policies.base import Policy
from nestbed.policies.registry import BASELINES, baseline
from nestbed.runs import folder as folders
from nestbed.runs.run import LAST
from nestbed.systems import load, name_of
from nestbed.training.config import Config


class Candidate(NamedTuple):
    """A policy to evaluate, and the system it belongs to."""

    name: str
    policy: Policy
    system: BaseSystem
    title: str  # the system's name
    horizon: int | None = None  # of its training, where that is known
    budget: str = ""  # of its training, where there is something to tell


def policy(source: str, system: str | None, horizon: int | None) -> Candidate:
    """Return the policy of a run's folder, of a policy file, or of a baseline's name for so many experiments."""
    model = None if system is None else load(system)
    place = Path(source)
    if source in BASELINES and not place.exists():
        if model is None:
            raise NestbedError(f"the baseline {source!r} needs a system; add --system, such as --system cart_pole.")
        return Candidate(source, baseline(source, model, horizon), model, str(system))
    if place.is_dir():
        inside = folders.within(place)
        if len(inside) > 1:
            names = ", ".join(run.name for run in inside)
            raise NestbedError(f"{place} holds several runs: {names}; give one, or `nestbed compare` them all.")
        return _trained(place.resolve().name, inside[0], model, system)
    if place.exists():
        return _trained(str(place), place, model, system)
    close = difflib.get_close_matches(source, BASELINES, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise NestbedError(
        f"there is no {source}{hint}: give the folder of a run, a policy file such as {LAST}, or a baseline with "
        f"--system: {', '.join(BASELINES)}."
    )


def trained(places: list[Path], system: BaseSystem) -> dict[str, Candidate]:
    """Return the policies of run folders and policy files, named as shortly as can be."""
    every = [one for place in places for one in ([place] if _is_file(place) else folders.within(place))]
    every = list(dict.fromkeys(every))
    short = [_short(place) for place in every]
    clear = len({*short}) == len(short) and not {*short} & {*BASELINES}
    names = short if clear else [str(place) if place.parent.name else f"./{place}" for place in every]
    return {name: _trained(name, place, system, None) for name, place in zip(names, every, strict=True)}


def _is_file(place: Path) -> bool:
    return place.is_file() or (place.suffix == ".npz" and not place.is_dir())


def _short(place: Path) -> str:
    """Return the last parts of a path that tell it apart: of a file also its run, of a seed also its training."""
    parts = Path(os.path.abspath(place)).parts
    count = 2 if _is_file(place) else 1
    if len(parts) > count and parts[-count].startswith("seed_"):
        count += 1
    return "/".join(parts[-count:])


def _trained(name: str, place: Path, system: BaseSystem | None, title: str | None) -> Candidate:
    """Return the mean policy of a run's folder after its last iteration, or that of a policy file."""
    if place.is_dir():
        folders.check_files(place)
        config: Config | None = folders.load_config(place)
        learned = folders.load_policy(place / LAST, system)
    else:
        config, learned = _beside(place), folders.load_policy(place, system)
    horizon, budget = (None, "") if config is None else (config.horizon, config.budget)
    return Candidate(name, learned.mean(), learned.system, title or name_of(learned.system), horizon, budget)


def _beside(file: Path) -> Config | None:
    """Return the settings of the run whose folder a policy file lies in, None if it lies elsewhere."""
    with contextlib.suppress(NestbedError):
        return folders.load_config(file.parent) if folders.holds_run(file.parent) else None
    return None
