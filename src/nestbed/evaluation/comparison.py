"""Several policies on one system, scored alike."""

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from nestbed import noise
from nestbed.errors import NestbedError, at_least_one
from nestbed.evaluation.eig import Estimate, eig
from nestbed.system import BaseSystem


class Score(NamedTuple):
    """One policy's expected information gain over several seeds, in nats."""

    policy: str
    mean: float
    sd: float  # over seeds, each the mean of its own trajectories
    standard_error: float
    steps: Float[np.ndarray, "N T"]  # gain of every experiment of every trajectory


def compare(
    key: jax.Array,
    system: BaseSystem,
    policies: Mapping[str, Any],
    *,
    seeds: int = 25,
    trajectories: int = 16,
    progress: Callable[[str, int], None] | None = None,
    **settings: Any,
) -> list[Score]:
    """Score every policy by `seeds` estimates of `trajectories` each; `settings` go to `eig`.

    `progress` is called with a policy's name and the number of its trajectories just finished, from any thread.
    """
    at_least_one(seeds=seeds, trajectories=trajectories)
    if not isinstance(policies, Mapping) or not policies:
        raise NestbedError('policies must be named; give a dictionary, as in {"random": nb.policies.Random(system)}.')
    keys = jax.random.split(noise.as_key(key), len(policies))
    scores = []
    for policy_key, (name, policy) in zip(keys, policies.items(), strict=True):
        told = None if progress is None else _telling(progress, name)
        estimate = eig(policy_key, system, policy, trajectories=seeds * trajectories, progress=told, **settings)
        scores.append(_score(name, estimate, seeds))
    return scores


def _telling(progress: Callable[[str, int], None], name: str) -> Callable[[int], None]:
    return lambda count: progress(name, count)


def _score(name: str, estimate: Estimate, seeds: int) -> Score:
    means = estimate.gains.reshape(seeds, -1).mean(axis=1)
    sd = float(means.std(ddof=1)) if seeds > 1 else float("nan")
    return Score(name, estimate.mean, sd, estimate.standard_error, estimate.steps)


def save_table(scores: list[Score], file: Path) -> None:
    """Write one line per policy."""
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["policy", "eig_mean_nats", "eig_sd_over_seeds", "standard_error"])
        writer.writerows([s.policy, f"{s.mean:.6f}", f"{s.sd:.6f}", f"{s.standard_error:.6f}"] for s in scores)
