"""How far a computation is: what every long function tells whoever watches it, in one form."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar


class Progress(Protocol):
    """What a `progress` function is called with. A training run is one too, and tells more."""

    @property
    def name(self) -> str:
        """What is computed: the name of a function, of a policy or of a method."""

    @property
    def done(self) -> int:
        """How many records or iterations are done."""

    @property
    def total(self) -> int:
        """How many there are in all."""


P_contra = TypeVar("P_contra", bound=Progress, contravariant=True)
Watch = Callable[[P_contra], None]
"""Called now and then, from any thread, with how far it is."""


class Step(NamedTuple):
    """So far and no more."""

    name: str
    done: int
    total: int


def renamed(watch: Watch[Progress] | None, name: str) -> Watch[Progress] | None:
    """Return what tells of some work by another name."""
    return None if watch is None else lambda step: watch(Step(name, step.done, step.total))


def part(watch: Watch[Progress] | None, name: str, before: int, total: int) -> Watch[Progress] | None:
    """Return what tells of a part of some work, done after `before` of `total`, by the name of the whole."""
    return None if watch is None else lambda step: watch(Step(name, before + step.done, total))
