"""Guided beliefs: few particles, drawn anew where the posterior is.

Where an outcome leaves the weights degenerate, a heavy-tailed Gaussian is fitted to the whole record, particles are
drawn from it and weighted exactly by prior and history. The average of their weights is the evidence of the record, so
that what an experiment gains follows from a ratio of evidences and is not limited by log M.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nestbed.belief import kernels, mixture, particles, proposal
from nestbed.belief.base import Belief, Evidence, RejuvenationInfo
from nestbed.belief.kernels import Kernels
from nestbed.belief.mixture import Mixture
from nestbed.belief.proposal import Proposal
from nestbed.likelihood import history
from nestbed.likelihood.base import Carry, Record, components
from nestbed.model.prior import Components
from nestbed.model.system import BaseSystem
from nestbed.numerics import noise, resampling
from nestbed.numerics.errors import NestbedError

GOOD = 0.25
"""Effective share of fresh draws below which one Gaussian does not fit."""
MISSED, RATIO = 0.05, 20.0
"""Nor does it where this share of the old particles' weight lies where it should have that many times more draws."""
HOPELESS = 1 / 16
"""Effective share of the draws below which nothing fits."""
REDRAWN = 3
"""How often particles of given records are drawn anew around those before, where one Gaussian does not fit."""
STEPS, BOLD = 16, 4
"""Gauss–Newton steps of a fit, which starts from the likeliest particle, and how many of them are whole ones."""
ERROR, FEWER = 3.0, 100.0
"""What errors of evidences may take from a gain, in nats; and as much more, over M."""
CHUNK, SMALLEST, FEW = 8, 16, 4
"""Share of the records fitted together, 1 / CHUNK, and how many at least; and those whose posterior is no Gaussian."""
LANES, KEEP, START = 5, 3, 4
"""Streams of random numbers that each chunk takes, and those that tell which particle is kept and where fits start."""
ALONE = 8.0
"""Effective particles below which those of the prior do not tell of other modes, so that fits start elsewhere too."""
STARTS, MOST_STARTS = 8, 63
"""Particles for each such start, and how many starts there are at most."""
LOOKED, LOOKS, LEFT = 512, 64, 0.5
"""Draws of the prior that are looked over when a record is complete, those that fits start from, and the share that is
left to choose them from."""
NEAR, LACK = 5.0, 0.1
"""Standard deviations of a fit within which the belief should have its share, and the part of it that it must have."""
FAINT = 20.0
"""Nats that another mode may lack at first and yet be the one that later outcomes speak for."""
APART, SOME = 3.0, 0.02
"""Standard deviations between fits to different places, and the share of the evidence there that one must not miss."""


class GuidedParticles(NamedTuple):
    """M weighted particles for each of N records, and what they were drawn for."""

    position: Components
    theta: Components
    carry: Carry
    log_weights: Float[Array, "N M"]
    log_posterior: Float[Array, "N M"]
    ess: Float[Array, " N"]
    log_evidence: Float[Array, " N"]  # log p(z₀:ₜ)
    fresh: Float[Array, " N"]  # effective sample size when they were drawn
    divergence: Float[Array, " N"]  # of the last outcome, as in its `Evidence`
    log_predictive: Float[Array, " N"]
    doubtful: Int[Array, " N"]  # experiments after which nothing fitted first; 0: none
    several: Bool[Array, " N"]  # whether a fit has ever led elsewhere

    @property
    def unconstrained(self) -> tuple[Array, Array]:
        """The weighted mean and covariance of unconstrained coordinates."""
        return particles.weighted(self.log_weights, self.position)


