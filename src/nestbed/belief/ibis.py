"""Particle beliefs by iterated batch importance sampling (`alg:ibis`)."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nestbed.belief import metropolis
from nestbed.belief.base import SURPRISE, Belief, Evidence, RejuvenationInfo
from nestbed.likelihood import history
from nestbed.likelihood.base import Carry, Record, components
from nestbed.model.prior import Components
from nestbed.model.system import BaseSystem
from nestbed.numerics import noise, resampling
from nestbed.numerics.errors import at_least_one

WALK = metropolis.Walk()
CHUNK = 8
"""Share of the records rejuvenated together, 1 / CHUNK: enough of them to keep the cores busy, few enough not to drag
many others along."""
LANES = 3
"""Streams of random numbers that each chunk takes."""


class Particles(NamedTuple):
    """M weighted parameter particles for each of N records, one (N, M) array per parameter."""

    position: Components  # unconstrained coordinates
    theta: Components  # the same particles as parameters
    carry: Carry  # of the likelihood: (N, M) leaves, or (N, 1) where it hangs on no parameter
    log_weights: Float[Array, "N M"]  # normalised
    log_posterior: Float[Array, "N M"]  # unnormalised, given the whole record so far
    ess: Float[Array, " N"]


class Compressed(NamedTuple):
    """Particles without their parameters, which follow from the positions."""

    position: Components
    carry: Carry
    log_weights: Float[Array, "N M"]
    log_posterior: Float[Array, "N M"]
    ess: Float[Array, " N"]


@dataclass(frozen=True)
class IBIS(Belief):
    """Reweight; where the effective sample size falls, resample and move by random-walk Metropolis.

    `particles` is M, `moves` the Metropolis steps of a rejuvenation, `threshold` the share of M that the effective
    sample size must fall below for one.
    """

    system: BaseSystem
    particles: int
    moves: int
    threshold: float = 0.75
    walk: metropolis.Walk = WALK
    kind = "ibis"

    def __post_init__(self) -> None:
        at_least_one(particles=self.particles, moves=self.moves)

    @classmethod
    def make(cls, system: BaseSystem, particles: int, moves: int) -> Belief:
        """Return particles for any system."""
        return cls(system, particles, moves)

    @property
    def most(self) -> float:
        """log M: the next observation is drawn from the M particles themselves."""
        return math.log(self.particles)

    def init(self, key: jax.Array, first: Float[Array, "N dy"]) -> Particles:
        """Draw particles from the prior."""
        position = self.system.parameters.sample(key, (first.shape[0], self.particles))
        theta = self.system.parameters.constrain(position)
        carry = self.likelihood.start(components(first), theta)
        return self._evenly(position, carry, self.system.parameters.log_density(position))

    def begin(self, state: Particles, first: Float[Array, "N dy"]) -> Particles:
        """Return particles of the prior with another first observation."""
        return state._replace(carry=self.likelihood.start(components(first), state.theta))

    def rejuvenate(
        self, key: jax.Array, state: Particles, record: Record, t: Int[Array, ""]
    ) -> tuple[Particles, RejuvenationInfo]:
        """Resample and move the records whose ESS fell, a chunk at a time; the others cost nothing."""
        count, size = state.log_weights.shape
        chunk = max(1, count // CHUNK)
        degenerate = state.ess < self.threshold * size
        amount = jnp.sum(degenerate, dtype=jnp.int32)
        order = jnp.argsort(~degenerate, stable=True).astype(jnp.int32)  # the degenerate first
        order = jnp.pad(order, (0, -count % chunk))

        def renew(i: Int[Array, ""], so_far: tuple[Particles, RejuvenationInfo]) -> tuple[Particles, RejuvenationInfo]:
            state, info = so_far
            rows = jax.lax.dynamic_slice(order, (i * chunk,), (chunk,))
            active = jnp.minimum(amount - i * chunk, chunk)  # the rest of the chunk is left as it was
            taken, seen = jax.tree.map(lambda leaf: leaf[rows], (state, record))
            fresh, chain = self._resample_move(key, LANES * i, taken, seen, t)
            state = _write(state, rows, fresh, active)
            return state, _add(info, chain, jnp.arange(chunk) < active, rows, self.moves)

        turns = (amount + chunk - 1) // chunk
        return jax.lax.fori_loop(0, turns, renew, (state, _no_info(amount, len(state.theta))))

    def _resample_move(
        self, key: jax.Array, lane: Int[Array, ""], state: Particles, record: Record, t: Int[Array, ""]
    ) -> tuple[Particles, metropolis.Chain]:
        """Resample the particles of every given record and move them."""
        # Resample
        offset = noise.uniforms(key, (state.log_weights.shape[0], 1), lane)
        ancestors = resampling.systematic(offset, state.log_weights)
        held = state.position, state.carry, state.log_posterior
        position, carry, log_posterior = _take(held, ancestors)

        # Move
        table = history.tabulate(record)
        chain, _ = jax.lax.scan(
            lambda chain, draws: (metropolis.move(draws, self.likelihood, self.walk, chain, table, t), None),
            metropolis.start(position, carry, log_posterior),
            metropolis.draw(key, lane + 1, self.moves, position),
        )
        return self._evenly(chain.position, chain.carry, chain.log_posterior), chain

    def sample(self, key: jax.Array, state: Particles, u: Float[Array, "N du"]) -> Float[Array, "N dy"]:
        """Draw a particle by its weight, then the observation it predicts."""
        uniforms = noise.uniforms(key, (u.shape[0], 1))
        chosen = resampling.categorical(uniforms, state.log_weights)[:, None]
        theta, carry = _take((state.theta, state.carry), chosen)
        normals = noise.normals(key, (u.shape[0], len(self.system.observation_names)), lane=1)
        return jnp.concatenate(self.likelihood.sample(components(normals), carry, components(u), theta), axis=1)

    def update(self, state: Particles, u: Float[Array, "N du"], y: Float[Array, "N dy"]) -> tuple[Particles, Evidence]:
        """Reweight by the outcome's density; the gain's terms follow from the weights before and after."""
        carry, log_density = self.likelihood.advance(state.carry, components(u), components(y), state.theta)
        log_weights = state.log_weights + log_density
        top = jnp.max(log_weights, axis=-1)
        weights = jnp.exp(log_weights - top[:, None])
        total = jnp.sum(weights, axis=-1)
        log_predictive = jnp.log(total) + top
        # α + β of log f and log predictive both less the top: neither loses digits to the size of log f
        above = jnp.sum(jnp.where(weights > 0, weights * (log_density - top[:, None]), 0.0), axis=-1)
        squares = weights * jnp.minimum(weights, 1.0)  # the minimum keeps XLA from a second, slower exponential
        updated = Particles(
            position=state.position,
            theta=state.theta,
            carry=carry,
            log_weights=log_weights - log_predictive[:, None],
            log_posterior=state.log_posterior + log_density,
            ess=total**2 / jnp.sum(squares, axis=-1),
        )
        return updated, Evidence(above / total - jnp.log(total), log_predictive, self.most + SURPRISE)

    def expected_gains(
        self, key: jax.Array, state: Particles, u: Float[Array, "N C du"], outcomes: int
    ) -> Float[Array, "N C"]:
        """Average log f(y | θ) − log Σ W f(y | θ′) over outcomes y of particles θ, drawn alike for all designs."""
        rows = u.shape[0]
        offsets = noise.uniforms(key, (rows, outcomes))
        cdf = jnp.cumsum(jnp.exp(state.log_weights), axis=-1)
        targets = (jnp.arange(outcomes) + offsets) / outcomes * cdf[:, -1:]  # one in each of as many equal shares
        chosen = jnp.sum(cdf[:, None, :] <= targets[:, :, None], axis=-1)
        chosen = jnp.minimum(chosen, self.particles - 1)
        own, own_carry = _take((state.theta, state.carry), chosen)
        normals = tuple(noise.normals(key, (len(self.system.observation_names), rows, outcomes), lane=1))
        others, carry = jax.tree.map(lambda leaf: leaf[:, None, :], (state.theta, state.carry))

        def of(design: Float[Array, "N du"]) -> Float[Array, " N"]:
            given = components(design)
            y = self.likelihood.sample(normals, own_carry, given, own)
            wide_given, wide_y = (tuple(value[..., None] for value in values) for values in (given, y))
            _, density = self.likelihood.advance(carry, wide_given, wide_y, others)
            _, likely = self.likelihood.advance(own_carry, given, y, own)
            mixture = density + state.log_weights[:, None, :]
            return jnp.mean(likely - jax.nn.logsumexp(mixture, axis=-1), axis=-1)

        return jax.lax.map(of, jnp.swapaxes(u, 0, 1)).T

    def culprit(self, state: Particles, u: Float[Array, "N du"]) -> Float[Array, "N dtheta"]:
        """Return each record's first particle whose prediction is not finite."""
        mean, _ = self.likelihood.predict(state.carry, components(u), state.theta)
        finite = jnp.isfinite(sum(mean) + jnp.zeros_like(state.log_weights))
        return metropolis.first_where(~finite, state.theta)

    def compress(self, state: Particles) -> Compressed:
        """Return all but the parameters."""
        return Compressed(state.position, state.carry, state.log_weights, state.log_posterior, state.ess)

    def expand(self, compressed: Compressed) -> Particles:
        """Rebuild the particles of a reference."""
        theta = self.system.parameters.constrain(compressed.position)
        return Particles(theta=theta, **compressed._asdict())

    def moments(self, state: Particles) -> tuple[Float[Array, "N dtheta"], Float[Array, "N dtheta dtheta"]]:
        """Return the weighted mean and covariance of the parameters."""
        weights = jnp.exp(state.log_weights)
        theta = jnp.stack(state.theta, axis=-1)
        mean = jnp.einsum("nm,nmi->ni", weights, theta)
        centred = theta - mean[:, None]
        return mean, jnp.einsum("nm,nmi,nmj->nij", weights, centred, centred)

    def _evenly(self, position: Components, carry: Carry, log_posterior: Float[Array, "C M"]) -> Particles:
        """Return particles of equal weight."""
        rows, size = log_posterior.shape
        uniform = jnp.full((rows, size), -jnp.log(float(size)))
        theta = self.system.parameters.constrain(position)
        return Particles(position, theta, carry, uniform, log_posterior, jnp.full(rows, float(size)))


