"""Policies to evaluate: from folders of runs, from policy files, or baselines by name."""

import contextlib
import difflib
import os
from pathlib import Path
from typing import NamedTuple

from nestbed.model.system import BaseSystem
from nestbed.numerics.errors import NestbedError
from nestbed.planning.plan import FACTS, load_plan, read_inputs
from nestbed.policies.base import Policy
from nestbed.policies.feedback import Feedback
from nestbed.policies.registry import BASELINES, baseline
from nestbed.policies.replan import Replan
from nestbed.policies.signals import Replay
from nestbed.runs import folder as folders
from nestbed.runs.run import LAST
from nestbed.systems import SYSTEMS, load, name_of
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
    if _planned(place):
        if model is None and not place.is_dir():
            raise NestbedError(f"the inputs in {place} need a system; add --system, such as --system cart_pole.")
        return _plan(place.name, place, model, system)
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
        f"there is no {source}{hint}: give the folder of a run or a plan, a policy file such as {LAST}, inputs (.csv) "
        f"or a baseline with --system: {', '.join(BASELINES)}."
    )


def live(source: str, system: str | None, horizon: int | None) -> Candidate:
    """Return what chooses designs on a rig: a policy as above, or, for a system, plans made anew at every step."""
    if system is None and (source in SYSTEMS or ":" in source) and not Path(source).exists():
        model = load(source)
        length = model.horizon if horizon is None else horizon
        return Candidate(source, Replan(model, horizon=length), model, source, length)
    found = policy(source, system, horizon)
    return found if horizon is None else found._replace(horizon=horizon)


def trained(places: list[Path], system: BaseSystem) -> dict[str, Candidate]:
    """Return the policies of run folders and policy files, named as shortly as can be."""
    every = list(dict.fromkeys(one for place in places for one in _each(place)))
    short = [_short(place) for place in every]
    clear = len({*short}) == len(short) and not {*short} & {*BASELINES}
    names = short if clear else [str(place) if place.parent.name else f"./{place}" for place in every]
    return {name: _trained(name, place, system, None) for name, place in zip(names, every, strict=True)}


def inputs(place: Path, system: BaseSystem) -> Policy:
    """Return the inputs of a plan's folder or of a CSV file."""
    if not _planned(place):
        raise NestbedError(f"{place} holds no inputs: give the folder of a plan, or CSV with a column per design.")
    return _plan(place.name, place, system, None).policy


def _each(place: Path) -> list[Path]:
    """Return the place itself, or the runs that a folder holds."""
    return [place] if _is_file(place) or _planned(place) else folders.within(place)


def _planned(place: Path) -> bool:
    """Return whether a place is the folder of a plan, or a file of inputs."""
    return (place / FACTS).is_file() if place.is_dir() else place.suffix == ".csv"


def _plan(name: str, place: Path, system: BaseSystem | None, title: str | None) -> Candidate:
    """Return the inputs of a plan's folder or of a CSV file as a policy."""
    if place.is_dir():
        plan = load_plan(place, system)
        return Candidate(name, plan.policy, plan.system, title or name_of(plan.system), plan.horizon)
    assert system is not None
    inputs = read_inputs(place, system)
    return Candidate(name, Replay(system, inputs), system, title or name_of(system), len(inputs))


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
    """Return the mean policy of a run's folder after its last iteration, that of a policy file, or given inputs."""
    if _planned(place):
        return _plan(name, place, system, title)
    if place.is_dir():
        folders.check_files(place)
        config: Config | None = folders.load_config(place)
        learned = folders.load_policy(place / LAST, system)
    else:
        config, learned = _beside(place), folders.load_policy(place, system)
    horizon, budget = (None, "") if config is None else (config.horizon, config.budget)
    given = learned if isinstance(learned, Feedback) else learned.mean()  # which has the noise that it won with
    return Candidate(name, given, learned.system, title or name_of(learned.system), horizon, budget)


def _beside(file: Path) -> Config | None:
    """Return the settings of the run whose folder a policy file lies in, None if it lies elsewhere."""
    with contextlib.suppress(NestbedError):
        return folders.load_config(file.parent) if folders.holds_run(file.parent) else None
    return None
