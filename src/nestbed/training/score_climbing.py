"""Markovian score climbing (`alg:msc`): sweep, draw trajectories by their weights, make them more likely.

With `conditional` false the sweeps forget the reference, which is plain score climbing.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from nestbed import interrupts
from nestbed.policies.base import prepare
from nestbed.policies.recurrent import Recurrent
from nestbed.smc import faults
from nestbed.smc.potential import Potential
from nestbed.smc.reference import Reference
from nestbed.smc.sweep import Sweep, compiled_sweep
from nestbed.system import BaseSystem
from nestbed.training.config import TrainConfig
from nestbed.training.trainer import Metrics, Trainer, better, finite, require_finite


class State(NamedTuple):
    """All that training carries from one iteration to the next."""

    iteration: Int[Array, ""]
    policy: Recurrent
    optimiser: Any
    reference: Reference | None
    best: Recurrent
    best_eig: Float[Array, ""]


class ScoreClimbing(Trainer):
    """One training run's fixed parts: system, configuration, belief and potential."""

    config: TrainConfig

    def __init__(self, system: BaseSystem, config: TrainConfig):
        super().__init__(system, config)
        terms = config.eta, config.slew_penalty, config.action_penalty
        self.potential = Potential(*(jnp.asarray(value, float) for value in terms))

    def begin(self, key: jax.Array) -> tuple[State, Metrics]:
        """Return an untrained policy, the first reference from a plain sweep, and what the policy is worth."""
        policy_key, sweep_key, evaluation_key = jax.random.split(key, 3)
        policy = self.untrained(policy_key)
        start = time.perf_counter()
        with ThreadPoolExecutor(2) as pool:  # two programs to compile
            sweep = pool.submit(self.sweep, sweep_key, policy, None)
            score = pool.submit(self.evaluate, evaluation_key, policy).result()
            reference = sweep.result().reference
        state = State(jnp.array(0), policy, _start(policy, self.config), reference, policy, jnp.array(score["eig"]))
        seconds = {"seconds": time.perf_counter() - start}
        return state, {"iteration": 0, **score, **_fared(sweep.result()), "entropy": float(policy.entropy), **seconds}

    def iterate(self, key: jax.Array, state: State) -> tuple[State, Metrics]:
        """Do one iteration."""
        sweeps_key, climb_key, evaluation_key = jax.random.split(key, 3)
        clock = [time.perf_counter()]
        reference = state.reference
        for sweep_key in jax.random.split(sweeps_key, self.config.sweeps):
            interrupts.check()
            sweep = self.sweep(sweep_key, state.policy, reference)
            reference = sweep.reference
        clock.append(time.perf_counter())
        policy, optimiser, climbed = climb(climb_key, state.policy, state.optimiser, sweep, self.config)
        require_finite(climbed.finite)
        clock.append(time.perf_counter())
        score = self.evaluate(evaluation_key, policy)
        clock.append(time.perf_counter())

        best = better(policy, score, state.best, state.best_eig)
        following = State(state.iteration + 1, policy, optimiser, reference, *best)
        spent = dict(zip(("sweep", "gradient", "evaluation"), np.diff(clock), strict=True))
        return following, {
            "iteration": int(following.iteration),
            **score,
            **_fared(sweep),
            "entropy": float(policy.entropy),
            "gradient_norm": float(climbed.gradient_norm),
            "seconds": clock[-1] - clock[0],
            **{f"seconds_{part}": float(seconds) for part, seconds in spent.items()},
        }

    def sweep(self, key: jax.Array, policy: Recurrent, reference: Reference | None) -> Sweep:
        """Run the nested filter under the policy, conditionally on the reference if there is one."""
        c = self.config
        ready = prepare(policy, self.system)
        sweep, fault = compiled_sweep(
            key, self.belief, ready, self.potential, c.horizon, c.trajectories, c.gain, reference, c.conditional
        )
        faults.check_all(self.system, fault, sweep.states, sweep.designs)
        return sweep

    def template(self) -> State:
        """Return the shapes and types of a state, to read a saved one into."""

        def blank() -> State:
            policy = self.untrained(jax.random.key(0))
            reference = self._blank_reference() if self.config.conditional else None
            return State(jnp.array(0), policy, _start(policy, self.config), reference, policy, jnp.zeros(()))

        return eqx.filter_eval_shape(blank)

    def _blank_reference(self) -> Reference:
        steps, states, designs = self.config.horizon, len(self.system.state_names), len(self.system.design_names)
        kept = self.belief.kept(self.belief.init(jax.random.key(0), 1))
        history = jax.tree.map(lambda leaf: jnp.zeros((steps, *leaf.shape[1:]), leaf.dtype), kept)
        return Reference(
            jnp.zeros((steps + 1, states)), jnp.zeros((steps, designs)), history, self.system, self.belief.kind
        )


