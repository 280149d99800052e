"""What a posterior says, for people: each parameter before and after, what is told only together, in words."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from nestbed.evaluation import rounding
from nestbed.evaluation.explaining import Explanation, explain
from nestbed.evaluation.posterior import Posterior
from nestbed.evaluation.records import Measured
from nestbed.faces.places import places, sentence
from nestbed.model.factors import logarithmic
from nestbed.model.system import BaseSystem
from nestbed.numerics.combinations import named

UNTOLD = 0.5
"""Share of the prior's variance above which a combination of parameters is not told."""
TOGETHER = 0.95
"""Correlation beyond which two parameters are told only together."""
QUANTILES = (0.025, 0.5, 0.975)


@dataclass(frozen=True)
class Marginal:
    """One parameter: mean and standard deviation before and after, and quantiles of what is believed now."""

    name: str
    unit: str
    prior: tuple[float, float]
    posterior: tuple[float, float]
    quantiles: tuple[float, float, float]  # 2.5 %, 50 % and 97.5 %

    @property
    def narrower(self) -> float:
        """How many times narrower it is than before."""
        return self.prior[1] / self.posterior[1] if self.posterior[1] > 0.0 else float("inf")


@dataclass(frozen=True, eq=False)
class Findings:
    """What records of one rig say about its parameters."""

    system: BaseSystem
    posterior: Posterior
    records: Sequence[Measured]
    names: Sequence[str]  # of the records
    marginals: tuple[Marginal, ...]
    correlation: Float[np.ndarray, "d d"]
    draws: Float[np.ndarray, "M d"]  # of the posterior, equally weighted, in random order
    explanation: Explanation
    untold: str  # a sentence on combinations that the data cannot tell; empty where there are none
    several: str  # sentences on parameters that are in several places apart; empty where there are none
    gain: float  # in nats, of all experiments one after the other

    @property
    def ess(self) -> float:
        """Effective number of particles."""
        return float(self.posterior.belief.ess)

    @property
    def log_evidence(self) -> float:
        """Log-density of all that was measured, over the prior."""
        return float(np.sum(np.asarray(self.posterior.log_predictive)))

    @property
    def hidden(self) -> list[tuple[str, float, float]]:
        """Each state at the end of the last record, with its standard deviation."""
        course = self.posterior.course
        if course is None:
            return []
        ends = zip(self.system.state_names, course.states[-1], course.states_sd[-1], strict=True)
        return [(name, float(mean), float(sd)) for name, mean, sd in ends]

    @property
    def collapsed(self) -> str:
        """A sentence on parameters that are known suspiciously well; empty where there are none."""
        names = ", ".join(each.name for each in self.marginals if not each.posterior[1] > 0.0)
        return f"the variance of {names} is 0, that of a single particle, and says nothing." if names else ""

    @property
    def pairs(self) -> list[tuple[str, str, float]]:
        """Pairs of parameters, the most correlated first."""
        names = self.system.parameter_names
        every = itertools.combinations(range(len(names)), 2)
        found = [(names[i], names[j], float(self.correlation[i, j])) for i, j in every]
        return sorted(found, key=lambda pair: -abs(pair[2]))

    def rows(self, i: int) -> tuple[slice, slice]:
        """Return where a record's observations lie in the course, and its experiments in the residuals."""
        before = sum(len(each.designs) for each in self.records[:i])
        count = len(self.records[i].designs)
        return slice(before + i, before + i + count + 1), slice(before, before + count)

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {
            "system": self.system.name,
            "records": list(self.names),
            "experiments": [len(each.designs) for each in self.records],
            "parameters": [
                {
                    "name": each.name,
                    "unit": each.unit,
                    "prior": {"mean": each.prior[0], "sd": each.prior[1]},
                    "posterior": {"mean": each.posterior[0], "sd": each.posterior[1]},
                    "quantiles": dict(zip(("2.5 %", "50 %", "97.5 %"), each.quantiles, strict=True)),
                }
                for each in self.marginals
            ],
            "correlation": self.correlation.tolist(),
            "log_evidence": self.log_evidence,
            "nats": self.gain,
            "ess": self.ess,
            "particles": len(self.draws),
            "hidden_at_the_end": [{"name": name, "mean": mean, "sd": sd} for name, mean, sd in self.hidden],
            "explanation": self.explanation.facts(),
            "untold": self.untold,
            "several": self.several,
            "collapsed": self.collapsed,
        }


