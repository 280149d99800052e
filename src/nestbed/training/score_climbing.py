"""Markovian score climbing (`alg:msc`): sweep, draw trajectories by their weights, make them more likely.

With `conditional` false the sweeps forget the reference, which is plain score climbing.
"""

import dataclasses
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from nestbed.belief import faults
from nestbed.belief.potential import Potential
from nestbed.model.system import BaseSystem
from nestbed.numerics import interrupts
from nestbed.numerics.errors import NestbedError, at_least_one, at_least_zero
from nestbed.numerics.progress import Progress, Watch
from nestbed.policies.base import prepare
from nestbed.policies.recurrent import Recurrent
from nestbed.smc import reference as references
from nestbed.smc.reference import Reference
from nestbed.smc.sweep import Sweep, SweepInfo, compiled_sweep
from nestbed.training import gradient
from nestbed.training.config import SweepConfig, option
from nestbed.training.gradient import GradientInfo
from nestbed.training.trainer import Metrics, SweepTrainer, better

OPTIMISERS = {"adam": optax.adam, "adamw": optax.adamw, "rmsprop": optax.rmsprop, "sgd": optax.sgd}
SCHEDULES = {
    "constant": lambda rate, total: rate,
    "cosine": optax.cosine_decay_schedule,
    "linear": lambda rate, total: optax.linear_schedule(rate, 0.0, total),
}


