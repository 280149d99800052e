"""What every belief offers: one interface for exact posteriors and particles.

A belief object is static configuration. Its state is a pytree whose leaves all lead with the record axis (N), so that
a sweep resamples it like everything else it carries.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nestbed import likelihood as likelihoods
from nestbed.likelihood.base import Likelihood, Record
from nestbed.model.system import BaseSystem
from nestbed.numerics.errors import NestbedError

State = Any
"""A belief's running state, a pytree of arrays that lead with the record axis."""

FAR = 1e6
"""An outcome whose log-density is below −FAR lies a thousand standard deviations or more from all predictions."""
SURPRISE = 20.0
"""An outcome drawn from M particles gains more than log M + SURPRISE nats with probability exp(−SURPRISE) at most."""
SLACK = 1e-3
"""What rounding may take from a divergence that is 0: that of observations counts up to a tenth of their noise."""


class Evidence(NamedTuple):
    """What an outcome says: the gain of the experiment (`eq:stage_reward`), and its closed form where there is one."""

    divergence: Float[Array, " N"]  # α + β: E[log f − log predictive] under the belief after the outcome
    log_predictive: Float[Array, " N"]  # −β: log of the predictive density under the belief before it
    most: float  # what the divergence can come to
    least: Any = -SLACK  # likewise, where it may err
    entropy_drop: Float[Array, " N"] | None = None  # entropy of the belief before, less that after

    def gain(self, likelihood: Likelihood, form: str) -> Float[Array, " N"]:
        """Return r = α + β, with "constant_noise" α replaced by its expectation, or "closed_form": lost entropy."""
        if form == "closed_form" and self.entropy_drop is not None:
            return self.entropy_drop
        return -likelihood.noise_entropy() - self.log_predictive if form == "constant_noise" else self.divergence

    @property
    def possible(self) -> Bool[Array, " N"]:
        """Whether the numbers are within their range, so that rounding has not made them up."""
        within = (self.divergence >= self.least) & (self.divergence <= self.most)
        return within & (jnp.abs(self.log_predictive) <= FAR)


class RejuvenationInfo(NamedTuple):
    """What rejuvenating the beliefs took, and the first parameters that made a NaN, if any did."""

    rejuvenated: Int[Array, ""]  # records whose particles were resampled and moved
    acceptance: Float[Array, ""]  # sum over those of their acceptance rates
    faulty: Bool[Array, ""]
    fault_row: Int[Array, ""]
    fault_theta: Float[Array, " dtheta"]


