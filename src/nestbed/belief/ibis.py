"""Particle beliefs by iterated batch importance sampling (`alg:ibis`)."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nestbed import noise
from nestbed.belief import history, metropolis
from nestbed.belief.base import SURPRISE, Belief, Evidence, Record, Upkeep, components
from nestbed.errors import at_least_one
from nestbed.prior import Components
from nestbed.smc import resampling
from nestbed.system import BaseSystem

WALK = metropolis.Walk()
CHUNK = 8
"""Share of the trajectories rejuvenated together, 1 / CHUNK: enough of them to keep the cores busy, few enough not
to drag many fresh ones along."""


class Particles(NamedTuple):
    """M weighted parameter particles for each of N trajectories, one (N, M) array per parameter."""

    position: Components  # unconstrained coordinates
    theta: Components  # the same particles as parameters
    log_weights: Float[Array, "N M"]  # normalised
    log_posterior: Float[Array, "N M"]  # unnormalised, given the whole record so far
    ess: Float[Array, " N"]


class Kept(NamedTuple):
    """What a reference keeps of its particles at each step."""

    position: Components
    log_weights: Float[Array, "N M"]
    log_posterior: Float[Array, "N M"]
    ess: Float[Array, " N"]


@dataclass(frozen=True)
class IBIS(Belief):
    """Reweight; where the effective sample size falls, resample and move by random-walk Metropolis."""

    system: BaseSystem
    particles: int
    moves: int
    threshold: float = 0.75  # of M
    walk: metropolis.Walk = WALK
    kind = "ibis"

    def __post_init__(self) -> None:
        at_least_one(particles=self.particles, moves=self.moves)

    def init(self, key: jax.Array, count: int) -> Particles:
        """Draw particles from the prior."""
        position = self.system.parameters.sample(key, (count, self.particles))
        return self._evenly(position, self.system.parameters.log_density(position))

    def rejuvenate(
        self, key: jax.Array, state: Particles, record: Record, step: Int[Array, ""]
    ) -> tuple[Particles, Upkeep]:
        """Resample and move the trajectories whose ESS fell, a chunk at a time; the others cost nothing."""
        count, size = state.log_weights.shape
        chunk = max(1, count // CHUNK)
        tired = state.ess < self.threshold * size
        lanes = 3  # of random numbers, for each chunk
        amount = jnp.sum(tired, dtype=jnp.int32)
        order = jnp.argsort(~tired, stable=True).astype(jnp.int32)  # the tired first
        order = jnp.pad(order, (0, -count % chunk))

        def refresh(i: Int[Array, ""], carry: tuple[Particles, Upkeep]) -> tuple[Particles, Upkeep]:
            state, upkeep = carry
            rows = jax.lax.dynamic_slice(order, (i * chunk,), (chunk,))
            active = jnp.minimum(amount - i * chunk, chunk)  # the rest of the chunk is not tired: left as it was
            taken, seen = jax.tree.map(lambda leaf: leaf[rows], (state, record))
            fresh, chain = self._resample_move(key, lanes * i, taken, seen, step)
            state = _write(state, rows, fresh, active)
            return state, _add(upkeep, chain, jnp.arange(chunk) < active, rows, self.moves)

        turns = (amount + chunk - 1) // chunk
        return jax.lax.fori_loop(0, turns, refresh, (state, _nothing(amount, len(state.theta))))

    def _resample_move(
        self, key: jax.Array, lane: Int[Array, ""], state: Particles, record: Record, step: Int[Array, ""]
    ) -> tuple[Particles, metropolis.Chain]:
        """Resample the particles of every given trajectory and move them."""
        offset = noise.uniforms(key, (state.log_weights.shape[0], 1), lane)
        ancestors = resampling.systematic(offset, state.log_weights)
        position, log_posterior = jax.tree.map(
            lambda leaf: jnp.take_along_axis(leaf, ancestors, axis=1), (state.position, state.log_posterior)
        )
        table = history.tabulate(*record)
        chain, _ = jax.lax.scan(
            lambda chain, draws: (metropolis.move(draws, self.system, self.walk, chain, table, step), None),
            metropolis.start(position, log_posterior),
            metropolis.draw(key, lane + 1, self.moves, position),
        )
        return self._evenly(chain.position, chain.log_posterior), chain

    def sample(
        self, key: jax.Array, state: Particles, x: Float[Array, "N dx"], u: Float[Array, "N du"]
    ) -> Float[Array, "N dx"]:
        """Pick a particle by its weight, then draw the outcome it predicts."""
        uniforms = noise.uniforms(key, (x.shape[0], 1))
        chosen = resampling.pick(uniforms, state.log_weights)[:, None]
        theta = tuple(jnp.take_along_axis(value, chosen, axis=1) for value in state.theta)
        normals = noise.normals(key, x.shape, lane=1)
        return jnp.concatenate(self.system.outcome(components(normals), components(x), components(u), theta), axis=1)

    def update(
        self,
        state: Particles,
        x: Float[Array, "N dx"],
        u: Float[Array, "N du"],
        following: Float[Array, "N dx"],
    ) -> tuple[Particles, Evidence]:
        """Reweight by the outcome's density; the gain's terms follow from the weights before and after."""
        log_density = self.system.log_density(components(x), components(u), state.theta, components(following))
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
            log_weights=log_weights - log_predictive[:, None],
            log_posterior=state.log_posterior + log_density,
            ess=total**2 / jnp.sum(squares, axis=-1),
        )
        most = math.log(self.particles) + SURPRISE
        return updated, Evidence(above / total - jnp.log(total), log_predictive, most)

    def expected_gains(
        self, key: jax.Array, state: Particles, x: Float[Array, "N dx"], u: Float[Array, "N C du"], outcomes: int
    ) -> Float[Array, "N C"]:
        """Average log f(x′ | θ) − log Σ W f(x′ | θ′) over outcomes x′ of particles θ, drawn alike for all designs."""
        rows = x.shape[0]
        offsets = noise.uniforms(key, (rows, outcomes))
        upto = jnp.cumsum(jnp.exp(state.log_weights), axis=-1)
        targets = (jnp.arange(outcomes) + offsets) / outcomes * upto[:, -1:]  # one in each of as many equal shares
        chosen = jnp.sum(upto[:, None, :] <= targets[:, :, None], axis=-1)
        chosen = jnp.minimum(chosen, self.particles - 1)
        own = tuple(jnp.take_along_axis(value, chosen, axis=1) for value in state.theta)
        normals = tuple(noise.normals(key, (len(self.system.state_names), rows, outcomes), lane=1))
        now = components(x)
        others = tuple(value[:, None, :] for value in state.theta)

        def of(design: Float[Array, "N du"]) -> Float[Array, " N"]:
            given = components(design)
            following = self.system.outcome(normals, now, given, own)
            wide = [tuple(value[..., None] for value in values) for values in (now, given, following)]
            mixture = self.system.log_density(wide[0], wide[1], others, wide[2]) + state.log_weights[:, None, :]
            likely = self.system.log_density(now, given, own, following)
            return jnp.mean(likely - jax.nn.logsumexp(mixture, axis=-1), axis=-1)

        return jax.lax.map(of, jnp.swapaxes(u, 0, 1)).T

    def culprit(
        self,
        state: Particles,
        x: Float[Array, "N dx"],
        u: Float[Array, "N du"],
        following: Float[Array, "N dx"],
    ) -> Float[Array, "N dtheta"]:
        """Return each trajectory's first particle whose prediction is not finite."""
        mean = self.system.mean(components(x), components(u), state.theta)
        finite = jnp.isfinite(sum(mean) + jnp.zeros_like(state.log_weights))
        return metropolis.first_where(~finite, state.theta)

    def kept(self, state: Particles) -> Kept:
        """Return all but the parameters, which follow from the positions."""
        return Kept(state.position, state.log_weights, state.log_posterior, state.ess)

    def restored(self, kept: Kept) -> Particles:
        """Rebuild the particles of a reference."""
        theta = self.system.parameters.constrain(kept.position)
        return Particles(kept.position, theta, kept.log_weights, kept.log_posterior, kept.ess)

    def moments(self, state: Particles) -> tuple[Float[Array, "N dtheta"], Float[Array, "N dtheta dtheta"]]:
        """Return the weighted mean and covariance of the parameters."""
        weights = jnp.exp(state.log_weights)
        theta = jnp.stack(state.theta, axis=-1)
        mean = jnp.einsum("nm,nmi->ni", weights, theta)
        centred = theta - mean[:, None]
        return mean, jnp.einsum("nm,nmi,nmj->nij", weights, centred, centred)

    def _evenly(self, position: Components, log_posterior: Float[Array, "C M"]) -> Particles:
        """Return particles of equal weight."""
        rows, size = log_posterior.shape
        uniform = jnp.full((rows, size), -jnp.log(float(size)))
        theta = self.system.parameters.constrain(position)
        return Particles(position, theta, uniform, log_posterior, jnp.full(rows, float(size)))


