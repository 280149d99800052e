"""Particle beliefs by iterated batch importance sampling (`alg:ibis`)."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nestbed.belief import metropolis, particles
from nestbed.belief.base import Belief, Evidence, RejuvenationInfo, Settled
from nestbed.belief.particles import Particles
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


class Compressed(NamedTuple):
    """Particles without their parameters, which follow from the positions."""

    position: Components
    carry: Carry
    log_weights: Float[Array, "N M"]
    log_posterior: Float[Array, "N M"]
    ess: Float[Array, " N"]


@dataclass(frozen=True)
class IBIS(Settled):
    """Reweight; where the effective sample size falls, resample and move by random-walk Metropolis.

    `particles` is M, `moves` the Metropolis steps of a rejuvenation, `threshold` the share of M that the effective
    sample size must fall below for one.
    """

    system: BaseSystem
    particles: int
    moves: int
    threshold: float = 0.75
    walk: metropolis.Walk = WALK
    given: int | None = None
    kind = "ibis"
    together = 8

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
        return particles.evenly(self.system.parameters, position, carry, self.system.parameters.log_density(position))

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

        def renew(i: Int[Array, ""], rows: Int[Array, " C"], active: Int[Array, ""], so_far: Any) -> Any:
            state, info = so_far
            taken, seen = jax.tree.map(lambda leaf: leaf[rows], (state, record))
            fresh, chain = self._resample_move(key, LANES * i, taken, seen, t)
            state = particles.write(state, rows, fresh, active)
            return state, _add(info, chain, jnp.arange(chunk) < active, rows, self.moves)

        return particles.by_chunks(degenerate, chunk, renew, (state, _no_info(amount, len(state.theta))))

    def _resample_move(
        self, key: jax.Array, lane: Int[Array, ""], state: Particles, record: Record, t: Int[Array, ""]
    ) -> tuple[Particles, metropolis.Chain]:
        """Resample the particles of every given record and move them."""
        # Resample
        offset = noise.uniforms(key, (state.log_weights.shape[0], 1), lane)
        ancestors = resampling.systematic(offset, state.log_weights)
        held = state.position, state.carry, state.log_posterior
        position, carry, log_posterior = particles.take(held, ancestors)

        # Move
        table = history.tabulate(record)
        chain, _ = jax.lax.scan(
            lambda chain, draws: (metropolis.move(draws, self.likelihood, self.walk, chain, table, t), None),
            metropolis.start(position, carry, log_posterior),
            metropolis.draw(key, lane + 1, self.moves, position),
        )
        return particles.evenly(self.system.parameters, chain.position, chain.carry, chain.log_posterior), chain

    def sample(self, key: jax.Array, state: Particles, u: Float[Array, "N du"]) -> Float[Array, "N dy"]:
        """Draw a particle by its weight, then the observation it predicts."""
        return particles.sample(key, self.likelihood, state, u)

    def update(self, state: Particles, u: Float[Array, "N du"], y: Float[Array, "N dy"]) -> tuple[Particles, Evidence]:
        """Reweight by the outcome's density."""
        return particles.reweight(self.likelihood, state, u, y)

    def expected_gains(
        self, key: jax.Array, state: Particles, u: Float[Array, "N C du"], outcomes: int
    ) -> Float[Array, "N C"]:
        """Average over outcomes of particles, drawn alike for all designs."""
        return particles.expected_gains(key, self.likelihood, state, u, outcomes)

    def culprit(self, state: Particles, u: Float[Array, "N du"]) -> Float[Array, "N dtheta"]:
        """Return each record's first particle whose prediction is not finite."""
        return particles.culprit(self.likelihood, state, u)

    def divergence(self, state: Particles, log_evidence: Float[Array, " N"]) -> Float[Array, " N"]:
        """Return E[log p(z | θ)] over the particles, less the log-evidence."""
        return particles.divergence(self.system.parameters, state, log_evidence)

    def of_given_records(self, remembered: int | None = None) -> "IBIS":
        """Return the same for such records."""
        return dataclasses.replace(self, given=remembered)

    def surprise(self, state: Particles, u: Float[Array, "N du"], y: Float[Array, "N dy"]) -> Float[Array, "N dy"]:
        """Return where outcomes lie in what all particles predict."""
        return particles.surprise(self.likelihood, state, u, y)

    def moments(self, state: Particles) -> tuple[Float[Array, "N dtheta"], Float[Array, "N dtheta dtheta"]]:
        """Return the weighted mean and covariance of the parameters."""
        return particles.moments(state)

    def compress(self, state: Particles) -> Compressed:
        """Return all but the parameters."""
        return Compressed(state.position, state.carry, state.log_weights, state.log_posterior, state.ess)

    def expand(self, compressed: Compressed) -> Particles:
        """Rebuild the particles of a reference."""
        theta = self.system.parameters.constrain(compressed.position)
        return Particles(theta=theta, **compressed._asdict())


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
