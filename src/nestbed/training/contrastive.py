"""iDAD (Ivanova et al., 2021): climb the sPCE bound by its gradient through the simulator.

Each step draws θ₀ from the prior for every trajectory, simulates it under the mean policy, and compares how likely it
is under θ₀ with how likely it is under θ₀ and L further draws, which all trajectories of the step share.
"""

import time
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from nestbed.belief.base import Record
from nestbed.policies.recurrent import Recurrent
from nestbed.prior import Components
from nestbed.simulation import simulate
from nestbed.system import BaseSystem
from nestbed.training.config import IDADConfig
from nestbed.training.trainer import Metrics, Trainer, better, finite, require_finite


class State(NamedTuple):
    """All that training carries from one iteration to the next."""

    iteration: Int[Array, ""]
    policy: Recurrent
    optimiser: Any
    learning_rate: Float[Array, ""]
    best_bound: Float[Array, ""]  # the highest mean bound of an iteration
    best: Recurrent
    best_eig: Float[Array, ""]


class Contrastive(Trainer):
    """One training run's fixed parts: system, configuration and the belief that scores it."""

    config: IDADConfig

    def begin(self, key: jax.Array) -> tuple[State, Metrics]:
        """Return an untrained policy and what it is worth."""
        policy_key, evaluation_key = jax.random.split(key)
        start = time.perf_counter()
        policy = self.untrained(policy_key)
        score = self.evaluate(evaluation_key, policy)
        state = self._start(policy)._replace(best_eig=jnp.array(score["eig"]))
        told = {"learning_rate": self.config.learning_rate, "seconds": time.perf_counter() - start}
        return state, {"iteration": 0, **score, **told}

    def iterate(self, key: jax.Array, state: State) -> tuple[State, Metrics]:
        """Do one iteration."""
        ascend_key, evaluation_key = jax.random.split(key)
        start = time.perf_counter()
        policy, optimiser, climbed = ascend(
            ascend_key, self.system, state.policy, state.optimiser, state.learning_rate, self.config
        )
        require_finite(climbed.finite)
        middle = time.perf_counter()
        score = self.evaluate(evaluation_key, policy)
        end = time.perf_counter()

        improved = bool(climbed.bound > state.best_bound)
        rate = state.learning_rate if improved else state.learning_rate * self.config.annealing
        bound = climbed.bound if improved else state.best_bound
        best = better(policy, score, state.best, state.best_eig)
        following = State(state.iteration + 1, policy, optimiser, rate, bound, *best)
        return following, {
            "iteration": int(following.iteration),
            **score,
            "spce": float(climbed.bound),
            "learning_rate": float(state.learning_rate),
            "gradient_norm": float(climbed.gradient_norm),
            "seconds": end - start,
            "seconds_gradient": middle - start,
            "seconds_evaluation": end - middle,
        }

    def template(self) -> State:
        """Return the shapes and types of a state, to read a saved one into."""
        return eqx.filter_eval_shape(lambda: self._start(self.untrained(jax.random.key(0))))

    def _start(self, policy: Recurrent) -> State:
        optimiser = transformation(self.config).init(eqx.filter(policy, eqx.is_inexact_array))
        rate = jnp.asarray(self.config.learning_rate, float)
        return State(jnp.array(0), policy, optimiser, rate, jnp.array(-jnp.inf), policy, jnp.zeros(()))


class Ascended(NamedTuple):
    """What the gradient steps of one iteration had to say."""

    bound: Float[Array, ""]  # mean over the steps
    gradient_norm: Float[Array, ""]  # mean over the steps, before clipping
    finite: Bool[Array, ""]


@eqx.filter_jit
def ascend(
    key: jax.Array,
    system: BaseSystem,
    policy: Recurrent,
    optimiser: Any,
    learning_rate: Float[Array, ""],
    config: IDADConfig,
) -> tuple[Recurrent, Any, Ascended]:
    """Do an iteration's gradient steps, each with trajectories and contrastive draws of its own."""
    weights, structure = eqx.partition(policy, eqx.is_inexact_array)
    adam = transformation(config)

    def step(carry: Any, key: jax.Array) -> Any:
        weights, optimiser = carry

        def loss(weights: Any) -> Float[Array, ""]:
            return -objective(key, system, eqx.combine(weights, structure), config)

        negative, gradient = jax.value_and_grad(loss)(weights)
        change, optimiser = adam.update(gradient, optimiser, weights)
        change = jax.tree.map(lambda leaf: -learning_rate.astype(leaf.dtype) * leaf, change)
        return (optax.apply_updates(weights, change), optimiser), (-negative, optax.tree.norm(gradient))

    (weights, optimiser), (bounds, norms) = jax.lax.scan(
        step, (weights, optimiser), jax.random.split(key, config.steps)
    )
    told = Ascended(jnp.mean(bounds), jnp.mean(norms), finite(weights))
    return eqx.combine(weights, structure), optimiser, told


def objective(key: jax.Array, system: BaseSystem, policy: Recurrent, config: IDADConfig) -> Float[Array, ""]:
    """Return sPCE of the mean policy from one batch: with the key fixed, it moves smoothly with the weights."""
    theta_key, draws_key, record_key = jax.random.split(key, 3)
    theta = system.parameters.draw(theta_key, (config.batch,))
    draws = system.parameters.draw(draws_key, (config.contrastive,))
    record = simulate(record_key, system, policy.mean(), theta, config.horizon)
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
    steps = jnp.concatenate([record.states[:, :-1], record.designs, record.states[:, 1:]], axis=-1)
    rows = jnp.moveaxis(steps, 0, -1)[..., None]  # T, components, B, 1
    dx, du = len(system.state_names), len(system.design_names)

    @jax.checkpoint
    def deviance(row: Float[Array, "width B 1"]) -> Float[Array, "B L"]:
        x, u, following = (tuple(part) for part in jnp.split(row, (dx, dx + du)))
        return system.deviance(x, u, theta, following)

    nothing = jnp.zeros((steps.shape[0], theta[0].shape[1]))
    return jax.lax.scan(lambda total, row: (total + deviance(row), None), nothing, rows)[0]


def transformation(config: IDADConfig) -> optax.GradientTransformation:
    """Return Adam without its learning rate, which the iterations anneal."""
    adam = optax.scale_by_adam()
    return optax.chain(optax.clip_by_global_norm(config.clip), adam) if config.clip else adam
