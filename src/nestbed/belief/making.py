"""Beliefs from their names."""

from nestbed.belief.base import Belief
from nestbed.belief.registry import BELIEFS, PUBLISHED
from nestbed.model.system import BaseSystem
from nestbed.numerics.errors import NestbedError, at_least_one


def make(kind: str | Belief | None, system: BaseSystem, particles: int | None, moves: int, usual: int = 1024) -> Belief:
    """Return the belief of that name, the simplest that suits the system (None), or the given belief object itself.

    Particles that are left None are as many as are usual for the belief, or else `usual`.
    """
    if isinstance(kind, Belief):
        if kind.system != system:
            raise NestbedError(
                f"the belief is one of {kind.system}, but the system is {system}; make it for this system."
            )
        return kind
    entry = BELIEFS.find(simplest(system) if kind is None else kind)
    size = entry.count(particles, usual)
    at_least_one(particles=size, moves=moves)
    return entry.load().make(system, size, moves)


def simplest(system: BaseSystem) -> str:
    """Return the name of a belief in closed forms where the system has one, else of the published one."""
    return next((name for name in BELIEFS if BELIEFS[name].load().closed_form and _suits(name, system)), PUBLISHED)


def _suits(name: str, system: BaseSystem) -> bool:
    try:
        BELIEFS[name].load().make(system, 1, 1)
    except NestbedError:
        return False
    return True
