"""How the numbers of a cell come about: a function for each kind, of the cell's data alone."""

import dataclasses
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from nestbed import policies, systems
from nestbed.evaluation.comparison import compare
from nestbed.evaluation.contrastive_bounds import spce
from nestbed.evaluation.eig import eig
from nestbed.evaluation.estimates import Estimate
from nestbed.likelihood.simulation import simulate
from nestbed.model.system import BaseSystem
from nestbed.numerics.errors import NestbedError
from nestbed.policies.base import Policy
from nestbed.runs.resuming import discard_outdated
from nestbed.runs.run import Run
from nestbed.runs.train import train
from nestbed.training import registry

if TYPE_CHECKING:
    from paper.cells import Cell

SEED = 2024
Result = dict[str, Any]


def compute(cell: "Cell", folder: Path) -> Result:
    """Return the numbers of a cell, as plain data; trainings are kept in the folder."""
    return _KINDS[cell.kind](cell, systems.load(cell.system), folder)


def trained(cell: "Cell", system: BaseSystem, folder: Path) -> Run:
    """Return a cell's finished training: the one that is kept, or what is missing of it."""
    assert cell.training is not None
    place = folder / cell.training
    config = registry.config("idad" if cell.policy == "idad" else "score_climbing").updated(cell.settings["config"])
    try:
        discard_outdated(place, system)
        return train(jax.random.key(cell.settings["seed"]), system, config, out=place, resume=True)
    except NestbedError as error:
        raise NestbedError(f"{error} (This was the training in {place}; another --out begins anew.)") from error


def policy(cell: "Cell", system: BaseSystem, folder: Path) -> Policy:
    """Return a cell's policy: the mean of a trained one, or a baseline."""
    if cell.seed is not None:
        return trained(cell, system, folder).policy.mean()
    if cell.policy == "myopic_no_slew":
        return policies.Myopic(system, belief=None, slew_penalty=0.0)
    return policies.baseline(cell.policy, system)


def _training(cell: "Cell", system: BaseSystem, folder: Path) -> Result:
    run = trained(cell, system, folder)
    last, spent = run.metrics[-1], sum(row["seconds"] for row in run.metrics)
    return {"eig": last["eig"], "eig_error": last["eig_error"], "training_seconds": spent}


def _estimate(cell: "Cell", system: BaseSystem, folder: Path) -> Result:
    (found,) = compare(_key(cell), system, {_label(cell): policy(cell, system, folder)}, **cell.settings["given"])
    metrics = {"eig": found, "spce": found.spce, "snmc": found.snmc}
    return {metric: _plain(each) for metric, each in metrics.items() if each is not None}


def _gain(cell: "Cell", system: BaseSystem, folder: Path) -> Result:
    found = eig(_key(cell), system, policy(cell, system, folder), **cell.settings["given"])
    total = np.cumsum(np.asarray(found.steps), axis=1)
    return {"mean": total.mean(axis=0).tolist(), "sd": total.std(axis=0, ddof=1).tolist()}


def _trajectory(cell: "Cell", system: BaseSystem, folder: Path) -> Result:
    """Return one deployment on a rig with the prior's medians as parameters."""
    theta = tuple(jnp.atleast_1d(marginal.icdf(0.5)) for marginal in system.prior.values())
    record = simulate(_key(cell), system, policy(cell, system, folder), theta, **cell.settings["given"]).record
    return {
        "theta": [float(value[0]) for value in theta],
        "observations": np.asarray(record.observations[0]).tolist(),
        "designs": np.asarray(record.designs[0]).tolist(),
    }


def _particles(cell: "Cell", system: BaseSystem, folder: Path) -> Result:
    """Return the estimates with so many parameter particles, or contrastive draws."""
    given, made = cell.settings["given"], policy(cell, system, folder)
    count, size = given["particles"], given["seeds"] * given["trajectories"]
    gain_key, bound_key = jax.random.split(_key(cell))
    gain = eig(gain_key, system, made, trajectories=size, particles=count, moves=given["moves"])
    bound = spce(bound_key, system, made, outer=size, contrastive=count)
    found = {"eig": gain, "spce": bound}
    return {metric: _plain(dataclasses.replace(each, seeds=given["seeds"])) for metric, each in found.items()}


_KINDS = {
    "training": _training,
    "estimate": _estimate,
    "gain": _gain,
    "trajectory": _trajectory,
    "particles": _particles,
}


def _plain(found: Estimate) -> dict[str, float]:
    return {"mean": found.mean, "sd": found.sd, "standard_error": found.standard_error}


def _label(cell: "Cell") -> str:
    seed = cell.settings.get("seed")
    return cell.policy if seed is None else f"{cell.policy}/seed_{seed}"


def _key(cell: "Cell") -> jax.Array:
    """Return the cell's key; other names than these would be other draws than those in docs/results."""
    names = {
        "estimate": f"{_label(cell)}/score",
        "gain": f"{_label(cell)}/gain",
        "trajectory": f"{cell.policy}/trajectory",
        "particles": f"{cell.policy}/particles_{cell.settings['given'].get('particles')}",
    }
    return jax.random.fold_in(jax.random.key(SEED), zlib.crc32(f"{cell.system}/{names[cell.kind]}".encode()))
