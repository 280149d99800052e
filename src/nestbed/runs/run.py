"""A training run: how it was set up, how it went, and the policies it has learned."""

import dataclasses
import functools
import hashlib
import math
import os
import platform
from pathlib import Path
from typing import Any

import jax
import numpy as np

from nestbed.evaluation.comparison import Comparison
from nestbed.model.system import BaseSystem
from nestbed.numerics.blocks import cores
from nestbed.numerics.intervals import chance_above
from nestbed.numerics.packages import versions
from nestbed.runs import sources
from nestbed.runs.fingerprint import describe
from nestbed.training import registry
from nestbed.training.config import Config
from nestbed.training.trainer import Metrics, TrainingState

LAST, BEST = "policy_last.npz", "policy_best.npz"


@dataclasses.dataclass(frozen=True)
class Log:
    """How a run was set up and how it went."""

    config: Config
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
    def name(self) -> str:
        """The method, by name: a run is a `Progress` (`done` of `total` iterations)."""
        return self.config.method

    @property
    def done(self) -> int:
        """How many iterations are done, as `iteration`."""
        return self.iteration

    @property
    def total(self) -> int:
        """How many iterations there are to be."""
        return self.config.iterations

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
        if self.config.compares:
            return None
        last, best, start = self.metrics[-1], max(self.metrics, key=lambda row: row["eig"]), self.metrics[0]
        if self._below(last, start, 1):
            sentence = f"the training made the policy worse: {_gained(last)}, but {_gained(start)}"
        elif self._below(last, best, len(self.metrics)):
            sentence = f"the last policy is not the best: {_gained(last)}, from {_gained(start)}"
        else:
            return None
        kept = f"the best was {_gained(best)}, which is kept as {BEST} (run.best)"
        return f"{sentence}; {kept}; try {self.config.remedies}, and compare it with baselines."

    def _below(self, row: Metrics, other: Metrics, among: int) -> bool:
        """Return whether one iteration gained less than another, chosen from so many, by more than the errors allow."""
        size = self.config.judged
        errors = [(math.nan if r.get("eig_error") is None else r["eig_error"], size) for r in (other, row)]
        return chance_above(other["eig"] - row["eig"], *errors) > 1.0 - 0.025 / among


@dataclasses.dataclass(frozen=True)
class Run(Log):
    """A training run with the policies it has learned so far, and all that is needed to go on."""

    system: BaseSystem
    key: jax.Array
    state: TrainingState = dataclasses.field(repr=False)

    @property
    def policy(self) -> Any:
        """The policy after the last iteration; `.mean()` is its mean policy.

        Where the method compares it with others in the end, that which won.
        """
        return self.state.policy

    @property
    def comparison(self) -> Comparison | None:
        """What the policy was compared with in the end, certified on the same rigs; None: with nothing, or not yet."""
        return self._outcome[0] if self._outcome else None

    @property
    def winner(self) -> str | None:
        """Which policy of the comparison is handed out."""
        return self._outcome[1] if self._outcome else None

    @property
    def outcome(self) -> str | None:
        """Who won the comparison in the end, and what adapting was worth, in a sentence or two."""
        if self.comparison is None or self.winner is None:
            return None
        more = self.comparison.difference("learned", "plan")
        low, high = more.interval
        own = f"{more.mean:+.3f} nats (95 %: {low:+.3f} to {high:+.3f})"
        if self.winner in ("learned", "noisy"):
            noisy = ", with its noise" if self.winner == "noisy" else ""
            return f"The policy that adapts won{noisy}: beside the plan alone it gains {own}."
        return (
            f"{self.winner} won, the simplest that nothing surely beats: adapting gains {own} beside the plan. What "
            "was learned is kept as run.best."
        )

    @functools.cached_property
    def _outcome(self) -> tuple[Comparison, str] | None:
        return registry.trainer(self.system, self.config).comparison(self.state)

    @property
    def best(self) -> Any:
        """The policy of the iteration whose estimated gain was highest: chosen by a noisy estimate."""
        return self.state.best

    def after(self, state: TrainingState, row: Metrics) -> "Run":
        """Return the run with one more iteration done."""
        return dataclasses.replace(self, state=state, metrics=[*self.metrics, row])

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the run to a folder, from which `nb.load_run` reads it and training can go on; return the folder."""
        from nestbed.runs.folder import save

        return save(self, Path(folder))


def _gained(row: Metrics) -> str:
    """Return what the policy of one iteration gained."""
    when = f"after iteration {row['iteration']}" if row["iteration"] else "untrained"
    return f"{row['eig']:.2f} ± {row['eig_error']:.2f} nats {when}"


def fresh(
    key: jax.Array, system: BaseSystem, config: Config, state: TrainingState, row: Metrics, start: Any = None
) -> Run:
    """Return a run that has just begun, with given inputs or without."""
    return Run(config, [row], provenance(key, system, config, start), system, key, state)


def digest(system: BaseSystem, config: Config) -> str:
    """Return the digest of the code that a training's numbers hang on."""
    return sources.training(type(system), registry.METHODS.find(config.method).home.partition(":")[0])


def of_start(start: Any) -> str | None:
    """Return the digest of the inputs that a run begins with, if any."""
    return None if start is None else hashlib.sha256(np.asarray(start, float).tobytes()).hexdigest()[:16]


def provenance(key: jax.Array, system: BaseSystem, config: Config, start: Any = None) -> dict[str, Any]:
    """Return what a run's numbers hang on besides its configuration."""
    device = jax.devices()[0]
    return {
        "system": describe(system),
        "key": np.asarray(jax.random.key_data(key)).tolist(),
        "versions": versions(),
        "sources": digest(system, config),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "device": f"{device.platform} ({device.device_kind})",
        "cores": cores(),
        "start": of_start(start),
        "precision": "filters float64, networks float32",
    }
