"""The beliefs there are, by name."""

from dataclasses import dataclass

from nestbed.numerics.registry import Entry, Registry


@dataclass(frozen=True)
class BeliefEntry(Entry):
    """A belief, with how large it is as a text to be filled in."""

    size: str = ""
    particles: int | None = None  # how many there are usually, if that does not hang on the system

    def count(self, particles: int | None, usual: int) -> int:
        """Return how many particles there are: as many as given, or the usual number."""
        return (self.particles or usual) if particles is None else particles

    def sized(self, particles: int, moves: int) -> str:
        """Return how large the belief is with such settings."""
        return self.size.format(particles=particles, moves=moves)


BELIEFS = Registry(
    "belief",
    BeliefEntry(
        "guided", "nestbed.belief.guided:Guided", "particles drawn where the posterior is", "M = {particles}", 64
    ),
    BeliefEntry("ibis", "nestbed.belief.ibis:IBIS", "particles", "M = {particles}, {moves} moves"),
    BeliefEntry(
        "exact", "nestbed.belief.exact:Exact", "closed forms, for systems linear in their parameters", "exact belief"
    ),
)
"""The first is what is used unless told otherwise."""
PUBLISHED = "ibis"
"""The paper's, which policies that look ahead keep where no closed form suits."""
