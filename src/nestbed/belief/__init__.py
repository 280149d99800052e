"""Beliefs: the running parameter posterior of each trajectory, exact or by particles."""

from nestbed.belief.base import Belief
from nestbed.belief.gaussian import Gaussian
from nestbed.belief.ibis import IBIS
from nestbed.errors import NestbedError, did_you_mean
from nestbed.system import BaseSystem

__all__ = ["IBIS", "Belief", "Gaussian", "make"]


def make(kind: str | Belief, system: BaseSystem, particles: int, moves: int) -> Belief:
    """Return the belief called "ibis" or "exact", or the given belief object itself."""
    if isinstance(kind, Belief):
        return kind
    if kind == "ibis":
        return IBIS(system, particles, moves)
    if kind == "exact":
        return Gaussian(system)
    raise NestbedError(f"there is no belief {kind!r}; {did_you_mean(str(kind), ('ibis', 'exact'))}.")