@dataclass(frozen=True)
class Guided(Belief):
    """Reweight; where the effective sample size falls, fit the posterior and draw particles from the fit.

    `particles` is M, `threshold` the share of the effective sample size of fresh draws below which it must fall. A
    `robust` one takes mixtures where one Gaussian does not fit; they take long to compile, so it is only used then.
    One whose outcomes are `simulated` keeps an old particle among fresh ones (see `_drawn`).
    """

    system: BaseSystem
    particles: int
    threshold: float = 0.6
    robust: bool = False
    simulated: bool = True
    given: int | None = None
    kind = "guided"
    together = 128
    padded = True
    refreshes = True

    def __post_init__(self) -> None:
        if self.particles < 2:
            raise NestbedError(f"a guided belief needs at least 2 particles, but got {self.particles}.")

    @classmethod
    def make(cls, system: BaseSystem, particles: int, moves: int) -> Belief:
        """Return particles for any system; they do not move."""
        return cls(system, particles)

    @property
    def most(self) -> float:
        """No limit: evidences are of fresh draws."""
        return math.inf

    def init(self, key: jax.Array, first: Float[Array, "N dy"]) -> GuidedParticles:
        """Draw particles from the prior."""
        prior, count = self.system.parameters, first.shape[0]
        position = prior.sample(key, (count, self.particles))
        carry = self.likelihood.start(components(first), prior.constrain(position))
        nothing = jnp.zeros(count)
        return GuidedParticles(
            *particles.evenly(prior, position, carry, prior.log_density(position)),
            nothing,
            jnp.full(count, float(self.particles)),
            nothing,
            nothing,
            jnp.zeros(count, jnp.int32),
            jnp.zeros(count, bool),
        )

    def begin(self, state: GuidedParticles, first: Float[Array, "N dy"]) -> GuidedParticles:
        """Return particles of the prior with another first observation."""
        return state._replace(carry=self.likelihood.start(components(first), state.theta))

    def rejuvenate(
        self, key: jax.Array, state: GuidedParticles, record: Record, t: Int[Array, ""]
    ) -> tuple[GuidedParticles, RejuvenationInfo | None]:
        """Return the state as it is: particles were drawn anew as soon as the outcome was seen."""
        return state, None

    def sample(self, key: jax.Array, state: GuidedParticles, u: Float[Array, "N du"]) -> Float[Array, "N dy"]:
        """Draw a particle by its weight, then the observation it predicts."""
        return particles.sample(key, self.likelihood, state, u)

    def update(
        self, state: GuidedParticles, u: Float[Array, "N du"], y: Float[Array, "N dy"]
    ) -> tuple[GuidedParticles, Evidence]:
        """Reweight by the outcome's density."""
        state, found = particles.reweight(self.likelihood, state, u, y)
        state = state._replace(
            log_evidence=state.log_evidence + found.log_predictive,
            divergence=found.divergence,
            log_predictive=found.log_predictive,
        )
        return state, self.recalled(state)

    def recalled(self, state: GuidedParticles) -> Evidence:
        """Return what the last outcome said."""
        least = jnp.where(state.doubtful > 0, -jnp.inf, -ERROR - FEWER / self.particles)
        return Evidence(state.divergence, state.log_predictive, self.most, least)

    def refresh(
        self,
        key: jax.Array,
        before: GuidedParticles,
        state: GuidedParticles,
        evidence: Evidence,
        record: Record,
        t: Int[Array, ""],
    ) -> tuple[GuidedParticles, Evidence, RejuvenationInfo | None]:
        """Fit and draw anew where the weights are degenerate; by a mixture where one Gaussian does not fit."""
        gauss_key, mixture_key = jax.random.split(key)
        count = state.fresh.shape[0]
        least = 0.0 if self.simulated else GOOD * self.particles  # draws that were poor are not to be the measure
        degenerate = state.ess < self.threshold * jnp.maximum(state.fresh, least)

        def by_gaussian(i: Int[Array, ""], taken: Any, earlier: Any, seen: Record) -> Any:
            fitted, elsewhere = self._fitted(gauss_key, LANES * i, earlier, taken, seen, t)
            taken = taken._replace(several=taken.several | (elsewhere > fitted.log_mass - FAINT))
            places = proposal.whiten(self.system.parameters, taken.position)

            def drawn(key: jax.Array, fitted: Proposal | Kernels) -> tuple[Any, ...]:
                return *self._redrawn(key, LANES * i, fitted, taken), fitted.log_density(places)

            def judged(position: Components, log_proposal: Any, log_old: Any) -> Any:
                fresh, faulty = self._weighed(position, log_proposal, earlier, taken, seen, t)
                good = (fresh.fresh >= GOOD * self.particles) & (self._missed(log_old, taken, fresh) < MISSED)
                return fresh, ~good | (elsewhere > fresh.log_evidence + math.log(SOME)), faulty

            if self.simulated:
                return judged(*drawn(gauss_key, fitted))
            bent_key = jax.random.fold_in(gauss_key, 1)

            def redrawn(n: Int[Array, ""], cloud: GuidedParticles) -> tuple[Any, ...]:
                around = proposal.whiten(self.system.parameters, cloud.position)
                bent = kernels.beside(fitted, around, cloud.log_weights)
                return jax.lax.cond(
                    n == 0, lambda: drawn(gauss_key, fitted), lambda: drawn(jax.random.fold_in(bent_key, n), bent)
                )

            return _attempted(lambda n, cloud: judged(*redrawn(n, cloud)), taken, self._no_fault)

        chunk = min(count, max(SMALLEST, count // CHUNK))
        renewed, poor, fault = _renewed(degenerate, chunk, by_gaussian, before, state, record, self._no_fault)
        if self.robust:
            renewed, poor, fault = self._by_mixtures(mixture_key, poor, before, renewed, record, t, fault)
        renewed = renewed._replace(doubtful=jnp.where(poor & (renewed.doubtful == 0), t, renewed.doubtful))
        share = jnp.sum(jnp.where(degenerate, renewed.fresh, 0.0)) / self.particles
        info = RejuvenationInfo(jnp.sum(degenerate, dtype=jnp.int32), share, *fault)
        return renewed, self.recalled(renewed), info

    @property
    def _no_fault(self) -> "Fault":
        return Fault(jnp.zeros((), bool), jnp.zeros((), jnp.int32), jnp.zeros(len(self.system.parameter_names)))

    def _by_mixtures(
        self,
        key: jax.Array,
        chosen: Bool[Array, " N"],
        before: GuidedParticles,
        state: GuidedParticles,
        record: Record,
        t: Int[Array, ""],
        fault: "Fault",
    ) -> tuple[GuidedParticles, Bool[Array, " N"], "Fault"]:
        """Draw the chosen records' particles from mixtures led there from the prior."""

        def work(i: Int[Array, ""], taken: Any, earlier: Any, seen: Record) -> Any:
            parts, led = (mixture.PARTS, mixture.PARTICLES) if self.simulated else (mixture.MORE, mixture.MANY)
            fitted = mixture.fit(jax.random.fold_in(key, i), self.likelihood, seen, t, parts=parts, led=led)
            fresh, faulty = self._drawn(key, LANES * i, fitted, earlier, taken, seen, t)
            return fresh, fresh.fresh < HOPELESS * self.particles, faulty

        return _renewed(chosen, min(chosen.shape[0], FEW), work, before, state, record, fault)

    def looks(self, state: GuidedParticles) -> bool:
        """Return whether a fit has ever led elsewhere."""
        return bool(jnp.any(state.several))

    def overlooked(
        self, key: jax.Array, state: GuidedParticles, record: Record, t: Int[Array, ""]
    ) -> Bool[Array, " N"]:
        """Fit from all over the prior, and return where the particles lack what is found there.

        An early outcome may have left so little of a mode that it was let go, and later ones may speak for it. Where no
        fit ever led elsewhere there is nothing to look for.
        """
        likelihood, prior, rows = self.likelihood, self.system.parameters, state.ess.shape[0]
        position = prior.sample(key, (rows, LOOKED))
        _, log_likelihood = history.log_likelihood(likelihood, history.tabulate(record), t, prior.constrain(position))
        evenly = jnp.zeros((rows, LOOKED))
        softened = mixture.tempered(evenly, jnp.where(jnp.isnan(log_likelihood), -jnp.inf, log_likelihood), LEFT)
        chosen = resampling.systematic(noise.uniforms(key, (rows, 1), START), softened)[:, :: LOOKED // LOOKS]
        starts = jnp.stack(proposal.whiten(prior, particles.take(position, chosen)), axis=-1)
        mine, weights = proposal.whiten(prior, state.position), jnp.exp(state.log_weights)

        def look(i: Int[Array, ""], lacking: Bool[Array, " N"]) -> Bool[Array, " N"]:
            found = proposal.fit(likelihood, record, t, starts[:, i], steps=STEPS, bold=BOLD)
            share = jax.nn.sigmoid(found.log_mass - state.log_evidence)
            near = jnp.sum(jnp.where(found.square(mine) < NEAR**2, weights, 0.0), axis=1)
            return lacking | ((share > SOME) & (near < LACK * share))

        return state.several & jax.lax.fori_loop(0, LOOKS, look, jnp.zeros(rows, bool))

    def unfit(self, state: GuidedParticles, t: Int[Array, ""]) -> Bool[Array, " N"] | None:
        """Return which records' last draws are poor, unless mixtures are what they were drawn from."""
        return None if self.robust else state.doubtful == t

    def mending_key(self, key: jax.Array) -> jax.Array:
        """Return the key that mixtures have in the step itself."""
        return jax.random.split(key)[1]

    def mended(
        self,
        key: jax.Array,
        state: GuidedParticles,
        record: Record,
        t: Int[Array, ""],
        chosen: Bool[Array, " N"],
    ) -> tuple[GuidedParticles, Float[Array, " N"], RejuvenationInfo]:
        """Draw particles from mixtures led there from the prior."""
        found, poor, fault = self._by_mixtures(key, chosen, state, state, record, t, self._no_fault)
        rise = found.log_evidence - state.log_evidence
        since = jnp.where(chosen & (state.doubtful == t), 0, state.doubtful)
        found = found._replace(
            divergence=jnp.where(chosen, found.divergence - state.log_predictive, state.divergence),
            log_predictive=state.log_predictive + rise,
            doubtful=jnp.where(poor & (since == 0), t, since),
        )
        share = jnp.sum(jnp.where(chosen, found.fresh, 0.0)) / self.particles
        return found, rise, RejuvenationInfo(jnp.sum(chosen, dtype=jnp.int32), share, *fault)

    def _fitted(
        self, key: jax.Array, lane: Any, before: GuidedParticles, state: GuidedParticles, record: Record, t: Any
    ) -> tuple[Proposal, Float[Array, " C"]]:
        """Return the fit with the most evidence under it, in logs, and the most under fits to other places.

        Where an outcome has left only a few of the prior's particles, they cannot tell of other modes: then some that
        a part of it leaves are starts too, evenly by weight. Later particles are draws from a fit that was good.
        """
        prior, rows = self.system.parameters, state.ess.shape[0]
        alone = (state.ess < ALONE) & (state.fresh == self.particles)
        likeliest = _likeliest(self.system, state)
        others = min(MOST_STARTS, self.particles // STARTS)

        def evenly_chosen() -> Int[Array, "C S"]:
            softened = mixture.tempered(before.log_weights, state.log_weights, LEFT)
            chosen = resampling.systematic(noise.uniforms(key, (rows, 1), lane + START), softened)
            return chosen[:, :: self.particles // max(others, 1)].astype(jnp.int32)

        room = jax.eval_shape(evenly_chosen)
        chosen = jax.lax.cond(jnp.any(alone), evenly_chosen, lambda: jnp.zeros(room.shape, room.dtype))

        def attempt(i: Int[Array, ""], so_far: Any) -> Any:
            best, elsewhere = so_far
            drawn = particles.take(before.position, jax.lax.dynamic_slice_in_dim(chosen, jnp.maximum(i - 1, 0), 1, 1))
            start = jnp.where(i == 0, likeliest, jnp.concatenate(proposal.whiten(prior, drawn), axis=1))
            found = proposal.fit(self.likelihood, record, t, start, steps=STEPS, bold=BOLD)
            better = (found.log_mass > best.log_mass) & ((i == 0) | alone)
            less = jnp.where(better, best.log_mass, found.log_mass)
            other = alone & (best.distance(found.location) > APART)
            return proposal.where(better, found, best), jnp.where(other, jnp.maximum(elsewhere, less), elsewhere)

        none = Proposal.nowhere(likeliest), jnp.full(rows, -jnp.inf)
        return jax.lax.fori_loop(0, 1 + others * jnp.any(alone), attempt, none)

    def _drawn(
        self,
        key: jax.Array,
        lane: Any,
        fitted: Proposal | Mixture,
        before: GuidedParticles,
        state: GuidedParticles,
        record: Record,
        t: Int[Array, ""],
    ) -> tuple[GuidedParticles, "Fault"]:
        """Draw particles and weight them by prior and history; the last outcome's density is kept apart.

        Where outcomes are simulated, one of the old particles, drawn by weight, stays among them: so a draw of the new
        ones by weight is distributed as one of the old ones is, and outcomes that are drawn from particles have the
        distribution of the model's, however few they are. The evidence is that of the others.
        """
        return self._weighed(*self._redrawn(key, lane, fitted, state), before, state, record, t)

    def _weighed(
        self,
        position: Components,
        log_proposal: Float[Array, "C M"],
        before: GuidedParticles,
        state: GuidedParticles,
        record: Record,
        t: Int[Array, ""],
    ) -> tuple[GuidedParticles, "Fault"]:
        """Weight draws by prior and history."""
        likelihood, prior = self.likelihood, self.system.parameters
        drawn = position, prior.constrain(position), log_proposal
        position, theta, log_proposal = jax.lax.optimization_barrier(drawn)
        carry, log_likelihood = history.log_likelihood(likelihood, history.tabulate(record), t - 1, theta)
        u, y = components(record.designs[:, t - 1]), components(record.observations[:, t])
        carry, log_density = likelihood.advance(carry, u, y, theta)
        log_likelihood += log_density
        log_weights = proposal.log_prior(prior, position) + log_likelihood - log_proposal
        bad = jnp.isnan(log_weights)
        log_weights = jnp.where(bad, -jnp.inf, log_weights)
        if not self.simulated:
            log_weights = log_weights.at[:, -1].set(-jnp.inf)

        top = jnp.max(log_weights, axis=1, keepdims=True)
        weights = jnp.exp(log_weights - top)
        total = jnp.sum(weights, axis=1)
        log_evidence = jnp.log(jnp.sum(weights[:, :-1], axis=1)) + top[:, 0] - math.log(self.particles - 1)
        ess = total**2 / jnp.sum(weights**2, axis=1)
        log_predictive = log_evidence - before.log_evidence
        expected = jnp.sum(jnp.where(weights > 0.0, weights * log_density, 0.0), axis=1) / total
        fresh = GuidedParticles(
            position,
            theta,
            carry,
            log_weights - top - jnp.log(total)[:, None],
            prior.log_density(position) + log_likelihood,
            ess,
            log_evidence,
            ess,
            expected - log_predictive,
            log_predictive,
            state.doubtful,
            state.several,
        )
        first = jnp.argmax(bad.any(axis=1))
        fault = Fault(bad.any(), first.astype(jnp.int32), particles.first_where(bad, theta)[first])
        return fresh, fault

    def _redrawn(
        self, key: jax.Array, lane: Any, fitted: Proposal | Kernels | Mixture, state: GuidedParticles
    ) -> tuple[Components, Float[Array, "C M"]]:
        """Return M − 1 draws and, last, one of the old particles, with the proposal's log-densities."""
        prior, rows = self.system.parameters, state.ess.shape[0]
        numbers = fitted.random_numbers(key, (len(self.system.parameter_names), rows, self.particles - 1), lane)
        w, log_proposal = fitted.draw(numbers)
        chosen = resampling.categorical(noise.uniforms(key, (rows, 1), lane + KEEP), state.log_weights)
        kept = particles.take(proposal.whiten(prior, state.position), chosen[:, None])
        w = tuple(jnp.concatenate(pair, axis=1) for pair in zip(w, kept, strict=True))
        return proposal.unwhiten(prior, w), jnp.concatenate([log_proposal, fitted.log_density(kept)], axis=1)

    def _missed(
        self, log_proposal: Float[Array, "C M"], old: GuidedParticles, fresh: GuidedParticles
    ) -> Float[Array, " C"]:
        """Return how much of the old particles' weight lies where a proposal has far too few draws."""
        log_weights = old.log_posterior + math.log(math.prod(self.system.parameters.scales)) - log_proposal
        beyond = log_weights - fresh.log_evidence[:, None] > math.log(RATIO)
        return jnp.sum(jnp.where(beyond, jnp.exp(old.log_weights), 0.0), axis=1)

    def of_given_records(self, remembered: int | None = None) -> "Guided":
        """Return the same with fresh particles only."""
        return dataclasses.replace(self, simulated=False, given=remembered)

    def surprise(self, state: GuidedParticles, u: Float[Array, "N du"], y: Float[Array, "N dy"]) -> Any:
        """Return where outcomes lie in what all particles predict."""
        return particles.surprise(self.likelihood, state, u, y)

    def firmer(self, state: GuidedParticles) -> "Guided | None":
        """Return the same with mixtures where one Gaussian does not fit, if it did not."""
        failed = not self.robust and bool(jnp.any(state.doubtful > 0))
        return dataclasses.replace(self, robust=True) if failed else None

    def doubtful(self, state: GuidedParticles) -> Int[Array, " N"]:
        """Return after how many experiments nothing fitted."""
        return state.doubtful

    def expected_gains(
        self, key: jax.Array, state: GuidedParticles, u: Float[Array, "N C du"], outcomes: int
    ) -> Float[Array, "N C"]:
        """Average over outcomes of particles, drawn alike for all designs."""
        return particles.expected_gains(key, self.likelihood, state, u, outcomes)

    def culprit(self, state: GuidedParticles, u: Float[Array, "N du"]) -> Float[Array, "N dtheta"]:
        """Return each record's first particle whose prediction is not finite."""
        return particles.culprit(self.likelihood, state, u)

    def compress(self, state: GuidedParticles) -> GuidedParticles:
        """Return all but the parameters."""
        return state._replace(theta=())

    def expand(self, compressed: GuidedParticles) -> GuidedParticles:
        """Rebuild the particles of a reference."""
        return compressed._replace(theta=self.system.parameters.constrain(compressed.position))

    def divergence(self, state: GuidedParticles, log_evidence: Float[Array, " N"]) -> Float[Array, " N"]:
        """Return E[log p(z | θ)] over the particles, less the log-evidence of their own."""
        return particles.divergence(self.system.parameters, state, state.log_evidence)

    def moments(self, state: GuidedParticles) -> tuple[Float[Array, "N dtheta"], Float[Array, "N dtheta dtheta"]]:
        """Return the weighted mean and covariance of the parameters."""
        return particles.moments(state)


class Fault(NamedTuple):
    """The first parameters whose likelihood is no number, if any are."""

    faulty: Bool[Array, ""]
    row: Int[Array, ""]
    theta: Float[Array, " dtheta"]


def _likeliest(system: BaseSystem, cloud: GuidedParticles) -> Float[Array, "C d"]:
    """Return each record's particle of the highest posterior density, whitened."""
    best = particles.first_where(
        cloud.log_posterior == jnp.max(cloud.log_posterior, axis=1, keepdims=True), cloud.position
    )
    return jnp.concatenate(proposal.whiten(system.parameters, components(best)), axis=1)


def _attempted(attempt: Any, state: GuidedParticles, fault: Fault) -> Any:
    """Draw until nothing is poor: from fits, around the old particles, then around what that gave.

    What stays poor is the best of it, or the old particles where they are better.
    """

    def turn(so_far: Any) -> Any:
        n, kept, poor, fault = so_far
        cloud = jax.tree.map(lambda old, new: jnp.where(n == 1, old, new), state, kept)
        fresh, lacking, found = attempt(n, cloud)
        fault = jax.tree.map(lambda old, new: jnp.where(fault.faulty, old, new), fault, found)
        better = poor & (~lacking | (fresh.ess > kept.ess))
        return n + 1, proposal.where(better, fresh, kept), poor & lacking, fault

    begun = jnp.zeros((), jnp.int32), state, jnp.ones(state.ess.shape, bool), fault
    return jax.lax.while_loop(lambda so_far: (so_far[0] <= REDRAWN) & jnp.any(so_far[2]), turn, begun)[1:]


def _renewed(
    chosen: Bool[Array, " N"],
    chunk: int,
    work: Any,
    before: GuidedParticles,
    state: GuidedParticles,
    record: Record,
    fault: Fault,
) -> tuple[GuidedParticles, Bool[Array, " N"], Fault]:
    """Renew the chosen records, a chunk at a time; return also which of them need more, and the first fault."""

    def turn(i: Int[Array, ""], rows: Int[Array, " C"], active: Int[Array, ""], so_far: Any) -> Any:
        state, poor, fault = so_far
        fresh, lacking, found = work(i, *jax.tree.map(lambda leaf: leaf[rows], (state, before, record)))
        state, poor = particles.write((state, poor), rows, (fresh, lacking), active)
        first = found._replace(row=rows[found.row])
        new = found.faulty & (found.row < active) & ~fault.faulty
        return state, poor, jax.tree.map(lambda a, b: jnp.where(new, a, b), first, fault)

    return particles.by_chunks(chosen, chunk, turn, (state, jnp.zeros_like(chosen), fault))
