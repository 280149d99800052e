"""What every belief offers the sweep: one interface for exact posteriors and particles.

A belief object is static configuration. Its state is a pytree whose leaves all lead with the trajectory axis (N),
so the sweep resamples it like everything else it carries.
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nestbed.prior import Components
from nestbed.system import BaseSystem

State = Any
"""A belief's running state, a pytree of arrays that lead with the trajectory axis."""


class Record(NamedTuple):
    """What each trajectory has seen so far, in buffers of full length: z₀:ₜ. (T1 stands for T + 1.)"""

    states: Float[Array, "N T1 dx"]
    designs: Float[Array, "N T du"]


FAR = 1e6
"""An outcome whose log-density is below −FAR lies a thousand standard deviations or more from all predictions."""
SURPRISE = 20.0
"""An outcome drawn from M particles gains more than log M + SURPRISE nats with probability exp(−SURPRISE) at most."""
SLACK = 1e-6
"""What rounding may take from a divergence that is 0."""


class Evidence(NamedTuple):
    """What an outcome says: the gain of the experiment (`eq:stage_reward`), and its closed form where there is one."""

    divergence: Float[Array, " N"]  # α + β: E[log f − log predictive] under the belief after the outcome
    log_predictive: Float[Array, " N"]  # −β: log of the predictive density under the belief before it
    most: float  # what the divergence can come to
    entropy_drop: Float[Array, " N"] | None = None  # entropy of the belief before, less that after

    def gain(self, system: BaseSystem, form: str) -> Float[Array, " N"]:
        """Return r = α + β, with "constant_noise" α replaced by its expectation, or "closed_form": lost entropy."""
        if form == "closed_form" and self.entropy_drop is not None:
            return self.entropy_drop
        return -system.noise_entropy() - self.log_predictive if form == "constant_noise" else self.divergence

    @property
    def possible(self) -> Bool[Array, " N"]:
        """Whether the numbers are within their range, so that rounding has not made them up."""
        within = (self.divergence >= -SLACK) & (self.divergence <= self.most)
        return within & (jnp.abs(self.log_predictive) <= FAR)


class Upkeep(NamedTuple):
    """What rejuvenating the beliefs took, and the first parameters that made a NaN, if any did."""

    refreshed: Int[Array, ""]  # trajectories whose particles were resampled and moved
    accepted: Float[Array, ""]  # sum over those of their acceptance rates
    faulty: Bool[Array, ""]
    fault_row: Int[Array, ""]
    fault_theta: Float[Array, " dtheta"]


class Belief(ABC):
    """p(θ | z₀:ₜ) for N trajectories at once."""

    kind: str
    system: BaseSystem

    @abstractmethod
    def init(self, key: jax.Array, count: int) -> State:
        """Return the prior as the belief of `count` trajectories."""

    @abstractmethod
    def rejuvenate(
        self, key: jax.Array, state: State, record: Record, step: Int[Array, ""]
    ) -> tuple[State, Upkeep | None]:
        """Renew degenerate particles of the trajectories that have any, after `step` experiments."""

    @abstractmethod
    def sample(
        self, key: jax.Array, state: State, x: Float[Array, "N dx"], u: Float[Array, "N du"]
    ) -> Float[Array, "N dx"]:
        """Draw the next state from the predictive distribution of each trajectory."""

    @abstractmethod
    def update(
        self, state: State, x: Float[Array, "N dx"], u: Float[Array, "N du"], following: Float[Array, "N dx"]
    ) -> tuple[State, Evidence]:
        """Condition on the outcome `following` of design u in state x."""

    @abstractmethod
    def expected_gains(
        self, key: jax.Array, state: State, x: Float[Array, "N dx"], u: Float[Array, "N C du"], outcomes: int
    ) -> Float[Array, "N C"]:
        """Return the expected gain of one experiment with each of C designs, by `outcomes` draws if not exactly.

        The draws are the same for all designs, so that their difference tells the designs apart.
        """

    @abstractmethod
    def culprit(
        self, state: State, x: Float[Array, "N dx"], u: Float[Array, "N du"], following: Float[Array, "N dx"]
    ) -> Float[Array, "N dtheta"]:
        """Return for each trajectory the parameters most to blame for an outcome of no finite density."""

    @abstractmethod
    def kept(self, state: State) -> State:
        """Return the part of a state that a reference must keep."""

    @abstractmethod
    def restored(self, kept: State) -> State:
        """Rebuild a state from what `kept` returned."""

    @abstractmethod
    def moments(self, state: State) -> tuple[Float[Array, "N dtheta"], Float[Array, "N dtheta dtheta"]]:
        """Return the mean and the covariance of the (constrained) parameters."""


def components(rows: Float[Array, "N d"]) -> Components:
    """Split (N, d) into d arrays of shape (N, 1), ready to broadcast against particles."""
    return tuple(rows[:, i, None] for i in range(rows.shape[1]))