@dataclasses.dataclass(frozen=True)
class ScoreClimbingConfig(SweepConfig):
    """Score climbing. What is left None comes from `system.defaults`; for the paper's systems, its own settings."""

    method: ClassVar[str] = "score_climbing"

    eta: float = option(None, "η: trajectories are weighted by exp(η · (gain − penalties))")
    slew_penalty: float = option(None, "on squared changes of the designs, in units of half the box")
    action_penalty: float = option(0.0, "on squared designs, in the same units")
    conditional: bool = option(True, "Markovian score climbing; false: plain, from unconditional sweeps")
    sweeps: int = option(1, "sweeps per iteration; the last one is learned from")
    optimiser: str = option("adam", "adam, adamw, rmsprop or sgd", OPTIMISERS)
    schedule: str = option("constant", "of the learning rate: constant, or down to 0 by cosine or linear", SCHEDULES)
    batch: int = option(64, "trajectories per gradient step; an iteration is one pass over N")

    def check(self) -> None:
        """Raise unless every value is there and possible."""
        super().check()
        at_least_one(sweeps=self.sweeps, batch=self.batch)
        at_least_zero(eta=self.eta, slew_penalty=self.slew_penalty, action_penalty=self.action_penalty)
        if self.conditional and self.trajectories < 2:
            raise NestbedError(
                "conditional sweeps need at least 2 trajectories: one alone could only return its reference; raise "
                "trajectories or set conditional to false."
            )

    @property
    def headline(self) -> str:
        """T, N, M and η."""
        return f"T = {self.horizon}, N = {self.trajectories}, {self.inner}, η = {self.eta:g}"

    @property
    def details(self) -> str:
        """The optimiser, the penalty and the network."""
        kind = "Markovian score climbing" if self.conditional else "score climbing"
        steps = f"{self.optimiser} {self.learning_rate:g}, batches of {min(self.batch, self.trajectories)}"
        return f"{kind}, {steps}, slew {self.slew_penalty:g}, {self.policy}"

    @property
    def remedies(self) -> str:
        """A smaller learning rate, and a penalty under which the mean policy does the work."""
        penalty = "above 0" if self.slew_penalty == 0 else f"above {self.slew_penalty:g}"
        return (
            f"{super().remedies} or a slew_penalty {penalty}, so that the mean policy does the work and not its noise"
        )

    @property
    def extendable(self) -> bool:
        """Whether the learning rate stays where it is."""
        return self.schedule == "constant"

    @property
    def gradient_steps(self) -> int:
        """Gradient steps per iteration."""
        return -(-self.trajectories // min(self.batch, self.trajectories))


class State(NamedTuple):
    """All that training carries from one iteration to the next."""

    iteration: Int[Array, ""]
    policy: Recurrent
    optimiser: Any
    reference: Reference | None
    best: Recurrent
    best_eig: Float[Array, ""]


class ScoreClimbing(SweepTrainer[ScoreClimbingConfig]):
    """One training run's fixed parts: system, configuration, belief and potential."""

    def __init__(self, system: BaseSystem, config: ScoreClimbingConfig):
        super().__init__(system, config)
        self.potential = Potential.of(system, config.eta, config.slew_penalty, config.action_penalty)

    def begin(
        self, key: jax.Array, progress: Watch[Progress] | None = None, start: Float[np.ndarray, "T du"] | None = None
    ) -> tuple[State, Metrics]:
        """Return an untrained policy, the first reference from a plain sweep, and what the policy is worth."""
        policy_key, sweep_key, evaluation_key = jax.random.split(key, 3)
        begun = time.perf_counter()
        policy = self.untrained(policy_key, start)
        with ThreadPoolExecutor(2) as pool:  # two programs to compile
            swept = pool.submit(self.sweep, sweep_key, policy, None)
            estimated = pool.submit(self.evaluate, evaluation_key, policy).result()
            sweep = swept.result()
        optimiser = gradient.start(transformation(self.config), policy)
        state = State(jnp.array(0), policy, optimiser, sweep.reference, policy, jnp.array(estimated["eig"]))
        return state, {
            "iteration": 0,
            **estimated,
            "log_evidence": float(sweep.log_evidence),
            **_metrics(sweep.info),
            "entropy": float(policy.entropy),
            "seconds": time.perf_counter() - begun,
        }

    def iterate(self, key: jax.Array, state: State) -> tuple[State, Metrics]:
        """Do one iteration."""
        sweeps_key, climb_key, evaluation_key = jax.random.split(key, 3)
        clock = [time.perf_counter()]

        # Sweep
        reference = state.reference
        for sweep_key in jax.random.split(sweeps_key, self.config.sweeps):
            interrupts.check()
            sweep = self.sweep(sweep_key, state.policy, reference)
            reference = sweep.reference
        clock.append(time.perf_counter())

        # Climb
        policy, optimiser, climbed = climb(climb_key, state.policy, state.optimiser, sweep, self.config)
        climbed.check()
        clock.append(time.perf_counter())

        # Evaluate
        estimated = self.evaluate(evaluation_key, policy)
        clock.append(time.perf_counter())

        best = better(policy, estimated, state.best, state.best_eig)
        state = State(state.iteration + 1, policy, optimiser, reference, *best)
        spent = dict(zip(("sweep", "gradient", "evaluation"), np.diff(clock), strict=True))
        return state, {
            "iteration": int(state.iteration),
            **estimated,
            "log_evidence": float(sweep.log_evidence),
            **_metrics(sweep.info),
            "entropy": float(policy.entropy),
            "gradient_norm": float(climbed.norm),
            "seconds": clock[-1] - clock[0],
            **{f"seconds_{part}": float(seconds) for part, seconds in spent.items()},
        }

    def sweep(self, key: jax.Array, policy: Recurrent, reference: Reference | None) -> Sweep:
        """Run the nested filter under the policy, conditionally on the reference if there is one."""
        c = self.config
        sweep, fault = compiled_sweep(
            key,
            self.belief,
            prepare(policy, self.system),
            self.potential,
            horizon=c.horizon,
            count=c.trajectories,
            gain=c.gain,
            reference=reference,
            keep=c.conditional,
        )
        faults.check_all(self.system, fault, sweep.record)
        return sweep

    def template(self) -> State:
        """Return the shapes and types of a state, to read a saved one into."""

        def blank() -> State:
            policy = self.untrained(jax.random.key(0))
            reference = references.blank(self.belief, self.config.horizon) if self.config.conditional else None
            optimiser = gradient.start(transformation(self.config), policy)
            return State(jnp.array(0), policy, optimiser, reference, policy, jnp.zeros(()))

        return eqx.filter_eval_shape(blank)


def objective(
    policy: Recurrent,
    observations: Float[Array, "B T1 dy"],
    designs: Float[Array, "B T du"],
    weights: Float[Array, " B"],
) -> Float[Array, ""]:
    """Return the mean log-likelihood of the designs: its gradient is the estimated score."""
    return weights @ jax.vmap(policy.log_likelihood)(observations, designs) / jnp.sum(weights)


@eqx.filter_jit
def climb(
    key: jax.Array, policy: Recurrent, optimiser: Any, sweep: Sweep, config: ScoreClimbingConfig
) -> tuple[Recurrent, Any, GradientInfo]:
    """Draw N trajectories by their weights and pass over them once, in shuffled batches."""
    count, batch = sweep.log_weights.shape[0], min(config.batch, sweep.log_weights.shape[0])
    drawn = jax.random.categorical(key, sweep.log_weights, shape=(count,))  # independent, so already shuffled
    drawn = jnp.pad(drawn, (0, -count % batch)).reshape(-1, batch)
    counted = (jnp.arange(drawn.size) < count).astype(float).reshape(drawn.shape)  # the last batch may be smaller

    def likely(policy: Recurrent, inputs: tuple[Int[Array, " B"], Float[Array, " B"]]) -> Float[Array, ""]:
        rows, share = inputs
        return objective(policy, sweep.observations[rows], sweep.designs[rows], share)

    return gradient.ascend(policy, optimiser, transformation(config), likely, (drawn, counted))


def transformation(config: ScoreClimbingConfig) -> optax.GradientTransformation:
    """Return the optimiser that a configuration names."""
    rate = SCHEDULES[config.schedule](config.learning_rate, config.iterations * config.gradient_steps)
    return gradient.clipped(OPTIMISERS[config.optimiser](rate), config.clip)


def _metrics(info: SweepInfo) -> Metrics:
    """Return a sweep's diagnostics over all experiments."""
    metrics: Metrics = {"ess": float(info.ess.mean()), "resampled": int(info.resampled.sum())}
    if info.rejuvenated is not None and info.acceptance is not None:
        rejuvenated = int(info.rejuvenated.sum())
        metrics["rejuvenated"] = rejuvenated
        metrics["acceptance"] = float(info.acceptance.sum()) / rejuvenated if rejuvenated else None
    return metrics
