"""Particle beliefs by iterated batch importance sampling (`alg:ibis`)."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nestbed.belief import history, metropolis
from nestbed.belief.base import Belief, Evidence, Record, Upkeep, components
from nestbed.errors import at_least_one
from nestbed.prior import Components
from nestbed.smc import resampling
from nestbed.system import BaseSystem

CHUNK = 8192
"""Particles rejuvenated together: enough to keep the cores busy, few enough not to drag fresh trajectories along."""


class Particles(NamedTuple):
    """M weighted parameter particles for each of N trajectories, one (N, M) array per parameter."""

    position: Components  # unconstrained coordinates
    theta: Components  # the same particles as parameters
    log_weights: Float[Array, "N M"]  # normalised
    log_likelihood: Float[Array, "N M"]  # of the whole record so far
    ess: Float[Array, " N"]


class Kept(NamedTuple):
    """What a reference keeps of its particles at each step."""

    position: Components
    log_weights: Float[Array, "N M"]
    log_likelihood: Float[Array, "N M"]
    ess: Float[Array, " N"]


@dataclass(frozen=True)
class IBIS(Belief):
    """Reweight; where the effective sample size falls, resample and move by random-walk Metropolis."""

    system: BaseSystem
    particles: int
    moves: int
    threshold: float = 0.75  # of M
    walk: metropolis.Walk = metropolis.Walk(scale=1.0, floor=1e-3)
    kind = "ibis"

    def __post_init__(self) -> None:
        at_least_one(particles=self.particles, moves=self.moves)

    def init(self, key: jax.Array, count: int) -> Particles:
        """Draw particles from the prior."""
        position = self.system.parameters.sample(key, (count, self.particles))
        return self._evenly(position, jnp.zeros((count, self.particles)))

    def rejuvenate(
        self, key: jax.Array, state: Particles, record: Record, step: Int[Array, ""]
    ) -> tuple[Particles, Upkeep]:
        """Resample and move the trajectories whose ESS fell, a chunk at a time; the others cost nothing."""
        count, size = state.log_weights.shape
        chunk = max(1, min(count, CHUNK // size))
        tired = state.ess < self.threshold * size
        amount = jnp.sum(tired, dtype=jnp.int32)
        order = jnp.argsort(~tired, stable=True).astype(jnp.int32)  # the tired first
        order = jnp.pad(order, (0, -count % chunk), constant_values=count)

        def refresh(i: Int[Array, ""], carry: tuple[Particles, Upkeep]) -> tuple[Particles, Upkeep]:
            state, upkeep = carry
            rows = jax.lax.dynamic_slice(order, (i * chunk,), (chunk,))
            rows = jnp.where(i * chunk + jnp.arange(chunk) < amount, rows, count)  # count: read clamped, never written
            taken, seen = jax.tree.map(lambda leaf: leaf.at[rows].get(mode="clip"), (state, record))
            fresh, chain = self._resample_move(jax.random.fold_in(key, i), taken, seen, step)
            state = jax.tree.map(lambda leaf, new: leaf.at[rows].set(new, mode="drop"), state, fresh)
            return state, _add(upkeep, chain, rows < count, rows, self.moves)

        turns = (amount + chunk - 1) // chunk
        return jax.lax.fori_loop(0, turns, refresh, (state, _nothing(amount, len(state.theta))))

    def _resample_move(
        self, key: jax.Array, state: Particles, record: Record, step: Int[Array, ""]
    ) -> tuple[Particles, metropolis.Chain]:
        """Resample the particles of every given trajectory and move them."""
        resample_key, move_key = jax.random.split(key)
        ancestors = resampling.systematic(resample_key, state.log_weights)
        position, log_likelihood = jax.tree.map(
            lambda leaf: jnp.take_along_axis(leaf, ancestors, axis=1), (state.position, state.log_likelihood)
        )
        table = history.tabulate(*record)
        chain = jax.lax.fori_loop(
            0,
            self.moves,
            lambda i, chain: metropolis.move(
                jax.random.fold_in(move_key, i), self.system, chain, table, step, self.walk
            ),
            metropolis.start(position, log_likelihood),
        )
        return self._evenly(chain.position, chain.log_likelihood), chain

    def sample(
        self, key: jax.Array, state: Particles, x: Float[Array, "N dx"], u: Float[Array, "N du"]
    ) -> Float[Array, "N dx"]:
        """Pick a particle by its weight, then draw the outcome it predicts."""
        which, noise = jax.random.split(key)
        chosen = resampling.pick(which, state.log_weights)[:, None]
        theta = tuple(jnp.take_along_axis(value, chosen, axis=1) for value in state.theta)
        return jnp.concatenate(self.system.sample_next(noise, components(x), components(u), theta), axis=1)

    def update(
        self, state: Particles, x: Float[Array, "N dx"], u: Float[Array, "N du"], following: Float[Array, "N dx"]
    ) -> tuple[Particles, Evidence]:
        """Reweight by the outcome's density; the gain's terms follow from the weights before and after."""
        log_density = self.system.log_density(components(x), components(u), state.theta, components(following))
        log_weights = state.log_weights + log_density
        top = jnp.max(log_weights, axis=-1)
        weights = jnp.exp(log_weights - top[:, None])
        total = jnp.sum(weights, axis=-1)
        log_predictive = jnp.log(total) + top
        expected = jnp.sum(jnp.where(weights > 0, weights * log_density, 0.0), axis=-1) / total
        updated = Particles(
            position=state.position,
            theta=state.theta,
            log_weights=log_weights - log_predictive[:, None],
            log_likelihood=state.log_likelihood + log_density,
            ess=total**2 / jnp.sum(weights**2, axis=-1),
        )
        return updated, Evidence(expected, log_predictive)

    def culprit(
        self, state: Particles, x: Float[Array, "N dx"], u: Float[Array, "N du"], following: Float[Array, "N dx"]
    ) -> Float[Array, "N dtheta"]:
        """Return each trajectory's first particle whose prediction is not finite."""
        mean = self.system.mean(components(x), components(u), state.theta)
        finite = jnp.isfinite(sum(mean) + jnp.zeros_like(state.log_weights))
        first = jnp.argmin(finite, axis=-1)[:, None]
        return jnp.concatenate([jnp.take_along_axis(value, first, axis=1) for value in state.theta], axis=1)

    def kept(self, state: Particles) -> Kept:
        """Return all but the parameters, which follow from the positions."""
        return Kept(state.position, state.log_weights, state.log_likelihood, state.ess)

    def restored(self, kept: Kept) -> Particles:
        """Rebuild the particles of a reference."""
        theta = self.system.parameters.constrain(kept.position)
        return Particles(kept.position, theta, kept.log_weights, kept.log_likelihood, kept.ess)

    def moments(self, state: Particles) -> tuple[Float[Array, "N dtheta"], Float[Array, "N dtheta dtheta"]]:
        """Return the weighted mean and covariance of the parameters."""
        weights = jnp.exp(state.log_weights)
        theta = jnp.stack(state.theta, axis=-1)
        mean = jnp.einsum("nm,nmi->ni", weights, theta)
        centred = theta - mean[:, None]
        return mean, jnp.einsum("nm,nmi,nmj->nij", weights, centred, centred)

    def _evenly(self, position: Components, log_likelihood: Float[Array, "C M"]) -> Particles:
        """Return particles of equal weight."""
        rows, size = log_likelihood.shape
        uniform = jnp.full((rows, size), -jnp.log(float(size)))
        theta = self.system.parameters.constrain(position)
        return Particles(position, theta, uniform, log_likelihood, jnp.full(rows, float(size)))


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
