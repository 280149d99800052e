"""Beliefs: the running parameter posterior of each trajectory, exact or by particles."""

from nestbed.belief.base import Belief
from nestbed.belief.gaussian import Gaussian
from nestbed.belief.ibis import IBIS
from nestbed.errors import NestbedError, at_least_one, did_you_mean
from nestbed.system import BaseSystem

__all__ = ["IBIS", "Belief", "Gaussian", "make", "simplest"]


def make(kind: str | Belief, system: BaseSystem, particles: int, moves: int) -> Belief:
    """Return the belief called "ibis" or "exact", or the given belief object itself."""
    if isinstance(kind, Belief):
        if kind.system != system:
            raise NestbedError(
                f"the belief is one of {kind.system}, but the system is {system}; make it for this system."
            )
        return kind
    if kind == "ibis":
        at_least_one(particles=particles, moves=moves)
        return IBIS(system, particles, moves)
    if kind == "exact":
        return Gaussian(system)
    raise NestbedError(f"there is no belief {kind!r}; {did_you_mean(str(kind), ('ibis', 'exact'))}.")


def simplest(system: BaseSystem) -> str:
    """Return "exact" where the system has an exact belief, else "ibis"."""
    try:
        Gaussian(system)
    except NestbedError:
        return "ibis"
    return "exact"
