"""Recurrent Gaussian policies, squashed into the design box: ξ = a · tanh(s) + b with s ~ Normal(m, σ²)."""

import math
from functools import lru_cache, partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestbed.model import checks, predictive, sensors
from nestbed.model.box import Box
from nestbed.model.system import BaseSystem
from nestbed.numerics import noise
from nestbed.numerics.errors import NestbedError, at_least_one, did_you_mean
from nestbed.numerics.noise import LOG_2PI
from nestbed.policies.base import Hashable, bound

CELLS = {"gru": eqx.nn.GRUCell, "lstm": eqx.nn.LSTMCell}
EDGE = 1.0 - 2.0**-53
"""The largest double below 1: a design on its limit counts as this close to it, at s = ±18.7."""


class Squash(NamedTuple):
    """tanh(s) stretched from ±1 to the box, in double precision so that s can be read back from ξ."""

    box: Box

    def forward(self, s: Float[Array, "*n du"]) -> Float[Array, "*n du"]:
        """Return the design."""
        return self.box.scale(jnp.tanh(s))

    def inverse(self, u: Float[Array, "*n du"]) -> Float[Array, "*n du"]:
        """Return s; a design on its limit gives a large finite number."""
        return jnp.arctanh(jnp.clip(self.box.unscale(u), -EDGE, EDGE))

    def log_slope(self, s: Float[Array, "*n du"]) -> Float[Array, "*n du"]:
        """Return log dξ/ds = log of half the box + log(1 − tanh² s), which does not cancel where tanh is nearly 1."""
        half = 0.5 * jnp.subtract(jnp.array(self.box.high), jnp.array(self.box.low))
        return jnp.log(half) + 2.0 * (math.log(2.0) - jnp.abs(s) - jax.nn.softplus(-2.0 * jnp.abs(s)))


