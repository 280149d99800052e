"""The cells of the reproduction: each a training, a score or a figure's data, computed by itself and kept as JSON."""

import dataclasses
import hashlib
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nestbed import policies, systems
from nestbed.belief import simplest
from nestbed.evaluation.comparison import Spread, compare, spread
from nestbed.evaluation.contrastive_bounds import spce
from nestbed.evaluation.eig import eig
from nestbed.likelihood.simulation import simulate
from nestbed.model.system import BaseSystem
from nestbed.numerics.errors import NestbedError
from nestbed.runs import fingerprint, sources
from nestbed.runs import folder as runs
from nestbed.runs.folder import Run
from nestbed.runs.train import train
from nestbed.training.config import IDADConfig, PolicyConfig, TrainConfig

SEED = 2024
TRAJECTORIES, MOVES, PARTICLES = 16, 3, 1024
PUBLISHED = ("random", "myopic", "prbs", "idad", "io_smc2", "io_smc2_exact")
"""The paper's policies, in the order of its tables."""
OTHERS = ("prbs_independent", "maximum_length", "chirp", "multisine", "greedy", "myopic_no_slew")
"""Policies that the paper does not have."""


@dataclasses.dataclass(frozen=True)
class Scale:
    """How large everything is."""

    name: str
    trainings: int  # policies trained with each method
    estimates: int  # seeds of every score
    contrastive: int
    realisations: int  # of the information gain in closed form
    particles: tuple[int, ...]  # of the sweep over particles
    others: bool  # whether the policies that the paper does not have are scored too
    training: TrainConfig
    idad: IDADConfig


