"""A plan with feedback: the designed inputs, and what a recurrent network adds to them after what was seen."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nestbed.likelihood.simulation import play
from nestbed.model import limits
from nestbed.model.system import BaseSystem
from nestbed.numerics import noise
from nestbed.numerics.errors import NestbedError
from nestbed.numerics.slopes import finite, within
from nestbed.policies.base import Hashable, bound
from nestbed.policies.recurrent import predictive_scales

FAR = 0.1
"""How far a plan that is at a limit begins beyond it: so far the network must push before the design leaves it."""
SEEN = 5.0
"""Spreads from what is expected beyond which an observation is seen no further off."""
LEAST = 0.02
"""Least spread that observations are seen in, as a share of that of the prior predictive: a start may be known."""
RIGS = 512
"""Rigs that tell what the plan leads to."""


class Memory(NamedTuple):
    """What is carried from one experiment to the next."""

    done: Int[Array, ""]
    state: Float[Array, " width"]  # of the recurrent layer


class Feedback(Hashable):
    """u = clip(plan[t] + share · network(what was seen) + σ ε), from the unit box into the design box, within the slew.

    The network, a recurrent layer between dense ones, sees how far each observation is from what the plan leads to, in
    units of its spread over prior and noise at that time, the design before, the planned one, and the time. It runs in
    the type of its weights, float32. With no share it is the plan.
    """

    plan: Float[Array, "T du"]
    expected: Float[Array, "T dy"]  # what is seen before each planned design, on average over rigs
    spread: Float[Array, "T dy"]
    encoder: eqx.nn.Linear
    cell: eqx.nn.GRUCell
    hidden: eqx.nn.Linear
    head: eqx.nn.Linear
    log_std: Float[Array, " du"]  # log σ in the unit box; −∞: no noise
    share: Float[Array, ""]
    system: BaseSystem = eqx.field(static=True)

    def __init__(
        self,
        key: jax.Array,
        system: BaseSystem,
        horizon: int,
        width: int = 32,
        unit: Float[Array, "T du"] | None = None,
    ):
        channels, seen = len(system.design_names), len(system.observation_names)
        keys = jax.random.split(noise.as_key(key), 4)
        self.encoder = eqx.nn.Linear(seen + 2 * channels + 1, width, dtype=jnp.float32, key=keys[0])
        self.cell = eqx.nn.GRUCell(width, width, dtype=jnp.float32, key=keys[1])
        self.hidden = eqx.nn.Linear(width, width, dtype=jnp.float32, key=keys[2])
        silent = eqx.nn.Linear(width, channels, dtype=jnp.float32, key=keys[3])
        self.head = jax.tree.map(jnp.zeros_like, silent)  # so that it begins as the plan
        self.plan = jnp.zeros((horizon, channels)) if unit is None else _beyond(unit)
        self.expected, self.spread = jnp.zeros((horizon, seen)), jnp.ones((horizon, seen))
        self.log_std, self.share, self.system = jnp.full(channels, -jnp.inf), jnp.ones(()), system

    @property
    def trained_for(self) -> int:
        """How many experiments it was trained for: the length of the plan, which begins again after them."""
        return self.plan.shape[0]

    def init(self) -> Memory:
        """Return nothing seen."""
        return Memory(jnp.zeros((), jnp.int32), jnp.zeros(self.cell.hidden_size, jnp.float32))

    @bound
    def step(
        self, key: jax.Array, carry: Memory, y: Float[Array, " dy"], u_previous: Float[Array, " du"]
    ) -> tuple[Memory, Float[Array, " du"]]:
        """Return the planned design, as the network changes it."""
        carry, middle = self.advance(carry, y, u_previous)
        unit = finite(within(middle + jnp.exp(self.log_std) * noise.normals(key, middle.shape)))
        wanted = self.system.designs.scale(unit)
        return carry, self.system.designs.clip(limits.slewed(self.system, wanted, u_previous))

    def mean(self) -> "Feedback":
        """Return the same without noise."""
        return self.with_noise(0.0)

    def with_noise(self, std: Any) -> "Feedback":
        """Return the same with this standard deviation of designs, in the unit box."""
        return eqx.tree_at(lambda policy: policy.log_std, self, jnp.full_like(self.log_std, jnp.log(std)))

    def alone(self, share: Any = 0.0) -> "Feedback":
        """Return the plan with only a share of the feedback."""
        return eqx.tree_at(lambda policy: policy.share, self, jnp.asarray(share, float))

    def inputs(self) -> Float[np.ndarray, "T du"]:
        """Return what it would apply if the network said nothing."""
        wanted = self.system.designs.scale(jnp.clip(self.plan, -1.0, 1.0))
        return np.asarray(self.system.designs.clip(np.asarray(limits.playable(self.system, wanted))))

    def advance(
        self, carry: Memory, y: Float[Array, " dy"], u_previous: Float[Array, " du"]
    ) -> tuple[Memory, Float[Array, " du"]]:
        """Return the next carry and the middle of the next design, in the unit box or beyond it."""
        names = self.system.observation_names
        if y.shape != (len(names),):
            raise NestbedError(
                f"the policy was made for {self.system.name}, with the observations {names}, but got one of shape "
                f"{y.shape}; use it with the system that it was trained on."
            )
        t = carry.done % self.plan.shape[0]
        off = jnp.clip((y - self.expected[t]) / self.spread[t], -SEEN, SEEN)
        time = 2.0 * t / self.plan.shape[0] - 1.0
        seen = jnp.concatenate([off, self.system.designs.unscale(u_previous), self.plan[t], time[None]])
        state = self.cell(jnp.tanh(self.encoder(seen.astype(self.head.weight.dtype))), carry.state)
        added = self.head(jnp.tanh(self.hidden(state))).astype(float)
        return Memory(carry.done + 1, state), _near(self.plan[t] + self.share * added)

    def log_likelihood(self, observations: Float[Array, "T1 dy"], designs: Float[Array, "T du"]) -> Float[Array, ""]:
        """Return log π of all designs of one record: those at a limit count with all that is beyond it."""
        system = self.system
        previous = jnp.concatenate([jnp.array(system.rest_design)[None], designs[:-1]])
        _, middle = jax.lax.scan(
            lambda carry, now: self.advance(carry, *now), self.init(), (observations[:-1], previous)
        )
        reach = jnp.array([system.slew.get(name, jnp.inf) for name in system.design_names])
        low, high = (jnp.clip(system.designs.unscale(previous + sign * reach), -1.0, 1.0) for sign in (-1.0, 1.0))
        unit, std = system.designs.unscale(designs), jnp.exp(self.log_std)
        inside = -0.5 * ((unit - middle) / std) ** 2 - self.log_std - 0.5 * noise.LOG_2PI
        below, above = (jax.scipy.stats.norm.logcdf(side / std) for side in (low - middle, middle - high))
        return jnp.sum(jnp.where(unit <= low + EDGE, below, jnp.where(unit >= high - EDGE, above, inside)))


EDGE = 1e-9
"""How near a design counts as at its limit."""
QUANTILES, RAN_AWAY = (0.16, 0.5, 0.84), 100.0
"""Where a standard deviation and the middle of most rigs are, and how many times that a deviation tells of runaways."""


def begin(key: jax.Array, system: BaseSystem, unit: Float[Array, "T du"], width: int) -> Feedback:
    """Return a plan whose feedback has still to be learned, and that knows what the plan leads to."""
    policy = Feedback(key, system, unit.shape[0], width, unit)
    expected, spread = _outcomes(system, jnp.asarray(policy.inputs()))
    spread = jnp.maximum(spread, LEAST * np.array(predictive_scales(system))[:, 1])
    return eqx.tree_at(lambda policy: (policy.expected, policy.spread), policy, (expected, spread))


@eqx.filter_jit
def _outcomes(system: BaseSystem, inputs: Float[Array, "T du"]) -> Any:
    """Return the mean and the spread of what is seen before each input."""
    theta_key, record_key = jax.random.split(jax.random.key(0))
    theta = system.parameters.draw(theta_key, (RIGS,))
    record = play(record_key, system, jnp.broadcast_to(inputs, (RIGS, *inputs.shape)), theta).record
    return _middle_and_spread(record.observations[:, :-1])


def _middle_and_spread(seen: Float[Array, "R T dy"]) -> Any:
    """Return mean and standard deviation over rigs; median and quantiles where some of them ran away."""
    mean, deviation = jnp.mean(seen, axis=0), jnp.std(seen, axis=0)
    low, middle, high = jnp.nanquantile(jnp.where(jnp.isfinite(seen), seen, jnp.nan), jnp.array(QUANTILES), axis=0)
    width = 0.5 * (high - low)
    sound = jnp.isfinite(mean) & (deviation <= RAN_AWAY * width + EDGE * jnp.abs(middle))
    return jnp.where(sound, mean, middle), jnp.where(sound, deviation, width)


def _near(middle: Float[Array, " du"]) -> Float[Array, " du"]:
    """Return what is not so far beyond the limits that noise would never lead back: there nothing more is learned."""
    return (1.0 + FAR) * within(middle / (1.0 + FAR))


def _beyond(unit: Float[Array, "T du"]) -> Float[Array, "T du"]:
    """Return a sequence of the unit box that lies beyond it where it is at a limit."""
    return jnp.where(jnp.abs(unit) > 1.0 - 1e-6, (1.0 + FAR) * unit, unit)
