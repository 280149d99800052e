"""What the best inputs can tell: each parameter's spread before and after, and the directions told best and worst."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from nestbed.model.system import BaseSystem

SMALL = 0.25
"""Share of a direction's largest coefficient below which a parameter is not named."""
UNTOLD, TOLD = 0.9, 0.5
"""Ratio of the spread after to that before above which a direction is not told, and below which it is told well."""


@dataclass(frozen=True)
class Direction:
    """A combination of parameters, by name, and its standard deviation after, in units of that before."""

    name: str
    ratio: float


@dataclass(frozen=True)
class Identifiability:
    """Expected posterior standard deviations beside those of the prior, and the directions in between."""

    parameters: tuple[str, ...]
    before: tuple[float, ...]  # standard deviations of the prior, in the coordinates of `scales`
    after: tuple[float, ...]  # expected ones, after the inputs
    relative: tuple[bool, ...]  # whether a deviation is one of the logarithm, so a share of the parameter's size
    directions: tuple[Direction, ...]  # from the best told to the worst
    longer: float  # nats that the same inputs would gain, done once more

    @property
    def sentence(self) -> str:
        """What is told well, and what is not."""
        well = [each.name for each in self.directions if each.ratio < TOLD]
        little = [each.name for each in self.directions if TOLD <= each.ratio <= UNTOLD]
        none = [each.name for each in self.directions if each.ratio > UNTOLD]
        parts = [
            f"{', '.join(names)} {word}"
            for names, word in ((well, "well"), (little, "a little"), (none, "not at all, by these inputs"))
            if names
        ]
        return f"told: {'; '.join(parts)}. Done once more, they would gain about {self.longer:.2f} nats more."

    @property
    def rows(self) -> list[tuple[str, str, str, str]]:
        """Each parameter's standard deviation before and after, and the share that is left, as text."""
        deviations = zip(self.parameters, self.before, self.after, self.relative, strict=True)
        return [
            (name, _deviation(before, log), _deviation(after, log), f"{after / before:.2g}")
            for name, before, after, log in deviations
        ]

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {**vars(self), "directions": [vars(each) for each in self.directions]}

    @classmethod
    def of(cls, facts: dict[str, Any]) -> "Identifiability":
        """Return what `facts` gave."""
        listed = ("parameters", "before", "after", "relative")
        directions = tuple(Direction(str(each["name"]), float(each["ratio"])) for each in facts["directions"])
        return cls(
            **{name: tuple(facts[name]) for name in listed}, directions=directions, longer=float(facts["longer"])
        )

    def __str__(self) -> str:
        lines = [f"{name}: sd {before} → {after}" for name, before, after, _ in self.rows]
        return "\n".join([*lines, self.sentence])


def _deviation(value: float, relative: bool) -> str:
    return f"{100 * value:.3g} %" if relative else f"{value:.3g}"


def identify(
    system: BaseSystem, information: Float[np.ndarray, "R d d"], precision: Float[np.ndarray, " d"], longer: float
) -> Identifiability:
    """Return what records of this information tell, in prior-whitened coordinates, on average over rigs."""
    prior = system.parameters
    roots = np.sqrt(precision)
    units = information / (roots[:, None] * roots)  # in units of the prior's own deviations
    covariance = np.linalg.inv(units + np.eye(len(precision))).mean(axis=0)
    relative = tuple(bool(marginal.logarithmic) for marginal in prior.marginals)
    scales = np.array(prior.scales) / roots
    slopes = np.where(relative, 1.0, prior.slopes)  # of parameters against their coordinates, but for logarithms
    spread = scales * slopes
    values, vectors = np.linalg.eigh(covariance)
    directions = tuple(
        Direction(_named(system.parameter_names, vector / spread, relative), math.sqrt(value))
        for value, vector in zip(values, vectors.T, strict=True)
    )
    after = spread * np.sqrt(np.diag(covariance))
    return Identifiability(
        system.parameter_names,
        tuple(float(value) for value in spread),
        tuple(float(value) for value in after),
        relative,
        directions,
        longer,
    )


def _named(names: tuple[str, ...], coefficients: np.ndarray, relative: tuple[bool, ...]) -> str:
    """Return a direction in words: mass · length² where all that matter are logarithms, else a sum."""
    size = np.abs(coefficients)
    counted = [i for i in range(len(size)) if size[i] > SMALL * size.max()]
    lead = next(coefficients[i] for i in counted if size[i] > 0.99 * size.max())
    shares = {i: coefficients[i] / lead for i in counted}
    if len(counted) == 1:
        return names[counted[0]]
    if all(relative[i] for i in counted):
        least = min(abs(share) for share in shares.values())
        powers = {i: share / least for i, share in shares.items()}
        above = [_power(names[i], power) for i, power in powers.items() if power > 0]
        below = [_power(names[i], -power) for i, power in powers.items() if power < 0]
        return " · ".join(above or ["1"]) + "".join(f" / {part}" for part in below)
    sizes = {i: "" if abs(abs(share) - 1.0) < 0.005 else f"{abs(share):.2g} " for i, share in shares.items()}
    terms = [f"{'−' if share < 0 else '+'} {sizes[i]}{names[i]}" for i, share in shares.items()]
    return " ".join(terms).removeprefix("+ ")


RAISED = str.maketrans("0123456789.−", "⁰¹²³⁴⁵⁶⁷⁸⁹·⁻")


def _power(name: str, power: float) -> str:
    nearest = round(2.0 * power) / 2.0
    return name if nearest == 1.0 else name + f"{nearest:g}".translate(RAISED)