FULL = Scale(
    "full",
    trainings=5,
    estimates=25,
    contrastive=1_000_000,
    realisations=1024,
    particles=(64, 128, 256, 512, 1024, 2048, 4096, 8192),
    others=True,
    training=TrainConfig(),
    idad=IDADConfig(),
)
_SMALL = PolicyConfig(encoder=(32,), recurrent=(16,), head=(32,))
QUICK = Scale(
    "quick",
    trainings=1,
    estimates=4,
    contrastive=10_000,
    realisations=128,
    particles=(64, 256),
    others=False,
    training=TrainConfig(iterations=4, trajectories=64, particles=64, batch=32, learning_rate=5e-3, policy=_SMALL),
    idad=IDADConfig(
        iterations=2,
        steps=10,
        batch=32,
        contrastive=63,
        trajectories=64,
        particles=64,
        policy=dataclasses.replace(_SMALL, cell="lstm"),
    ),
)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One piece of work, with all that decides its numbers and what it is expected to cost."""

    name: str  # such as cart_pole/prbs
    kind: str  # training, score, gain, trajectory or particles
    system: str
    policy: str
    cost: float  # seconds on two cores, roughly
    settings: dict[str, Any]
    compute: Callable[[Path], dict[str, Any]] = dataclasses.field(repr=False)
    seed: int | None = None  # of the training, if the policy was trained
    keeps: Path | None = None  # a run's folder that must still be there for the cell to count as done


def plan(names: tuple[str, ...], scale: Scale, trainings: int) -> list[Cell]:
    """Return the cells of some systems, each after those it needs."""
    cells = []
    for name in names:
        system = systems.load(name)
        trained = [(method, seed) for method in methods(name) for seed in range(_count(method, trainings))]
        cells += [_training(name, system, method, seed, scale) for method, seed in trained]
        fixed = [policy for policy in PUBLISHED + OTHERS if _scored(policy, system, scale)]
        cells += [_score(name, system, policy, None, scale) for policy in fixed]
        cells += [_score(name, system, method, seed, scale) for method, seed in trained]
        if name == "linear_pendulum":
            cells += [_gain(name, system, policy, None, scale) for policy in ("random", "prbs")]
            cells += [_gain(name, system, method, seed, scale) for method, seed in trained if method != "idad"]
        else:
            cells.append(_trajectory(name, system, scale))
        if name == "cart_pole":
            cells += [_particles(name, system, count, scale) for count in scale.particles]
    return cells


def methods(name: str) -> tuple[str, ...]:
    """Return how policies are trained for a system."""
    exact = ("io_smc2_exact",) if simplest(systems.load(name)) == "exact" else ()
    return ("io_smc2", *exact, "idad")


def training_folder(name: str, method: str, seed: int) -> Path:
    """Return where a training is kept, within the folder of the reproduction."""
    return Path("trainings") / f"{name}_{method}" / f"seed_{seed}"


def config(name: str, method: str, scale: Scale) -> TrainConfig | IDADConfig:
    """Return the settings of a training."""
    chosen: TrainConfig | IDADConfig = scale.idad if method == "idad" else scale.training
    if method == "io_smc2_exact":
        chosen = dataclasses.replace(scale.training, belief="exact")
    return chosen.resolve(systems.load(name))


def _count(method: str, trainings: int) -> int:
    return 1 if method == "idad" else trainings


def _scored(policy: str, system: BaseSystem, scale: Scale) -> bool:
    """Return whether an untrained policy has a cell of its own."""
    if policy not in policies.BASELINES and policy != "myopic_no_slew":
        return False
    if policy == "prbs_independent" and len(system.design_names) == 1:
        return False
    if policy == "myopic_no_slew" and system != systems.load("cart_pole"):
        return False
    return policy in PUBLISHED or scale.others


def _training(name: str, system: BaseSystem, method: str, seed: int, scale: Scale) -> Cell:
    settings = config(name, method, scale)

    def compute(folder: Path) -> dict[str, Any]:
        run = _trained(folder, name, system, method, seed, scale)
        spent = sum(row["seconds"] for row in run.metrics)
        return {"eig": run.metrics[-1]["eig"], "eig_error": run.metrics[-1]["eig_error"], "training_seconds": spent}

    cost = 150.0 if method == "idad" else _TRAINING_COSTS[name]
    told = {"seed": seed, "config": settings.plain()}
    cell = _cell(f"{name}/{method}/seed_{seed}/training", "training", name, method, cost, told, compute, seed)
    return dataclasses.replace(cell, keeps=training_folder(name, method, seed))


def _trained(folder: Path, name: str, system: BaseSystem, method: str, seed: int, scale: Scale) -> Run:
    """Return a finished training: the one that is kept, or what is missing of it."""
    place = folder / training_folder(name, method, seed)
    try:
        runs.discard_outdated(place, system)
        return train(jax.random.key(seed), system, config(name, method, scale), out=place, resume=True)
    except NestbedError as error:
        raise NestbedError(f"{error} (This was the training in {place}; another --out begins anew.)") from error


_TRAINING_COSTS = {"linear_pendulum": 15.0, "nonlinear_pendulum": 20.0, "cart_pole": 90.0, "double_link": 30.0}


def _score(name: str, system: BaseSystem, policy: str, seed: int | None, scale: Scale) -> Cell:
    exact = policy == "io_smc2_exact" or (policy.startswith("myopic") and simplest(system) == "exact")
    settings: dict[str, Any] = {
        "seeds": scale.estimates,
        "trajectories": TRAJECTORIES,
        "belief": "exact" if exact else "ibis",
        "particles": PARTICLES,
        "moves": MOVES,
        "horizon": system.horizon,
        "contrastive": scale.contrastive,
    }
    label = policy if seed is None else f"{policy}/seed_{seed}"
    cell_name = f"{name}/{label}/score"

    def compute(folder: Path) -> dict[str, Any]:
        made = _policy(folder, name, system, policy, seed, scale)
        (score,) = compare(_key(cell_name), system, {label: made}, **settings)
        found = {"eig": Spread(score.mean, score.sd, score.standard_error), "spce": score.spce, "snmc": score.snmc}
        return {metric: values._asdict() for metric, values in found.items() if values is not None}

    trained = _of_training(name, policy, seed, scale)
    slow = policy.startswith(("myopic", "greedy"))
    return _cell(cell_name, "score", name, policy, 70.0 if slow else 18.0, {**settings, **trained}, compute, seed)


def _gain(name: str, system: BaseSystem, policy: str, seed: int | None, scale: Scale) -> Cell:
    label = policy if seed is None else f"{policy}/seed_{seed}"
    cell_name = f"{name}/{label}/gain"
    settings = {"realisations": scale.realisations, "horizon": system.horizon}

    def compute(folder: Path) -> dict[str, Any]:
        made = _policy(folder, name, system, policy, seed, scale)
        found = eig(_key(cell_name), system, made, trajectories=scale.realisations, belief="exact", gain="closed_form")
        total = np.cumsum(found.steps, axis=1)
        return {"mean": total.mean(axis=0).tolist(), "sd": total.std(axis=0, ddof=1).tolist()}

    trained = _of_training(name, policy, seed, scale)
    return _cell(cell_name, "gain", name, policy, 3.0, {**settings, **trained}, compute, seed)


def _trajectory(name: str, system: BaseSystem, scale: Scale) -> Cell:
    """Return one deployment of the first trained policy on a rig with the prior's medians as parameters."""
    cell_name = f"{name}/io_smc2/trajectory"

    def compute(folder: Path) -> dict[str, Any]:
        made = _policy(folder, name, system, "io_smc2", 0, scale)
        theta = tuple(jnp.atleast_1d(marginal.icdf(0.5)) for marginal in system.prior.values())
        record = simulate(_key(cell_name), system, made, theta, system.horizon)
        return {
            "theta": [float(value[0]) for value in theta],
            "states": np.asarray(record.states[0]).tolist(),
            "designs": np.asarray(record.designs[0]).tolist(),
        }

    settings = _of_training(name, "io_smc2", 0, scale)
    return _cell(cell_name, "trajectory", name, "io_smc2", 2.0, settings, compute, 0)