def _write(state: Particles, rows: Int[Array, " C"], fresh: Particles, active: Int[Array, ""]) -> Particles:
    """Put the first `active` fresh trajectories in their rows, a row at a time: a scatter would go by elements."""

    def put(j: Int[Array, ""], state: Particles) -> Particles:
        return jax.tree.map(
            lambda leaf, new: jax.lax.dynamic_update_index_in_dim(leaf, new[j], rows[j], 0), state, fresh
        )

    return jax.lax.fori_loop(0, active, put, state)


def _nothing(amount: Int[Array, ""], parameters: int) -> Upkeep:
    zero = jnp.zeros((), jnp.int32)
    return Upkeep(amount, jnp.zeros(()), jnp.zeros((), bool), zero, jnp.zeros(parameters))


def _add(
    upkeep: Upkeep, chain: metropolis.Chain, active: Bool[Array, " C"], rows: Int[Array, " C"], moves: int
) -> Upkeep:
    """Add one chunk's acceptance, and its first NaN unless an earlier chunk had one."""
    faulty = chain.faulty & active
    first = jnp.argmax(faulty)
    return Upkeep(
        upkeep.refreshed,
        upkeep.accepted + jnp.sum(jnp.where(active, chain.accepted, 0.0)) / moves,
        upkeep.faulty | jnp.any(faulty),
        jnp.where(upkeep.faulty, upkeep.fault_row, rows[first]),
        jnp.where(upkeep.faulty, upkeep.fault_theta, chain.fault_theta[first]),
    )
