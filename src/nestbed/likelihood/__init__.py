"""The density of the next observation given the past, one parameter vector and the design."""

from nestbed.likelihood.base import Likelihood, Record
from nestbed.likelihood.kalman import Kalman
from nestbed.likelihood.observed import Observed
from nestbed.model.system import BaseSystem

__all__ = ["Kalman", "Likelihood", "Observed", "Record", "of"]


def of(system: BaseSystem, *, rough: bool = False) -> Likelihood:
    """Return the likelihood of what is seen of a system; a `rough` one leaves out of gradients what takes long."""
    return Kalman(system, rough) if system.hidden else Observed(system, rough)