def _particles(name: str, system: BaseSystem, count: int, scale: Scale) -> Cell:
    """Return the estimates of the first trained policy with so many parameter particles, or contrastive draws."""
    cell_name = f"{name}/io_smc2/particles_{count}"
    size = scale.estimates * TRAJECTORIES

    def compute(folder: Path) -> dict[str, Any]:
        made = _policy(folder, name, system, "io_smc2", 0, scale)
        gain_key, bound_key = jax.random.split(_key(cell_name))
        gains = eig(gain_key, system, made, trajectories=size, particles=count, moves=MOVES).gains
        values = spce(bound_key, system, made, outer=size, contrastive=count).values
        return {"eig": spread(gains, scale.estimates)._asdict(), "spce": spread(values, scale.estimates)._asdict()}

    settings = {
        "particles": count,
        "seeds": scale.estimates,
        "trajectories": TRAJECTORIES,
        "moves": MOVES,
        **_of_training(name, "io_smc2", 0, scale),
    }
    return _cell(cell_name, "particles", name, "io_smc2", 4.0 + count / 300, settings, compute, 0)


def _of_training(name: str, method: str, seed: int | None, scale: Scale) -> dict[str, Any]:
    """Return what decides a trained policy; nothing for one that is not trained."""
    return {} if seed is None else {"trained": config(name, method, scale).plain(), "seed": seed}


def _cell(
    cell_name: str,
    kind: str,
    system: str,
    policy: str,
    cost: float,
    settings: dict[str, Any],
    compute: Callable[[Path], dict[str, Any]],
    seed: int | None,
) -> Cell:
    made = systems.load(system)
    known = json.dumps([fingerprint.settings(made), dataclasses.asdict(made.defaults)], sort_keys=True)
    hangs_on = {
        "system": hashlib.sha256(known.encode()).hexdigest()[:16],
        "key": SEED,
        "sources": sources.digest(*_roots(kind, made, seed is not None), alone=Path(__file__)),
    }
    return Cell(cell_name, kind, system, policy, cost, {**settings, **hangs_on}, compute, seed)


def _roots(kind: str, system: BaseSystem, trained: bool) -> tuple[str, ...]:
    """Return the modules that a cell's numbers come from, its system's equations among them."""
    policy = "nestbed.runs.train" if trained else "nestbed.policies"
    scored = () if kind == "training" else ("nestbed.evaluation.comparison", "nestbed.likelihood.simulation")
    return (policy, *scored, *sources.families(type(system)))


def _policy(folder: Path, name: str, system: BaseSystem, policy: str, seed: int | None, scale: Scale) -> Any:
    """Return a policy to score: the mean of a trained one, or a baseline."""
    if seed is not None:
        return _trained(folder, name, system, policy, seed, scale).policy.mean()
    if policy == "myopic_no_slew":
        return policies.Myopic(system, belief=simplest(system), slew_penalty=0.0)
    return policies.baseline(policy, system)


def _key(name: str) -> jax.Array:
    return jax.random.fold_in(jax.random.key(SEED), zlib.crc32(name.encode()))
