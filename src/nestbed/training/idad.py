"""iDAD (Ivanova et al., 2021): climb the sPCE bound by its gradient through the simulator.

Each step draws θ₀ from the prior for every trajectory, simulates it under the mean policy, and compares how likely it
is under θ₀ with how likely it is under θ₀ and L further draws, which all trajectories of the step share.
"""

import dataclasses
import time
from typing import Any, ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from nestbed import likelihood as likelihoods
from nestbed.likelihood.base import Record, components
from nestbed.likelihood.simulation import simulate
from nestbed.model.prior import Components
from nestbed.model.system import BaseSystem
from nestbed.numerics.errors import NestbedError, at_least_one
from nestbed.numerics.progress import Progress, Watch
from nestbed.policies.recurrent import Recurrent
from nestbed.training import gradient
from nestbed.training.config import PolicyConfig, SweepConfig, option
from nestbed.training.gradient import GradientInfo
from nestbed.training.trainer import Metrics, SweepTrainer, better


@dataclasses.dataclass(frozen=True)
class IDADConfig(SweepConfig):
    """iDAD: gradients of the sPCE bound through the simulator, for a policy without noise.

    The defaults train in minutes on two cores; `IDADConfig.paper()` has the paper's sizes. What is left None comes
    from `system.defaults`.
    """

    method: ClassVar[str] = "idad"

    iterations: int = option(10, "rounds of gradient steps and evaluation")
    learning_rate: float = option(5e-4, "step size of Adam, at the start")
    policy: PolicyConfig = dataclasses.field(default_factory=lambda: PolicyConfig(cell="lstm"))
    steps: int = option(100, "gradient steps per iteration")
    batch: int = option(64, "B: simulated trajectories per gradient step")
    contrastive: int = option(1023, "L: draws from the prior that each of them is contrasted with")
    annealing: float = option(0.96, "the learning rate shrinks by this after an iteration without a better bound")

    @classmethod
    def paper(cls) -> Self:
        """Return the paper's configuration: 10000 gradient steps, the annealing decided every 400."""
        return cls(iterations=25, steps=400, batch=512, contrastive=16383, learning_rate=5e-4, annealing=0.96)

    def check(self) -> None:
        """Raise unless every value is there and possible."""
        super().check()
        at_least_one(steps=self.steps, batch=self.batch, contrastive=self.contrastive)
        if not 0.0 < self.annealing <= 1.0:
            raise NestbedError(
                f"annealing is {self.annealing!r}, but it must be a number above 0 and at most 1; 1 keeps the learning "
                "rate where it is."
            )

    @property
    def headline(self) -> str:
        """T, what was spent on training, and the sizes of the evaluation."""
        return f"iDAD, T = {self.horizon}, evaluated with N = {self.trajectories}, {self.inner}\n{self.budget}"

    @property
    def details(self) -> str:
        """The optimiser and the network."""
        return f"iDAD, adam {self.learning_rate:g}, annealing {self.annealing:g}, {self.policy}"

    @property
    def budget(self) -> str:
        """Gradient steps, trajectories and contrastive draws, beside the paper's."""
        full = self.paper()
        theirs = f"{full.iterations * full.steps} × {full.batch} × {full.contrastive}"
        return (
            f"{self.iterations * self.steps} gradient steps × {self.batch} trajectories × {self.contrastive} "
            f"contrastive draws (paper: {theirs})"
        )

    @property
    def remedies(self) -> str:
        """A smaller learning rate, and more contrastive draws: near its limit the bound has no slope to climb."""
        return f"{super().remedies} or more contrastive draws (now {self.contrastive})"


class State(NamedTuple):
    """All that training carries from one iteration to the next."""

    iteration: Int[Array, ""]
    policy: Recurrent
    optimiser: Any
    learning_rate: Float[Array, ""]
    best_bound: Float[Array, ""]  # the highest mean bound of an iteration
    best: Recurrent
    best_eig: Float[Array, ""]


