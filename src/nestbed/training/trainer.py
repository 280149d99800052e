"""What every training method has: a policy to begin with, iterations, and an estimate of the mean policy after each."""

import warnings
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nestbed import belief as beliefs
from nestbed.belief import learning
from nestbed.belief.base import Belief
from nestbed.evaluation.certificate import certificate
from nestbed.evaluation.eig import estimate
from nestbed.model.system import BaseSystem
from nestbed.numerics.progress import Progress, Watch
from nestbed.policies.base import Policy, prepare
from nestbed.policies.recurrent import Recurrent
from nestbed.training.config import Config, SweepConfig
from nestbed.training.imitation import imitate

if TYPE_CHECKING:
    from nestbed.evaluation.comparison import Comparison

EVALUATED_TOGETHER = 64
"""Trajectories evaluated in one program: enough to fill the network's matrices."""

Metrics = dict[str, Any]
"""One iteration in numbers, by name."""


class Trained(Policy, Protocol):
    """A policy that explores, made for a system."""

    @property
    def system(self) -> BaseSystem:
        """The system that it was made for."""

    def mean(self) -> Policy:
        """Return the same without its noise."""


class TrainingState(Protocol):
    """What the state of every method holds, among what only it needs."""

    @property
    def iteration(self) -> Int[Array, ""]:
        """How many iterations are done."""

    @property
    def policy(self) -> "Trained":
        """The policy after the last of them."""

    @property
    def best(self) -> "Trained":
        """The policy with the highest estimate so far."""

    @property
    def best_eig(self) -> Float[Array, ""]:
        """That estimate."""


C = TypeVar("C", bound=Config)
S = TypeVar("S", bound=SweepConfig)


class Trainer(ABC, Generic[C]):
    """One training run's fixed parts: system and configuration."""

    def __init__(self, system: BaseSystem, config: C):
        self.system, self.config = system, config

    @abstractmethod
    def begin(
        self, key: jax.Array, progress: Watch[Progress] | None = None, start: Float[np.ndarray, "T du"] | None = None
    ) -> tuple[Any, Metrics]:
        """Return the state before the first iteration and what its policy is worth.

        Where that takes long, `progress` is told how far it is. A `start` is inputs that the policy begins with.
        """

    @abstractmethod
    def iterate(self, key: jax.Array, state: Any) -> tuple[Any, Metrics]:
        """Do one iteration."""

    @abstractmethod
    def template(self) -> Any:
        """Return the shapes and types of a state, to read a saved one into."""

    def comparison(self, state: Any) -> "tuple[Comparison, str] | None":
        """Return what the policy was compared with in the end, and which of them is handed out; None: with nothing."""
        return None


class SweepTrainer(Trainer[S]):
    """One whose policies are recurrent ones, judged by certificates or by sweeps with its belief."""

    def __init__(self, system: BaseSystem, config: S):
        super().__init__(system, config)
        self.belief: Belief = beliefs.make(config.belief, system, config.particles, config.moves)
        learning.check_gain(self.belief, config.gain)

    def untrained(self, key: jax.Array, start: Float[np.ndarray, "T du"] | None = None) -> Recurrent:
        """Return a policy with random weights, or one that has learned to apply given inputs."""
        policy = self.config.policy.make(key, self.system, self.config.horizon)
        return policy if start is None else imitate(key, policy, start)

    def evaluate(self, key: jax.Array, policy: Recurrent) -> Metrics:
        """Estimate the expected information gain of the mean policy: with the training's N and M, or certified."""
        c = self.config
        if self.belief.refreshes:
            certified = certificate(key, self.system, policy.mean(), horizon=c.horizon, records=c.trajectories)
            return {"eig": certified.mean, "eig_error": certified.standard_error}
        ready = prepare(policy.mean(), self.system)
        found = estimate(key, self.belief, ready, c.horizon, c.trajectories, c.gain, block=EVALUATED_TOGETHER)
        if found.limit:
            warnings.warn(found.limit, stacklevel=2)
        return {"eig": found.mean, "eig_error": found.standard_error}


P = TypeVar("P")


def better(policy: P, metrics: Metrics, best: P, best_eig: Float[Array, ""]) -> tuple[P, Float[Array, ""]]:
    """Return the policy with the higher estimate, and that estimate."""
    return (policy, jnp.array(metrics["eig"])) if metrics["eig"] > float(best_eig) else (best, best_eig)
