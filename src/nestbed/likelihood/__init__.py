"""The density of the next observation given the past, one parameter vector and the design."""

from nestbed.likelihood.base import Likelihood, Record
from nestbed.likelihood.kalman import Kalman
from nestbed.likelihood.observed import Observed
from nestbed.model.system import BaseSystem

__all__ = ["Kalman", "Likelihood", "Observed", "Record", "of"]


def of(system: BaseSystem, *, rough: bool = False, given: int | None = None) -> Likelihood:
    """Return the likelihood of what is seen of a system; a `rough` one leaves out of gradients what takes long.

    Of records that are `given` with gaps, uneven times or new beginnings, a number says how many designs of the past
    are needed.
    """
    if given is not None:
        return Kalman(system, rough, given=True, memory=given)
    return Kalman(system, rough) if system.hidden else Observed(system, rough)