def _take(tree: Any, index: Int[Array, "N K"]) -> Any:
    """Return the particles of these numbers; what is the same for all particles stays as it is."""

    def take(leaf: Array) -> Array:
        places = index.reshape(index.shape + (1,) * (leaf.ndim - 2))
        return leaf if leaf.shape[1] == 1 else jnp.take_along_axis(leaf, places, axis=1)

    return jax.tree.map(take, tree)


def _write(state: Particles, rows: Int[Array, " C"], fresh: Particles, active: Int[Array, ""]) -> Particles:
    """Put the first `active` fresh records in their rows, a row at a time: a scatter would go by elements."""

    def put(j: Int[Array, ""], state: Particles) -> Particles:
        return jax.tree.map(
            lambda leaf, new: jax.lax.dynamic_update_index_in_dim(leaf, new[j], rows[j], 0), state, fresh
        )

    return jax.lax.fori_loop(0, active, put, state)


def _no_info(amount: Int[Array, ""], parameters: int) -> RejuvenationInfo:
    zero = jnp.zeros((), jnp.int32)
    return RejuvenationInfo(amount, jnp.zeros(()), jnp.zeros((), bool), zero, jnp.zeros(parameters))


def _add(
    info: RejuvenationInfo, chain: metropolis.Chain, active: Bool[Array, " C"], rows: Int[Array, " C"], moves: int
) -> RejuvenationInfo:
    """Add one chunk's acceptance, and its first NaN unless an earlier chunk had one."""
    faulty = chain.faulty & active
    first = jnp.argmax(faulty)
    return RejuvenationInfo(
        info.rejuvenated,
        info.acceptance + jnp.sum(jnp.where(active, chain.accepted, 0.0)) / moves,
        info.faulty | jnp.any(faulty),
        jnp.where(info.faulty, info.fault_row, rows[first]),
        jnp.where(info.faulty, info.fault_theta, chain.fault_theta[first]),
    )
