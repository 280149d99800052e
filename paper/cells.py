"""The cells of the reproduction: each a training, an estimate or a figure's data, told by plain data alone."""

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

from nestbed import systems
from nestbed.model.system import BaseSystem
from nestbed.runs import fingerprint, sources
from paper.studies import BASELINES, SYSTEMS, Scale

TRAJECTORIES, MOVES, PARTICLES = 16, 3, 1024
NUMBERS = Path(__file__).with_name("numbers.py")
"""How the cells are computed: all else that decides their numbers is in their settings."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One piece of work, with all that decides its numbers and what it is expected to cost."""

    name: str  # such as cart_pole/prbs/estimate
    kind: str  # training, estimate, gain, trajectory or particles
    system: str
    policy: str
    cost: float  # seconds on two cores, roughly
    settings: dict[str, Any]

    @property
    def seed(self) -> int | None:
        """Of the training, if the policy was trained."""
        return self.settings.get("seed")

    @property
    def training(self) -> Path | None:
        """Where the policy's training is kept within the folder of the reproduction, if it was trained."""
        return None if self.seed is None else Path("trainings") / f"{self.system}_{self.policy}" / f"seed_{self.seed}"


def plan(names: tuple[str, ...], scale: Scale, trainings: int) -> list[Cell]:
    """Return the cells of some systems, each after those it needs."""
    return [cell for name in names for cell in _Planner(name, scale).cells(trainings)]


class _Planner:
    """Makes the cells of one system."""

    def __init__(self, name: str, scale: Scale):
        self.name, self.scale, self.study = name, scale, SYSTEMS[name]
        self.system = systems.load(name)
        self.hangs_on = cache(partial(_hangs_on, self.system))

    def cells(self, trainings: int) -> Iterator[Cell]:
        """Yield them, each after those it needs."""
        study, scale = self.study, self.scale
        trained = [(method, seed) for method in study.methods for seed in range(_count(method, trainings))]
        for method, seed in trained:
            yield self._cell("training", method, seed, 150.0 if method == "idad" else study.seconds, {})
        for policy in (*BASELINES, *(study.others if scale.others else ())):
            yield self._estimate(policy, None)
        for method, seed in trained:
            yield self._estimate(method, seed)
        if "gain" in study.figures:
            gained: list[tuple[str, int | None]] = [("random", None), ("prbs", None), *trained]
            yield from (self._gain(policy, seed) for policy, seed in gained if policy != "idad")
        if "trajectory" in study.figures:
            yield self._cell("trajectory", "io_smc2", 0, 2.0, {"horizon": self.system.horizon})
        if "particles" in study.figures:
            yield from (self._particles(count) for count in scale.particles)

    def _estimate(self, policy: str, seed: int | None) -> Cell:
        exact = policy == "io_smc2_exact" or (policy.startswith("myopic") and self.study.exact)
        given = {
            "seeds": self.scale.estimates,
            "trajectories": TRAJECTORIES,
            "belief": "exact" if exact else "ibis",
            "particles": PARTICLES,
            "moves": MOVES,
            "horizon": self.system.horizon,
            "contrastive": self.scale.contrastive,
        }
        slow = policy.startswith(("myopic", "greedy"))
        return self._cell("estimate", policy, seed, 70.0 if slow else 18.0, given)

    def _gain(self, policy: str, seed: int | None) -> Cell:
        given = {"trajectories": self.scale.realisations, "horizon": self.system.horizon}
        return self._cell("gain", policy, seed, 3.0, {**given, "belief": "exact", "gain": "closed_form"})

    def _particles(self, count: int) -> Cell:
        given = {"belief": "ibis", "particles": count, "moves": MOVES}
        given |= {"seeds": self.scale.estimates, "trajectories": TRAJECTORIES}
        return self._cell("particles", "io_smc2", 0, 4.0 + count / 300, given, f"particles_{count}")

    def _cell(
        self, kind: str, policy: str, seed: int | None, cost: float, given: dict[str, Any], label: str | None = None
    ) -> Cell:
        settings: dict[str, Any] = {"given": given, **self.hangs_on(kind != "training", seed is not None)}
        if seed is not None:
            settings |= {"seed": seed, "config": self.scale.config(self.name, policy).plain()}
        made = policy if seed is None else f"{policy}/seed_{seed}"
        return Cell(f"{self.name}/{made}/{label or kind}", kind, self.name, policy, cost, settings)


def _count(method: str, trainings: int) -> int:
    return 1 if method == "idad" else trainings


def _hangs_on(system: BaseSystem, estimated: bool, trained: bool) -> dict[str, str]:
    """Return what a cell's numbers hang on besides what it is given: its system, and the code behind them."""
    known = json.dumps([fingerprint.settings(system), dataclasses.asdict(system.defaults)], sort_keys=True)
    return {
        "system": hashlib.sha256(known.encode()).hexdigest()[:16],
        "sources": sources.digest(*_roots(system, estimated, trained), alone=NUMBERS),
    }


def _roots(system: BaseSystem, estimated: bool, trained: bool) -> tuple[str, ...]:
    """Return the modules that a cell's numbers come from, its system's equations among them."""
    trainers = ("nestbed.runs.train", "nestbed.training.score_climbing", "nestbed.training.idad")
    policy = trainers if trained else ("nestbed.policies",)
    evaluation = ("nestbed.evaluation.comparison", "nestbed.likelihood.simulation") if estimated else ()
    return ("nestbed.numerics.jax_settings", *policy, *evaluation, *sources.families(type(system)))