class IDAD(SweepTrainer[IDADConfig]):
    """One training run's fixed parts: system, configuration and the belief that evaluates it."""

    def begin(
        self, key: jax.Array, progress: Watch[Progress] | None = None, start: Float[np.ndarray, "T du"] | None = None
    ) -> tuple[State, Metrics]:
        """Return an untrained policy and what it is worth."""
        policy_key, evaluation_key = jax.random.split(key)
        begun = time.perf_counter()
        policy = self.untrained(policy_key, start)
        estimated = self.evaluate(evaluation_key, policy)
        state = self._start(policy)._replace(best_eig=jnp.array(estimated["eig"]))
        rate = {"learning_rate": self.config.learning_rate}
        return state, {"iteration": 0, **estimated, **rate, "seconds": time.perf_counter() - begun}

    def iterate(self, key: jax.Array, state: State) -> tuple[State, Metrics]:
        """Do one iteration."""
        ascend_key, evaluation_key = jax.random.split(key)
        start = time.perf_counter()
        rate = state.learning_rate
        policy, optimiser, climbed = ascend(ascend_key, self.system, state.policy, state.optimiser, rate, self.config)
        climbed.check()
        middle = time.perf_counter()
        estimated = self.evaluate(evaluation_key, policy)
        end = time.perf_counter()

        improved = bool(climbed.objective > state.best_bound)
        next_rate = rate if improved else rate * self.config.annealing
        bound = climbed.objective if improved else state.best_bound
        best = better(policy, estimated, state.best, state.best_eig)
        state = State(state.iteration + 1, policy, optimiser, next_rate, bound, *best)
        return state, {
            "iteration": int(state.iteration),
            **estimated,
            "spce": float(climbed.objective),
            "learning_rate": float(rate),
            "gradient_norm": float(climbed.norm),
            "seconds": end - start,
            "seconds_gradient": middle - start,
            "seconds_evaluation": end - middle,
        }

    def template(self) -> State:
        """Return the shapes and types of a state, to read a saved one into."""
        return eqx.filter_eval_shape(lambda: self._start(self.untrained(jax.random.key(0))))

    def _start(self, policy: Recurrent) -> State:
        rate = jnp.asarray(self.config.learning_rate, float)
        optimiser = gradient.start(transformation(self.config, rate), policy)
        return State(jnp.array(0), policy, optimiser, rate, jnp.array(-jnp.inf), policy, jnp.zeros(()))


@eqx.filter_jit
def ascend(
    key: jax.Array,
    system: BaseSystem,
    policy: Recurrent,
    optimiser: Any,
    learning_rate: Float[Array, ""],
    config: IDADConfig,
) -> tuple[Recurrent, Any, GradientInfo]:
    """Do an iteration's gradient steps, each with trajectories and contrastive draws of its own."""
    keys = jax.random.split(key, config.steps)
    return gradient.ascend(
        policy,
        optimiser,
        transformation(config, learning_rate),
        lambda policy, key: objective(key, system, policy, config),
        keys,
    )


def objective(key: jax.Array, system: BaseSystem, policy: Recurrent, config: IDADConfig) -> Float[Array, ""]:
    """Return sPCE of the mean policy from one batch: with the key fixed, it moves smoothly with the weights."""
    theta_key, draws_key, record_key = jax.random.split(key, 3)
    theta = system.parameters.draw(theta_key, (config.batch,))
    draws = system.parameters.draw(draws_key, (config.contrastive,))
    record = simulate(record_key, system, policy.mean(), theta, config.horizon).record
    return jnp.mean(spce(system, record, theta, draws))


def spce(system: BaseSystem, record: Record, theta: Components, draws: Components) -> Float[Array, " B"]:
    """Return for each record log p(z | θ₀) minus the log of its mean over θ₀ and the L draws (`eq:spce-bound`)."""
    own = -0.5 * deviances(system, record, tuple(value[:, None] for value in theta))
    others = -0.5 * deviances(system, record, tuple(value[None, :] for value in draws))
    every = jnp.concatenate([own, others], axis=1)
    return own[:, 0] - jax.nn.logsumexp(every, axis=1) + jnp.log(every.shape[1])


def deviances(system: BaseSystem, record: Record, theta: Components) -> Float[Array, "B L"]:
    """Return −2 log p(z | θ) but for its constant, for records (B) and parameters (B or 1, L).

    Steps are computed anew on the way back, so that memory does not grow with T.
    """
    likelihood = likelihoods.of(system)
    steps = jnp.concatenate([record.designs, record.observations[:, 1:]], axis=-1)
    rows = jnp.moveaxis(steps, 0, -1)[..., None]  # T, components, B, 1
    du = len(system.design_names)

    @jax.checkpoint
    def step(so_far: Any, row: Float[Array, "width B 1"]) -> Any:
        carry, total = so_far
        u, y = (tuple(part) for part in jnp.split(row, (du,)))
        carry, deviance = likelihood.deviance(carry, u, y, theta)
        return carry, total + deviance

    start = likelihood.start(components(record.observations[:, 0]), theta)
    nothing = jnp.zeros((steps.shape[0], theta[0].shape[1]))
    (_, total), _ = jax.lax.scan(lambda so_far, row: (step(so_far, row), None), (start, nothing), rows)
    return total


def transformation(config: IDADConfig, learning_rate: Float[Array, ""]) -> optax.GradientTransformation:
    """Return Adam with the learning rate that the iterations anneal."""
    adam = gradient.clipped(optax.scale_by_adam(), config.clip)
    return optax.chain(adam, optax.scale(-learning_rate.astype(jnp.float32)))
