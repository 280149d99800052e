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


def save_figure(scores: list[Score], system: BaseSystem, file: Path, name: str | None = None) -> None:
    """Draw information gained against experiments done, with a band of two standard errors."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.4), layout="constrained")
    axes = figure.subplots()
    for i, score in enumerate(scores):
        total = np.cumsum(score.steps, axis=1)
        done = np.arange(total.shape[1] + 1)
        mean = np.insert(total.mean(axis=0), 0, 0.0)
        error = np.insert(total.std(axis=0, ddof=1) / np.sqrt(len(total)), 0, 0.0) if len(total) > 1 else 0 * mean
        colour, line = _COLOURS[i % len(_COLOURS)], _LINES[i // len(_COLOURS) % len(_LINES)]
        axes.plot(done, mean, color=colour, linestyle=line, label=f"{score.policy}: {score.mean:.2f} nats")
        axes.fill_between(done, mean - 2 * error, mean + 2 * error, color=colour, alpha=0.2, linewidth=0)
    axes.set(
        title=f"{name or system.name}: what each policy learns about {', '.join(system.parameter_names)}",
        xlabel="experiments done",
        ylabel="information gained (nats)",
        xlim=(0, done[-1]),
    )
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", frameon=False, title="band: ± 2 standard errors", alignment="left")
    figure.savefig(file, dpi=150)


_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # safe for colour-blind eyes
_LINES = ("-", "--", ":")
