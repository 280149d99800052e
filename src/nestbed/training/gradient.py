"""The one gradient loop: steps that make an objective larger, whatever the objective and the optimiser."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from nestbed.numerics.errors import NonFiniteError


class GradientInfo(NamedTuple):
    """What the gradient steps of one iteration came to."""

    objective: Float[Array, ""]  # mean over the steps
    norm: Float[Array, ""]  # of the gradient, mean over the steps, before clipping
    finite: Bool[Array, ""]  # whether every weight of the policy is

    def check(self) -> None:
        """Raise if the steps ended in a weight that is no number."""
        if not bool(self.finite):
            raise NonFiniteError("a gradient step left a weight of the policy that is not finite")


P = TypeVar("P")


def ascend(
    policy: P,
    state: Any,
    optimiser: optax.GradientTransformation,
    objective: Callable[[P, Any], Float[Array, ""]],
    batches: Any,
    learned: Any = eqx.is_inexact_array,
) -> tuple[P, Any, GradientInfo]:
    """Do one gradient step for each batch, along the leading axis of `batches`, with the leaves that are `learned`."""
    weights, structure = eqx.partition(policy, learned)

    def step(so_far: Any, batch: Any) -> Any:
        weights, state = so_far

        def loss(weights: Any) -> Float[Array, ""]:
            return -objective(eqx.combine(weights, structure), batch)

        negative, gradient = jax.value_and_grad(loss)(weights)
        change, state = optimiser.update(gradient, state, weights)
        return (optax.apply_updates(weights, change), state), (-negative, optax.tree.norm(gradient))

    (weights, state), (objectives, norms) = jax.lax.scan(step, (weights, state), batches)
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(weights)]))
    return eqx.combine(weights, structure), state, GradientInfo(jnp.mean(objectives), jnp.mean(norms), finite)


def clipped(optimiser: optax.GradientTransformation, clip: float) -> optax.GradientTransformation:
    """Return the optimiser behind a limit on the length of the gradient; 0: no limit."""
    return optax.chain(optax.clip_by_global_norm(clip), optimiser) if clip else optimiser


def start(optimiser: optax.GradientTransformation, policy: Any, learned: Any = eqx.is_inexact_array) -> Any:
    """Return the state of an optimiser before its first step."""
    return optimiser.init(eqx.filter(policy, learned))
