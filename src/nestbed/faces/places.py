"""Whether a parameter lies in one place or in several, such as the aliases of a frequency."""

import itertools
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

APART = 4.0
"""Gap between two places, in the sum of their standard deviations, beyond which they are two."""
LEAST, FEWEST = 0.02, 4.0
"""Share of the weight that a place has at least, and its share in as many particles; what has less belongs to the one
beside it."""
GAP = 0.002
"""Gap between neighbouring particles, in standard deviations of all, where places may end."""
SHOWN, MANY = 6, 6
"""Places that are named, and how many make it likely that some were missed."""


class Place(NamedTuple):
    """A stretch with weight around it, and none beside it."""

    low: float
    high: float
    share: float
    mean: float
    sd: float


def places(values: Float[np.ndarray, " M"], weights: Float[np.ndarray, " M"]) -> list[Place]:
    """Return where weighted values lie, from below; mostly it is one place."""
    order = np.argsort(values)
    values, weights = values[order], weights[order] / weights.sum()
    values, weights = values[weights > 0.0], weights[weights > 0.0]
    spread = np.sqrt(weights @ (values - weights @ values) ** 2)
    cuts = np.flatnonzero(np.diff(values) > GAP * spread) + 1
    found = [_place(v, w) for v, w in zip(np.split(values, cuts), np.split(weights, cuts), strict=True)]
    least = max(LEAST, FEWEST / len(values))
    while len(found) > 1:
        light = min(range(len(found)), key=lambda i: found[i].share)
        rooms = [(b.low - a.high) - APART * (a.sd + b.sd) for a, b in itertools.pairwise(found)]
        if found[light].share < least:
            sides = [i for i in (light - 1, light) if 0 <= i < len(rooms)]
            i = min(sides, key=lambda i: found[i + 1].low - found[i].high)
        elif min(rooms) < 0.0:
            i = int(np.argmin(rooms))
        else:
            break
        found[i : i + 2] = [_merged(found[i], found[i + 1])]
    return found


def sentence(name: str, found: list[Place]) -> str:
    """Return that a parameter is in several places, in words; nothing where it is in one."""
    if len(found) < 2:
        return ""
    largest = sorted(sorted(found, key=lambda place: -place.share)[:SHOWN])
    named = ", ".join(f"{place.mean:.4g} ({place.share:.0%})" for place in largest)
    which = "of which the largest are" if len(found) > SHOWN else "about"
    more = (
        " So many are hard to find all: others may have been missed, so give a narrower prior, or compare other seeds."
        if len(found) > MANY
        else ""
    )
    return f"{name} is in one of {len(found)} places apart, {which} {named}.{more}"


def _place(values: Float[np.ndarray, " K"], weights: Float[np.ndarray, " K"]) -> Place:
    share = float(weights.sum())
    mean = float(weights @ values) / share
    return Place(float(values[0]), float(values[-1]), share, mean, float(weights @ (values - mean) ** 2 / share) ** 0.5)


def _merged(a: Place, b: Place) -> Place:
    share = a.share + b.share
    mean = (a.share * a.mean + b.share * b.mean) / share
    square = (a.share * (a.sd**2 + (a.mean - mean) ** 2) + b.share * (b.sd**2 + (b.mean - mean) ** 2)) / share
    return Place(a.low, b.high, share, mean, square**0.5)
