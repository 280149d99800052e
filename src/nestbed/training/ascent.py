"""Gradient steps of feedback on a plan: uphill in the expected Gauss–Newton gain, through simulator and policy."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from nestbed.information import objective
from nestbed.likelihood.simulation import Simulated, simulate
from nestbed.model.system import BaseSystem
from nestbed.model.target import Target
from nestbed.policies.feedback import Feedback
from nestbed.training import gradient
from nestbed.training.gradient import GradientInfo
from nestbed.training.pathwise_config import PathwiseConfig

SCORED = 512
"""Rigs that plans with a little feedback are scored on, to choose one."""
QUIET, LAST_RATE = 0.05, 0.02
"""What noise and learning rate fall to, as shares of what they begin with."""
PLAN_RATE = 3.0
"""Step size of the plan, in that of the network."""
SCORE_NOISE = 0.15
"""Standard deviation of designs that score gradients need at least."""


def learned(policy: Feedback) -> Any:
    """Return which leaves gradients move: the plan and the network."""
    fixed = lambda p: (p.expected, p.spread, p.log_std, p.share)  # noqa: E731
    return eqx.tree_at(fixed, jax.tree.map(eqx.is_inexact_array, policy), (False,) * 4)


def transformation(config: PathwiseConfig) -> optax.GradientTransformation:
    """Return Adam with a falling rate, larger for the plan; a gradient that is not finite is passed over."""
    first, count = config.learning_rate, config.turns * config.steps
    rate = optax.linear_schedule(first, LAST_RATE * first, count)

    def faster(updates: Any, _: Any = None) -> Any:
        return eqx.tree_at(lambda p: p.plan, updates, PLAN_RATE * updates.plan)

    adam = optax.chain(optax.adam(rate, b2=0.99), optax.stateless(faster))
    return optax.apply_if_finite(gradient.clipped(adam, config.clip), count)


@eqx.filter_jit
def ascend(
    key: jax.Array,
    system: BaseSystem,
    policy: Feedback,
    optimiser: Any,
    target: Target | None,
    config: PathwiseConfig,
    share: Float[Array, ""],
    margin: Float[Array, ""],
    *,
    smooth: bool,
) -> tuple[Feedback, Any, GradientInfo]:
    """Do an iteration's gradient steps, each on rigs of its own, with noise that falls; `share` of all are done."""
    shares = jnp.minimum(1.0, share + jnp.arange(config.steps) / (config.turns * config.steps))
    sds = loudness(config, shares, smooth)

    def value(policy: Feedback, batch: Any) -> Float[Array, ""]:
        run_key, sd = batch
        way = gain if smooth else scored_gain
        return way(run_key, system, policy.with_noise(sd), target, config.batch, margin)

    keys = jax.random.split(key, config.steps)
    return gradient.ascend(policy, optimiser, transformation(config), value, (keys, sds), learned(policy))


def loudness(config: PathwiseConfig, shares: Float[Array, "*n"], smooth: bool) -> Float[Array, "*n"]:
    """Return the standard deviation of designs when such shares of all gradient steps are done."""
    loudest = config.noise if smooth else max(config.noise, SCORE_NOISE)
    return loudest * (1.0 - (1.0 - QUIET) * shares) + TINY


TINY = 1e-6
"""Noise that is always there, so that designs have a density."""


def gain(
    key: jax.Array, system: BaseSystem, policy: Feedback, target: Target | None, batch: int, margin: Float[Array, ""]
) -> Float[Array, ""]:
    """Return the expected Gauss–Newton gain less the fine for nearing limits, on one batch of rigs."""
    gains, fine, _ = _played(key, system, policy, target, batch, margin)
    counted = jnp.isfinite(gains)
    return jnp.sum(jnp.where(counted, gains, 0.0)) / jnp.sum(counted) - fine


def scored_gain(
    key: jax.Array, system: BaseSystem, policy: Feedback, target: Target | None, batch: int, margin: Float[Array, ""]
) -> Float[Array, ""]:
    """Return the same number with the score as its gradient: needed where the simulator has none."""
    still = jax.tree.map(lambda leaf: jax.lax.stop_gradient(leaf) if eqx.is_array(leaf) else leaf, policy)
    gains, fine, played = jax.lax.stop_gradient(_played(key, system, still, target, batch, margin))
    likely = jax.vmap(policy.log_likelihood)(*played.record)
    counted = jnp.isfinite(gains)
    mean = jnp.sum(jnp.where(counted, gains, 0.0)) / jnp.sum(counted)
    fines = jax.lax.stop_gradient(objective.fines_of_rigs(system, played, margin))
    worth = jnp.where(counted, gains, mean) - jnp.where(jnp.isfinite(fines), fines, 0.0)
    surrogate = jnp.mean((worth - jnp.mean(worth)) * likely)
    return mean - fine + surrogate - jax.lax.stop_gradient(surrogate)


def _played(
    key: jax.Array, system: BaseSystem, policy: Feedback, target: Target | None, batch: int, margin: Float[Array, ""]
) -> tuple[Float[Array, " B"], Float[Array, ""], Simulated]:
    """Return what a policy gains on each of a batch of rigs, its fine, and what was simulated."""
    rigs_key, record_key = jax.random.split(key)
    rigs = objective.draw(rigs_key, system, 0, batch)
    played = simulate(record_key, system, policy, rigs.theta, policy.plan.shape[0])
    found = objective.information(system, rigs.w, played.record)
    known = objective.precision(system)
    gains = objective.about(found, known, objective.slopes(system, rigs.w, target))
    return gains, objective.fine(system, played, batch, margin)[0], played


@eqx.filter_jit
def score(
    key: jax.Array,
    policy: Feedback,
    target: Target | None,
    config: PathwiseConfig,
    margin: Float[Array, ""],
) -> Float[Array, ""]:
    """Return the gain of the mean policy, on the same rigs for all."""
    keys = jax.random.split(key, SCORED // config.batch + 1)
    values = jax.lax.map(lambda k: gain(k, policy.system, policy, target, config.batch, margin), keys)
    return jnp.mean(values)
