"""What a training of feedback on a plan can be told."""

import dataclasses
from typing import ClassVar, Self

from nestbed.evaluation.violation import check_risk
from nestbed.information import effort, search
from nestbed.model.system import BaseSystem
from nestbed.numerics.errors import NestbedError, at_least_one
from nestbed.training.config import Config, FeedbackConfig, option

GRADIENTS = ("auto", "pathwise", "score")
TURNS = 2
"""As many steps as an iteration has, so often, are taken on several plans before one is chosen."""


ROUNDS, LEAST_ROUNDS = 40, 5
"""Rounds of the search, and of one where each is much work, at least."""
STEPS, LEAST_STEPS, ENOUGH = 100, 20, 2e6
"""Gradient steps of an iteration, at least, and the operations of one rig above which there are fewer."""


def _steps(work: float) -> int:
    return max(LEAST_STEPS, min(STEPS, round(STEPS * ENOUGH / work)))


@dataclasses.dataclass(frozen=True)
class PathwiseConfig(Config):
    """The designed plan with feedback, by gradients through the simulator. The horizon comes from `system.defaults`."""

    method: ClassVar[str] = "pathwise"
    compares: ClassVar[bool] = True

    iterations: int = option(12, "rounds of gradient steps and evaluation; all is compared in the last")
    learning_rate: float = option(2e-2, "step size of Adam, at the start; it falls to nothing")
    clip: float = option(5.0, "gradients longer than this are shortened to it; 0: never")
    rounds: int = option(
        None, "rounds of the search for the plan that feedback is put on: 40, or fewer where each is much work"
    )
    basins: int = option(
        5, "plans that feedback is tried on before it is refined on one: the best, and others for known rigs"
    )
    steps: int = option(None, "gradient steps per iteration: 100, or fewer where each is much work")
    batch: int = option(64, "B: simulated rigs per gradient step")
    noise: float = option(0.5, "standard deviation of the designs at the start, in units of half the box; it falls")
    gradient: str = option("auto", "pathwise, score (for drifts that jump) or auto: as the drift allows", GRADIENTS)
    records: int = option(256, "records of the certificate after each iteration")
    target: tuple[str, ...] = option((), "parameters, or methods (theta), of interest; all parameters if empty")
    risk: float = option(0.01, "probability with which any of the system's limits may be broken within the horizon")
    policy: FeedbackConfig = dataclasses.field(default_factory=FeedbackConfig)

    def resolve(self, system: BaseSystem) -> Self:
        """Return this configuration filled in; rounds and steps by how much work the system is."""
        if self.rounds is not None and self.steps is not None:
            return super().resolve(system)
        horizon = system.horizon if self.horizon is None else self.horizon
        at_least_one(horizon=horizon)
        rounds = search.afforded(system, horizon, ROUNDS, LEAST_ROUNDS) if self.rounds is None else self.rounds
        steps = _steps(effort.operations(system, horizon)) if self.steps is None else self.steps
        return dataclasses.replace(self, rounds=rounds, steps=steps).resolve(system)

    @property
    def sizes(self) -> FeedbackConfig:
        """The feedback."""
        return self.policy

    @property
    def judged(self) -> int:
        """As told."""
        return self.records

    @property
    def turns(self) -> int:
        """Turns of gradient steps on the plan that is chosen, in all."""
        return TURNS + self.iterations

    def check(self) -> None:
        """Raise unless every value is there and possible."""
        super().check()
        counts = ("rounds", "basins", "steps", "batch", "records")
        at_least_one(**{name: getattr(self, name) for name in counts})
        if self.records < 2:
            raise NestbedError("records is 1, but an error needs at least 2.")
        if not 0.0 <= self.noise <= 1.0:
            raise NestbedError(f"noise is {self.noise!r}, but it must be from 0 to 1, in units of half the box.")
        check_risk(self.risk)

    @property
    def headline(self) -> str:
        """T, and what is spent."""
        return (
            f"plan and feedback, T = {self.horizon}, {self.rounds} rounds of search, {self.turns * self.steps} "
            f"gradient steps × {self.batch} rigs"
        )

    @property
    def details(self) -> str:
        """The optimiser and the network."""
        return f"pathwise gradients, adam {self.learning_rate:g}, noise {self.noise:g}, {self.policy}"

    @property
    def remedies(self) -> str:
        """A smaller learning rate, and more steps."""
        return f"{super().remedies} or more steps (now {self.steps})"

    @property
    def extendable(self) -> bool:
        """Never: learning rate and noise fall towards the last iteration."""
        return False
