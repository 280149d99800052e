"""The beliefs there are, by name."""

from dataclasses import dataclass

from nestbed.numerics.registry import Entry, Registry


@dataclass(frozen=True)
class BeliefEntry(Entry):
    """A belief, with how large it is as a text to be filled in."""

    size: str = ""

    def sized(self, particles: int, moves: int) -> str:
        """Return how large the belief is with such settings."""
        return self.size.format(particles=particles, moves=moves)


BELIEFS = Registry(
    "belief",
    BeliefEntry("ibis", "nestbed.belief.ibis:IBIS", "particles", "M = {particles}, {moves} moves"),
    BeliefEntry(
        "exact", "nestbed.belief.exact:Exact", "closed forms, for systems linear in their parameters", "exact belief"
    ),
)
"""The first is what is used unless told otherwise."""
