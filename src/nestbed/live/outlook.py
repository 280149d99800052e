"""What is still to be gained: by the rest of a session, and by one more experiment.

Rigs are drawn from the belief and go on under the policy. The gain of what lies ahead is that of Gauss and Newton:
½ log det of what the whole record would tell, less that of what it tells by now, both where the rig is: a covariance
over particles would take posteriors that bend for wider than they are, and promise half as much again.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nestbed.belief import proposal
from nestbed.belief.base import Belief
from nestbed.information import objective
from nestbed.likelihood import sensitivity
from nestbed.likelihood.base import Record
from nestbed.live.following import Following
from nestbed.model import limits
from nestbed.model.system import BaseSystem
from nestbed.numerics import noise, resampling
from nestbed.policies.signals import Replay

RIGS = 64
"""Rigs that go on."""


class Outlook(NamedTuple):
    """Gains to be expected, in nats."""

    remaining: float  # from all experiments that are left
    next: float  # from one more experiment


class Going(NamedTuple):
    """Where a policy stands: what it remembers, and the design that it has chosen next."""

    policy: Any
    carry: Any
    u: Float[Array, " du"]


def going(system: BaseSystem, policy: Any, carry: Any, u: Float[np.ndarray, " du"]) -> Going:
    """Return where a policy stands; one that plans anew at every step is taken at its plan by now."""
    planned = getattr(policy, "planned", None)
    if planned is None:
        return Going(policy, carry, jnp.asarray(u))
    plan = Replay(system, planned(carry))
    return Going(plan, plan.init(), jnp.asarray(u))


def outlook(key: jax.Array, now: Following, going: Going, left: int) -> Outlook:
    """Return what the next `left` experiments are expected to gain, and the first of them."""
    if left < 1:
        return Outlook(0.0, 0.0)
    room = now.room + left
    record = now.learner.record.padded(1 << (room - 1).bit_length())
    gains = _ahead(key, now.belief, now.learner.belief, record, jnp.asarray(now.rows), going, jnp.asarray(left))
    return Outlook(*(float(gain) for gain in gains))


@eqx.filter_jit
def _ahead(
    key: jax.Array, belief: Belief, state: Any, record: Record, rows: Int[Array, ""], going: Going, left: Int[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    system, likelihood = belief.system, belief.likelihood
    pick_key, state_key, steps_key = jax.random.split(key, 3)
    offset = noise.uniforms(pick_key, (1, 1))
    chosen = resampling.systematic(offset, state.log_weights)[0][:: max(1, state.log_weights.shape[1] // RIGS)][:RIGS]
    own = proposal.whiten(system.parameters, tuple(value[0, chosen] for value in state.position))
    futures = _futures(state_key, steps_key, belief, state, chosen, record, rows, going, left)
    theta, slopes = proposal.parameters(system.parameters, tuple(value[:, None] for value in own))

    def gained(count: Int[Array, ""]) -> Float[Array, ""]:
        told = sensitivity.of_histories(likelihood, futures, count, theta, slopes).information
        return jnp.mean(objective.about(told, objective.precision(system)))

    before = gained(rows)
    return gained(rows + left) - before, gained(rows + 1) - before


def _futures(
    state_key: jax.Array,
    steps_key: jax.Array,
    belief: Belief,
    state: Any,
    chosen: Int[Array, " R"],
    record: Record,
    rows: Int[Array, ""],
    going: Going,
    left: Int[Array, ""],
) -> Record:
    """Return the record so far as that of R rigs, and how each of them goes on."""
    system, likelihood = belief.system, belief.likelihood
    count = len(chosen)
    theta = tuple(value[0, chosen] for value in state.theta)
    past = jax.tree.map(lambda leaf: leaf[0, chosen if leaf.shape[1] > 1 else jnp.zeros_like(chosen)], state.carry)
    truth = likelihood.imagine(tuple(noise.normals(state_key, (len(system.state), count))), past)
    carry = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *jnp.shape(leaf))), going.carry)
    spare = record.designs.shape[-1] - len(system.design_names)

    def experiment(t: Int[Array, ""], so_far: Any) -> Any:
        truth, carry, u, futures = so_far
        keys = jax.random.split(jax.random.fold_in(steps_key, t), 1 + count)
        normals = noise.normals(keys[0], (likelihood.normals, count))
        truth, outcome = likelihood.experiment(tuple(normals), truth, tuple(u.T), theta)
        y = jnp.stack(outcome, axis=-1)
        row = jnp.concatenate([u, jnp.full((count, spare), system.step)], axis=-1)
        observations, designs = futures
        futures = Record(observations.at[:, t + 1].set(y), designs.at[:, t].set(row))
        carry, wanted = jax.vmap(going.policy.step)(keys[1:], carry, y, u)
        return truth, carry, system.designs.clip(limits.slewed(system, wanted.astype(u.dtype), u)), futures

    begun = Record(*(jnp.broadcast_to(part, (count, *part.shape[1:])) for part in record))
    first = jnp.broadcast_to(going.u, (count, len(going.u)))
    return jax.lax.fori_loop(rows, rows + left, experiment, (truth, carry, first, begun))[3]
