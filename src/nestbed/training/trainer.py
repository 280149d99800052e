"""What every training method has: a policy to begin with, iterations, and a score of the mean policy after each."""

from abc import ABC, abstractmethod
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nestbed import belief as beliefs
from nestbed.belief.base import Belief
from nestbed.errors import NestbedError, NonFiniteError
from nestbed.evaluation.eig import estimate
from nestbed.policies.base import prepare
from nestbed.policies.recurrent import Recurrent
from nestbed.smc.sweep import check_gain_form
from nestbed.system import BaseSystem
from nestbed.training.config import IDADConfig, TrainConfig

BLOCK = 64
"""Trajectories evaluated in one program: enough to fill the network's matrices."""

Metrics = dict[str, Any]
"""One iteration in numbers, by name."""


class Progressed(Protocol):
    """What the state of every method holds, among what only it needs."""

    @property
    def iteration(self) -> Int[Array, ""]:
        """How many iterations are done."""

    @property
    def policy(self) -> Recurrent:
        """The policy after the last of them."""

    @property
    def best(self) -> Recurrent:
        """The policy with the highest score so far."""

    @property
    def best_eig(self) -> Float[Array, ""]:
        """That score."""


class DivergedError(NestbedError):
    """Training met a number that is not finite; `run` is the run up to the iteration before."""

    def __init__(self, message: str, run: Any):
        super().__init__(message)
        self.run = run


class Trainer(ABC):
    """One training run's fixed parts: system, configuration and belief."""

    config: TrainConfig | IDADConfig

    def __init__(self, system: BaseSystem, config: TrainConfig | IDADConfig):
        self.system, self.config = system, config
        self.belief: Belief = beliefs.make(config.belief, system, config.particles, config.moves)
        check_gain_form(self.belief, config.gain)

    @abstractmethod
    def begin(self, key: jax.Array) -> tuple[Any, Metrics]:
        """Return the state before the first iteration and what its untrained policy is worth."""

    @abstractmethod
    def iterate(self, key: jax.Array, state: Any) -> tuple[Any, Metrics]:
        """Do one iteration."""

    @abstractmethod
    def template(self) -> Any:
        """Return the shapes and types of a state, to read a saved one into."""

    def untrained(self, key: jax.Array) -> Recurrent:
        """Return a policy with random weights."""
        return Recurrent(key, self.system, **vars(self.config.policy), trained_for=self.config.horizon)

    def evaluate(self, key: jax.Array, policy: Recurrent) -> Metrics:
        """Estimate the expected information gain of the mean policy, with the training's N and M."""
        c = self.config
        ready = prepare(policy.mean(), self.system)
        score = estimate(key, self.belief, ready, c.horizon, c.trajectories, c.gain, BLOCK)
        return {"eig": score.mean, "eig_error": score.standard_error}


def better(
    policy: Recurrent, score: Metrics, best: Recurrent, best_eig: Float[Array, ""]
) -> tuple[Recurrent, Float[Array, ""]]:
    """Return the policy with the higher score, and that score."""
    return (policy, jnp.array(score["eig"])) if score["eig"] > float(best_eig) else (best, best_eig)


def finite(weights: Any) -> Bool[Array, ""]:
    """Return whether every weight is a finite number."""
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(weights)]))


def require_finite(fine: Bool[Array, ""]) -> None:
    """Raise if the gradient steps of an iteration ended in a weight that is no number."""
    if not bool(fine):
        raise NonFiniteError("a gradient step left a weight of the policy that is not finite")