class Belief(ABC):
    """p(θ | z₀:ₜ) for N records at once."""

    kind: ClassVar[str]  # its name in the registry
    closed_form: ClassVar[bool] = False  # whether the gain has a closed form
    together: ClassVar[int]  # independent records that are best run in one program; the same on every machine
    padded: ClassVar[bool] = False  # whether programs are for powers of two of records, so that few are compiled
    refreshes: ClassVar[bool] = False  # whether `refresh` draws at random: a reference then keeps what it gave
    given: int | None = None  # of records with gaps, uneven times or new beginnings: designs that are remembered
    system: BaseSystem

    @classmethod
    @abstractmethod
    def make(cls, system: BaseSystem, particles: int, moves: int) -> "Belief":
        """Return this belief for a system, of a size as far as it has one; raise where it does not suit."""

    @property
    def likelihood(self) -> Likelihood:
        """How likely the next observation is."""
        return likelihoods.of(self.system, given=self.given)

    @property
    @abstractmethod
    def most(self) -> float:
        """The most that one experiment can be seen to gain, in nats."""

    def of_given_records(self, remembered: int | None = None) -> "Belief":
        """Return the belief in the form that is best where outcomes are given, not drawn from it.

        With a number it takes records with gaps, uneven times or new beginnings; raise if it cannot.
        """
        if remembered is not None:
            raise NestbedError(
                f"belief={self.kind!r} takes one record at a time, with even steps and nothing missing; use "
                "belief='guided'."
            )
        return self

    @abstractmethod
    def surprise(self, state: State, u: Float[Array, "N du"], y: Float[Array, "N dy"]) -> Float[Array, "N dy"]:
        """Return where outcomes lie in what was predicted, as standard normal numbers; NaN where nothing is seen."""

    @abstractmethod
    def init(self, key: jax.Array, first: Float[Array, "N dy"]) -> State:
        """Return the prior as the belief of N records, of each of which the first observation was seen."""

    @abstractmethod
    def begin(self, state: State, first: Float[Array, "N dy"]) -> State:
        """Return a prior with another first observation."""

    @abstractmethod
    def rejuvenate(
        self, key: jax.Array, state: State, record: Record, t: Int[Array, ""]
    ) -> tuple[State, RejuvenationInfo | None]:
        """Renew the particles of the records whose weights are degenerate, after `t` experiments."""

    @abstractmethod
    def sample(self, key: jax.Array, state: State, u: Float[Array, "N du"]) -> Float[Array, "N dy"]:
        """Draw the next observation from the predictive distribution of each record."""

    @abstractmethod
    def update(self, state: State, u: Float[Array, "N du"], y: Float[Array, "N dy"]) -> tuple[State, Evidence]:
        """Condition on the outcome y of design u."""

    @abstractmethod
    def recalled(self, state: State) -> Evidence:
        """Return what the last outcome said, for beliefs that refresh."""

    @abstractmethod
    def firmer(self, state: State) -> "Belief | None":
        """Return a belief that does better where this one has failed, None where it has not or there is none."""

    @abstractmethod
    def doubtful(self, state: State) -> Int[Array, " N"] | None:
        """Return after how many experiments each record's belief first failed (0: never); None if it cannot."""

    @abstractmethod
    def looks(self, state: State) -> bool:
        """Return whether there may be parts of a posterior where the belief has nothing."""

    @abstractmethod
    def overlooked(self, key: jax.Array, state: State, record: Record, t: Int[Array, ""]) -> Bool[Array, " N"]:
        """Return which records' posteriors have a part where the belief has nothing, for beliefs that look."""

    @abstractmethod
    def unfit(self, state: State, t: Int[Array, ""]) -> Bool[Array, " N"] | None:
        """Return which records' beliefs the last of `t` outcomes has left so that they are to be mended.

        None: `mended` would do no better.
        """

    @abstractmethod
    def mending_key(self, key: jax.Array) -> jax.Array:
        """Return the key for mending after the step that another was for."""

    @abstractmethod
    def mended(
        self, key: jax.Array, state: State, record: Record, t: Int[Array, ""], chosen: Bool[Array, " N"]
    ) -> tuple[State, Float[Array, " N"], RejuvenationInfo]:
        """Return a belief made anew for the chosen records, with nothing overlooked.

        Also what their log-evidence rises by, and what it took.
        """

    @abstractmethod
    def refresh(
        self, key: jax.Array, before: State, state: State, evidence: Evidence, record: Record, t: Int[Array, ""]
    ) -> tuple[State, Evidence, RejuvenationInfo | None]:
        """Renew what an outcome has left degenerate, after `t` experiments, and judge the last by it.

        `before` and `state` are the belief before and after the last outcome, which the record holds.
        """

    @abstractmethod
    def expected_gains(
        self, key: jax.Array, state: State, u: Float[Array, "N C du"], outcomes: int
    ) -> Float[Array, "N C"]:
        """Return the expected gain of one experiment with each of C designs, by `outcomes` draws if not exactly.

        The draws are the same for all designs, so that their difference tells the designs apart.
        """

    @abstractmethod
    def culprit(self, state: State, u: Float[Array, "N du"]) -> Float[Array, "N dtheta"]:
        """Return for each record the parameters most to blame for an outcome of no finite density."""

    @abstractmethod
    def compress(self, state: State) -> State:
        """Return the part of a state that a reference must store."""

    @abstractmethod
    def expand(self, compressed: State) -> State:
        """Rebuild a state from what `compress` returned."""

    @abstractmethod
    def divergence(self, state: State, log_evidence: Float[Array, " N"]) -> Float[Array, " N"]:
        """Return the divergence of the posterior from the prior in nats: what the record has told, log p(z) given."""

    @abstractmethod
    def moments(self, state: State) -> tuple[Float[Array, "N dtheta"], Float[Array, "N dtheta dtheta"]]:
        """Return the mean and the covariance of the (constrained) parameters."""


class Settled(Belief):
    """A belief of which nothing is drawn after an outcome: what there is to renew is renewed before the next design."""

    def refresh(
        self, key: jax.Array, before: State, state: State, evidence: Evidence, record: Record, t: Int[Array, ""]
    ) -> tuple[State, Evidence, None]:
        """Return the state as it is."""
        return state, evidence, None

    def recalled(self, state: State) -> Evidence:
        """Raise: a reference has nothing to keep."""
        raise NotImplementedError

    def looks(self, state: State) -> bool:
        """Return that there is nothing to look for."""
        return False

    def overlooked(self, key: jax.Array, state: State, record: Record, t: Int[Array, ""]) -> Bool[Array, " N"]:
        """Raise: it does not look."""
        raise NotImplementedError

    def unfit(self, state: State, t: Int[Array, ""]) -> None:
        """Return nothing: there is nothing better."""
        return None

    def mending_key(self, key: jax.Array) -> jax.Array:
        """Raise: nothing is mended."""
        raise NotImplementedError

    def mended(
        self, key: jax.Array, state: State, record: Record, t: Int[Array, ""], chosen: Bool[Array, " N"]
    ) -> tuple[State, Float[Array, " N"], RejuvenationInfo]:
        """Raise: nothing was found to mend."""
        raise NotImplementedError

    def firmer(self, state: State) -> None:
        """Return nothing: there is no firmer one."""
        return None

    def doubtful(self, state: State) -> None:
        """Return nothing: what fails is told by its numbers."""
        return None