class Recurrent(Hashable):
    """Encoder, recurrent layers and head give the mean m; one learned log σ per design gives the spread.

    The policy sees each state from its prior-predictive median in units of its spread, so that the model's own units do
    not matter, or what the system's method `view(x)` makes of it; with `sees_previous` the design before as well, from
    −1 to 1. The networks run in the type of their weights, float32; densities in float64.
    """

    encoder: tuple[eqx.nn.Linear, ...]
    cells: tuple[Any, ...]
    head: tuple[eqx.nn.Linear, ...]
    log_std: Float[Array, " du"]
    system: BaseSystem = eqx.field(static=True)
    sees_previous: bool = eqx.field(static=True)
    scales: tuple[tuple[float, float], ...] = eqx.field(static=True)  # median and spread of each state; none: as it is
    trained_for: int | None = eqx.field(static=True)  # experiments; None: not known

    def __init__(
        self,
        key: jax.Array,
        system: BaseSystem,
        *,
        cell: str = "gru",
        encoder: tuple[int, ...] = (256, 256, 64),
        recurrent: tuple[int, ...] = (64, 64),
        head: tuple[int, ...] = (256, 256),
        log_std: float = 0.0,
        sees_previous: bool = False,
        scaled: bool = True,
        trained_for: int | None = None,
    ):
        checks.instance(system)
        if cell not in CELLS:
            raise NestbedError(f"there is no recurrent cell {cell!r}; {did_you_mean(str(cell), CELLS)}.")
        for part, sizes in {"encoder": encoder, "recurrent": recurrent, "head": head}.items():
            for size in sizes:
                at_least_one(**{f"a layer of the policy's {part}": size})
        designs = len(system.design_names)
        self.system, self.sees_previous, self.trained_for = system, sees_previous, trained_for
        self.scales = predictive_scales(system) if scaled and not hasattr(system, "view") else ()
        self.log_std = jnp.full(designs, log_std, jnp.float32)
        inputs = self._see(jnp.zeros(len(system.observation_names)), jnp.zeros(designs)).shape[0]
        widths = (inputs, *encoder, *recurrent, *head, designs)
        kinds = (eqx.nn.Linear,) * len(encoder) + (CELLS[cell],) * len(recurrent) + (eqx.nn.Linear,) * (len(head) + 1)
        layers = eqx.filter_eval_shape(
            lambda: tuple(
                kind(*sizes, dtype=jnp.float32, key=jax.random.key(0))
                for kind, sizes in zip(kinds, pairwise(widths), strict=True)
            )
        )
        leaves, structure = jax.tree.flatten(layers)
        layers = jax.tree.unflatten(structure, _weights(noise.as_key(key), tuple(leaf.shape for leaf in leaves)))
        cut, end = len(encoder), len(encoder) + len(recurrent)
        self.encoder, self.cells, self.head = layers[:cut], layers[cut:end], layers[end:]

    def init(self) -> Any:
        """Return recurrent layers at rest."""
        return tuple(_rest(cell, self.log_std.dtype) for cell in self.cells)

    @bound
    def step(
        self, key: jax.Array, carry: Any, y: Float[Array, " dy"], u_previous: Float[Array, " du"]
    ) -> tuple[Any, Float[Array, " du"]]:
        """Draw one design."""
        carry, mean = self.advance(carry, y, u_previous)
        return carry, self.squash.forward(mean + self.std * noise.normals(key, mean.shape))

    def mean(self) -> "Mean":
        """Return the mean policy: the squashed output of the network, without noise."""
        return Mean(self)

    def log_density(
        self, carry: Any, y: Float[Array, " dy"], u_previous: Float[Array, " du"], u: Float[Array, " du"]
    ) -> tuple[Any, Float[Array, ""]]:
        """Return the next carry and log π(u | what was seen)."""
        carry, mean = self.advance(carry, y, u_previous)
        return carry, self._log_normal(mean, u)

    def log_likelihood(self, observations: Float[Array, "T1 dy"], designs: Float[Array, "T du"]) -> Float[Array, ""]:
        """Return log π of all designs of one trajectory: only the recurrent layers go step by step."""
        previous = jnp.concatenate([jnp.array(self.system.rest_design)[None], designs[:-1]])
        codes = jax.vmap(self._encode)(observations[:-1], previous)
        _, codes = jax.lax.scan(lambda held, code: self._recur(held, code), self.init(), codes)
        means = jax.vmap(self._decode)(codes)
        return self._log_normal(means, designs)

    @property
    def entropy(self) -> Float[Array, ""]:
        """Entropy of s, before it is squashed."""
        return jnp.sum(self.log_std.astype(float)) + 0.5 * self.log_std.shape[0] * (1.0 + LOG_2PI)

    @property
    def std(self) -> Float[Array, " du"]:
        """σ of s, before it is squashed."""
        return jnp.exp(self.log_std.astype(float))

    @property
    def squash(self) -> Squash:
        """The way into the design box."""
        return Squash(self.system.designs)

    def advance(
        self, carry: Any, y: Float[Array, " dy"], u_previous: Float[Array, " du"]
    ) -> tuple[Any, Float[Array, " du"]]:
        """Return the next carry and m, the mean of s."""
        names = self.system.observation_names
        if y.shape != (len(names),):
            raise NestbedError(
                f"the policy was made for {self.system.name}, with the observations {names}, but got one of shape "
                f"{y.shape}; use it with the system that it was trained on."
            )
        carry, code = self._recur(carry, self._encode(y, u_previous))
        return carry, self._decode(code)

    def _see(self, y: Float[Array, " dy"], u_previous: Float[Array, " du"]) -> Float[Array, " inputs"]:
        seen = _view(self.system, y)
        if self.scales:
            middle, spread = np.array(self.scales).T
            seen = (seen - middle) / spread
        if self.sees_previous:
            seen = jnp.concatenate([seen, self.system.designs.unscale(u_previous)])
        return seen.astype(self.log_std.dtype)

    def _encode(self, y: Float[Array, " dy"], u_previous: Float[Array, " du"]) -> Float[Array, " code"]:
        return _dense(self.encoder, self._see(y, u_previous))

    def _recur(self, carry: Any, code: Float[Array, " code"]) -> tuple[Any, Float[Array, " memory"]]:
        memory = []
        for cell, held in zip(self.cells, carry, strict=True):
            memory.append(cell(code, held))
            code = memory[-1][0] if isinstance(memory[-1], tuple) else memory[-1]
        return tuple(memory), code

    def _decode(self, code: Float[Array, " code"]) -> Float[Array, " du"]:
        return _dense(self.head, code).astype(float)

    def _log_normal(self, mean: Float[Array, "*n du"], u: Float[Array, "*n du"]) -> Float[Array, ""]:
        s = self.squash.inverse(u)
        deviation = (s - mean) / self.std
        return jnp.sum(-0.5 * (deviation**2 + LOG_2PI) - jnp.log(self.std) - self.squash.log_slope(s))


