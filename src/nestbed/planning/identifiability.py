"""What the best inputs can tell: each parameter's spread before and after, and the directions told best and worst."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from nestbed.model.factors import logarithmic
from nestbed.model.system import BaseSystem
from nestbed.numerics.combinations import named

UNTOLD, TOLD = 0.9, 0.5
"""Ratio of the spread after to that before above which a direction is not told, and below which it is told well."""


@dataclass(frozen=True)
class Direction:
    """A combination of parameters, by name, and its standard deviation after, in units of that before."""

    name: str
    ratio: float
    least: float  # the same after those of all inputs looked at that tell it best


@dataclass(frozen=True)
class Identifiability:
    """Expected posterior standard deviations beside those of the prior, and the directions in between."""

    parameters: tuple[str, ...]  # and what follows from them, where that is a target
    before: tuple[float, ...]  # standard deviations of the prior, in the coordinates of `scales`
    after: tuple[float, ...]  # expected ones, after the inputs
    twice: tuple[float, ...]  # the same, after the inputs done twice
    relative: tuple[bool, ...]  # whether a deviation is one of the logarithm, so a share of the parameter's size
    directions: tuple[Direction, ...]  # from the best told to the worst
    longer: float  # nats that the same inputs would gain, done once more
    looked_at: int  # other inputs within the box and the horizon: classical, random, and those of the search

    @property
    def sentence(self) -> str:
        """What is told well, and what is not."""
        well = [each.name for each in self.directions if each.ratio < TOLD]
        little = [each.name for each in self.directions if TOLD <= each.ratio <= UNTOLD]
        others = [each.name for each in self.directions if each.ratio > UNTOLD >= each.least]
        none = [each.name for each in self.directions if each.ratio > UNTOLD and each.least > UNTOLD]
        words = (
            (well, "well"),
            (little, "a little"),
            (others, "not by these inputs, but by others: make it a target"),
            (none, f"not at all, by these inputs or any of {self.looked_at} others that were looked at"),
        )
        parts = [f"{', '.join(names)} {word}" for names, word in words if names]
        if len(well) == len(self.directions):
            parts = [f"{', '.join(self.parameters[: len(well)])}, all of them well"]
        return f"told: {'; '.join(parts)}. Done once more, they would gain about {self.longer:.2f} nats more."

    @property
    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """Each parameter's standard deviation before, after, the share that is left, and after twice, as text."""
        deviations = zip(self.parameters, self.before, self.after, self.twice, self.relative, strict=True)
        return [
            (name, _deviation(before, log), _deviation(after, log), f"{after / before:.2g}", _deviation(twice, log))
            for name, before, after, twice, log in deviations
        ]

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {**vars(self), "directions": [vars(each) for each in self.directions]}

    @classmethod
    def of(cls, facts: dict[str, Any]) -> "Identifiability":
        """Return what `facts` gave."""
        listed = {name: tuple(facts[name]) for name in ("parameters", "before", "after", "twice", "relative")}
        directions = tuple(
            Direction(str(each["name"]), float(each["ratio"]), float(each["least"])) for each in facts["directions"]
        )
        return cls(**listed, directions=directions, longer=float(facts["longer"]), looked_at=int(facts["looked_at"]))

    def __str__(self) -> str:
        lines = [f"{name}: sd {before} → {after}" for name, before, after, *_ in self.rows]
        return "\n".join([*lines, self.sentence])


def _deviation(value: float, relative: bool) -> str:
    return f"{100 * value:.3g} %" if relative else f"{value:.3g}"


def identify(
    system: BaseSystem,
    information: Float[np.ndarray, "R d d"],
    others: Float[np.ndarray, "K R d d"],
    precision: Float[np.ndarray, " d"],
    slopes: Mapping[str, Float[np.ndarray, " d"]],
    looked_at: int,
) -> Identifiability:
    """Return what records of this information tell, in prior-whitened coordinates, on average over rigs.

    And whether others, the best of those looked at for each direction, tell what these do not. Quantities that
    follow from the parameters are listed below them, by how they change with the coordinates.
    """
    prior = system.parameters
    roots, factor = np.sqrt(precision), np.linalg.cholesky(prior.correlation)
    once, twice = (_covariance(_in_units(system, times * information, precision)) for times in (1.0, 2.0))
    relative = tuple(logarithmic(transform) for transform in prior.transforms)
    known = np.array([np.std(values) for values in prior.draws])
    spread = np.where(relative, np.array(prior.scales) / roots, known)  # of logarithms, else of the parameters
    rows = np.concatenate([np.diag(spread), *(slope[None] / roots for slope in slopes.values())]) @ factor
    values, vectors = np.linalg.eigh(once)
    told = np.concatenate([once[None], _covariance(_in_units(system, others, precision))])
    least = np.min(np.einsum("di,kde,ei->ki", vectors, told, vectors), axis=0)
    directions = tuple(
        Direction(named(system.parameter_names, vector / spread, relative), math.sqrt(value), math.sqrt(best))
        for value, vector, best in zip(values, np.linalg.solve(factor.T, vectors).T, least, strict=True)
    )
    before, after, later = (
        tuple(float(value) for value in np.sqrt(np.einsum("id,de,ie->i", rows, covariance, rows)))
        for covariance in (np.eye(len(precision)), once, twice)
    )
    found = [_in_units(system, times * information, precision) + np.eye(len(precision)) for times in (1, 2)]
    half, whole = (0.5 * np.linalg.slogdet(one)[1] for one in found)
    longer = float(np.mean(whole - half))
    names, logs = (*system.parameter_names, *slopes), (*relative, *(False for _ in slopes))
    return Identifiability(names, before, after, later, logs, directions, longer, looked_at)


def best_for_each(
    system: BaseSystem,
    information: Float[np.ndarray, "R d d"],
    others: Float[np.ndarray, "K R d d"],
    precision: Float[np.ndarray, " d"],
) -> Int[np.ndarray, " d"]:
    """Return which of other inputs tells each direction best, of those that some inputs tell from best to worst."""
    _, vectors = np.linalg.eigh(_covariance(_in_units(system, information, precision)))
    left = np.einsum("di,kde,ei->ki", vectors, _covariance(_in_units(system, others, precision)), vectors)
    return np.argmin(left, axis=0)


def _in_units(
    system: BaseSystem, information: Float[np.ndarray, "... d d"], precision: Float[np.ndarray, " d"]
) -> Float[np.ndarray, "... d d"]:
    """Return information in coordinates where the prior's deviations are 1 and nothing is correlated."""
    roots, factor = np.sqrt(precision), np.linalg.cholesky(system.parameters.correlation)
    found: np.ndarray = factor.T @ (information / (roots[:, None] * roots)) @ factor
    return found


def _covariance(information: Float[np.ndarray, "... R d d"]) -> Float[np.ndarray, "... d d"]:
    """Return the covariance that is left, averaged over rigs, in units of the prior's deviations."""
    found: np.ndarray = np.linalg.inv(information + np.eye(information.shape[-1])).mean(axis=-3)
    return found