class Climbed(NamedTuple):
    """What the gradient steps of one iteration had to say."""

    gradient_norm: Float[Array, ""]  # mean over the steps, before clipping
    finite: Any


def objective(
    policy: Recurrent,
    states: Float[Array, "B T1 dx"],
    designs: Float[Array, "B T du"],
    weights: Float[Array, " B"],
) -> Float[Array, ""]:
    """Return the mean log-likelihood of the designs: its gradient is the estimated score."""
    return weights @ jax.vmap(policy.log_likelihood)(states, designs) / jnp.sum(weights)


@eqx.filter_jit
def climb(
    key: jax.Array, policy: Recurrent, optimiser: Any, sweep: Sweep, config: TrainConfig
) -> tuple[Recurrent, Any, Climbed]:
    """Draw N trajectories by their weights and pass over them once, in shuffled batches."""
    count, batch = sweep.log_weights.shape[0], min(config.batch, sweep.log_weights.shape[0])
    drawn = jax.random.categorical(key, sweep.log_weights, shape=(count,))  # independent, so already shuffled
    drawn = jnp.pad(drawn, (0, -count % batch)).reshape(-1, batch)
    counted = (jnp.arange(drawn.size) < count).astype(float).reshape(drawn.shape)  # the last batch may be smaller
    weights, structure = eqx.partition(policy, eqx.is_inexact_array)
    steps = transformation(config)

    def ascend(carry: Any, inputs: Any) -> Any:
        weights, optimiser = carry
        rows, share = inputs

        def loss(weights: Any) -> Float[Array, ""]:
            return -objective(eqx.combine(weights, structure), sweep.states[rows], sweep.designs[rows], share)

        gradient = jax.grad(loss)(weights)
        change, optimiser = steps.update(gradient, optimiser, weights)
        return (optax.apply_updates(weights, change), optimiser), optax.tree.norm(gradient)

    (weights, optimiser), norms = jax.lax.scan(ascend, (weights, optimiser), (drawn, counted))
    return eqx.combine(weights, structure), optimiser, Climbed(jnp.mean(norms), finite(weights))


def transformation(config: TrainConfig) -> optax.GradientTransformation:
    """Return the optimiser that a configuration names."""
    total = config.iterations * -(-config.trajectories // min(config.batch, config.trajectories))
    rate = {
        "constant": lambda: config.learning_rate,
        "cosine": lambda: optax.cosine_decay_schedule(config.learning_rate, total),
        "linear": lambda: optax.linear_schedule(config.learning_rate, 0.0, total),
    }[config.schedule]()
    steps = {"adam": optax.adam, "adamw": optax.adamw, "rmsprop": optax.rmsprop, "sgd": optax.sgd}[config.optimiser]
    return optax.chain(optax.clip_by_global_norm(config.clip), steps(rate)) if config.clip else steps(rate)


def _start(policy: Recurrent, config: TrainConfig) -> Any:
    return transformation(config).init(eqx.filter(policy, eqx.is_inexact_array))


def _fared(sweep: Sweep) -> Metrics:
    """Return what a sweep says of itself."""
    d = sweep.diagnostics
    told: Metrics = {
        "log_evidence": float(sweep.log_evidence),
        "ess": float(d.ess.mean()),
        "resampled": int(d.resampled.sum()),
    }
    if d.refreshed is not None and d.accepted is not None:
        refreshed = int(d.refreshed.sum())
        told["refreshed"] = refreshed
        told["acceptance"] = float(d.accepted.sum()) / refreshed if refreshed else None
    return told