class Mean(Hashable):
    """A recurrent policy without its noise."""

    policy: Recurrent

    @property
    def system(self) -> BaseSystem:
        """The system that the policy was made for."""
        return self.policy.system

    @property
    def trained_for(self) -> int | None:
        """How many experiments the policy was trained for."""
        return self.policy.trained_for

    def init(self) -> Any:
        """Return recurrent layers at rest."""
        return self.policy.init()

    @bound
    def step(
        self, key: jax.Array, carry: Any, y: Float[Array, " dy"], u_previous: Float[Array, " du"]
    ) -> tuple[Any, Float[Array, " du"]]:
        """Return the mean design."""
        carry, mean = self.policy.advance(carry, y, u_previous)
        return carry, self.policy.squash.forward(mean)


def _view(system: BaseSystem, y: Float[Array, " dy"]) -> Float[Array, " inputs"]:
    """Return what a policy sees of an observation: all of it, or what the system's method `view` says."""
    view = getattr(system, "view", None)
    if view is None:
        return y
    with checks.traceable(f"{system.name}.view"):
        seen = view(system.Observation(*y))
    seen = seen if isinstance(seen, tuple | list) else (seen,)
    if not seen or any(jnp.shape(value) != () for value in seen):
        raise NestbedError(
            f"{system.name}.view returned {[jnp.shape(value) for value in seen]} for one observation, but it must "
            "return a tuple of numbers, such as (jnp.sin(x.angle), x.velocity)."
        )
    return jnp.stack([jnp.asarray(value, float) for value in seen])


@lru_cache(maxsize=64)
def predictive_scales(system: BaseSystem) -> tuple[tuple[float, float], ...]:
    """Return the median and the spread of each observation, over rigs, noise, random and constant designs and time.

    Six digits are kept, so that other machines find the same.
    """
    visited = predictive.visited(system)
    with jax.ensure_compile_time_eval():
        shown = sensors.seen(system, visited.x, visited.theta) if system.sensors else visited.x
    seen = np.stack(np.broadcast_arrays(*(np.asarray(value) for value in shown)), axis=1)
    seen = np.where(np.isfinite(seen), seen, 0.0)
    low, middle, high = np.quantile(seen, [0.16, 0.5, 0.84], axis=0)
    with np.errstate(over="ignore"):
        spread = np.where(high > low, 0.5 * (high - low), seen.std(axis=0))
    spread = np.where((spread > 0.0) & np.isfinite(spread), spread, 1.0)
    return tuple((float(f"{m:.6g}"), float(f"{s:.6g}")) for m, s in zip(middle, spread, strict=True))


def _dense(layers: tuple[eqx.nn.Linear, ...], values: Float[Array, " a"]) -> Float[Array, " b"]:
    """Apply dense layers with rectifiers between them."""
    for layer in layers[:-1]:
        values = jax.nn.relu(layer(values))
    return layers[-1](values) if layers else values


def _rest(cell: Any, kind: Any) -> Any:
    zeros = jnp.zeros(cell.hidden_size, kind)
    return (zeros, zeros) if isinstance(cell, eqx.nn.LSTMCell) else zeros


@partial(jax.jit, static_argnums=1)
def _weights(key: jax.Array, shapes: tuple[tuple[int, ...], ...]) -> list[jax.Array]:
    """Return matrices uniform as Glorot and Bengio have them, and biases of 0, from one draw."""
    draw = jax.random.uniform(key, (sum(map(math.prod, shapes)),), jnp.float32, -1.0, 1.0)
    ends = list(accumulate(map(math.prod, shapes), initial=0))
    parts = [draw[start:end].reshape(shape) for (start, end), shape in zip(pairwise(ends), shapes, strict=True)]
    return [part * math.sqrt(6.0 / sum(part.shape)) if part.ndim == 2 else jnp.zeros_like(part) for part in parts]