def find(key: jax.Array, system: BaseSystem, result: Posterior, records: Sequence[Measured], names: Any) -> Findings:
    """Return what a posterior of particles says; `names` are those of the records, and `key` orders the draws."""
    weights = np.exp(np.asarray(result.belief.log_weights))
    weights /= weights.sum()
    theta = np.stack([np.asarray(value) for value in result.belief.theta], axis=-1)
    sds = np.sqrt(np.diagonal(np.asarray(result.covariance)))
    marginals = tuple(
        Marginal(
            name,
            str(system.units.get(name, "")),
            before(system, i),
            (float(result.mean[i]), float(sds[i])),
            _quantiles(theta[:, i], weights),
        )
        for i, name in enumerate(system.parameter_names)
    )
    scale = np.where(sds > 0.0, sds, 1.0)
    correlation = np.clip(np.asarray(result.covariance) / (scale[:, None] * scale), -1.0, 1.0)
    np.fill_diagonal(correlation, 1.0)
    targets = (np.arange(len(weights)) + 0.5) / len(weights)
    chosen = np.minimum(np.searchsorted(np.cumsum(weights), targets), len(weights) - 1)
    chosen = chosen[np.asarray(jax.random.permutation(key, len(weights)))]
    rounded = rounding.replicates(system, result, records)
    explanation = explain(system.observation_names, result.residuals, rounded=rounded)
    untold = _untold(system, np.stack([np.asarray(z) for z in result.belief.position], axis=-1), weights, correlation)
    apart = (sentence(name, places(theta[:, i], weights)) for i, name in enumerate(system.parameter_names))
    several = " ".join(filter(None, apart))
    told = (explanation, untold, several, float(np.sum(np.asarray(result.gains))))
    return Findings(system, result, records, names, marginals, correlation, theta[chosen], *told)


def before(system: BaseSystem, i: int) -> tuple[float, float]:
    """Return the prior's mean and standard deviation, by draws where it does not say."""
    distribution: Any = system.prior.get(system.parameter_names[i])
    draws = np.asarray(system.parameters.draws[i])
    try:
        mean, sd = float(distribution.mean), math.sqrt(float(distribution.variance))
    except (NotImplementedError, AttributeError, ValueError):
        return float(draws.mean()), float(draws.std())
    return (mean, sd) if math.isfinite(mean) and math.isfinite(sd) else (float(draws.mean()), float(draws.std()))


def _quantiles(values: Float[np.ndarray, " M"], weights: Float[np.ndarray, " M"]) -> tuple[float, float, float]:
    order = np.argsort(values)
    low, middle, high = np.interp(QUANTILES, np.cumsum(weights[order]) - 0.5 * weights[order], values[order])
    return float(low), float(middle), float(high)


def _untold(system: BaseSystem, position: Any, weights: Any, correlation: Any) -> str:
    """Return a sentence on directions that keep their prior's spread, and on parameters told only together."""
    names, scales = system.parameter_names, np.array(system.parameters.scales)
    centred = (position - weights @ position) / scales
    values, vectors = np.linalg.eigh((weights[:, None] * centred).T @ centred)
    relative = tuple(logarithmic(transform) for transform in system.parameters.transforms)
    wide = [i for i in range(len(values) - 1, -1, -1) if values[i] > UNTOLD]
    parts = []
    if wide:
        listed = [f"{named(names, vectors[:, i] / scales, relative)} ({np.sqrt(values[i]):.2f})" for i in wide]
        parts.append(f"the data hardly tell {', '.join(listed)}, by the share of the prior's spread that is left")
    pairs = [
        f"{names[i]} only together with {names[j]} (correlation {correlation[i, j]:+.3f})"
        for i, j in itertools.combinations(range(len(names)), 2)
        if abs(correlation[i, j]) > TOGETHER
    ]
    if pairs:
        parts.append(f"{'they' if parts else 'the data'} tell {', '.join(pairs)}")
    return f"{'; '.join(parts)}." if parts else ""
