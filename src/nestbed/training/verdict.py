"""What was compared in the end of a training, and which policy is handed out."""

import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nestbed.evaluation.certificate import Certificate
from nestbed.evaluation.comparison import Comparison, PolicyEstimate
from nestbed.evaluation.violation import RECORDS, Violation
from nestbed.model.system import BaseSystem
from nestbed.model.target import Target
from nestbed.planning.design import BESIDE
from nestbed.planning.plan import PLAN

LEARNED, NOISY = "learned", "noisy"
COMPARED = (PLAN, LEARNED, NOISY, *BESIDE)
"""What is compared in the end."""
SIMPLER = (PLAN, LEARNED, NOISY)
"""What may be handed out, the simplest first; no signal surely beats the plan of a search."""
MOST, DRAWS = 1024, 64
"""Records of the certificates, of which there are fewer where each takes long, and L."""


class Verdict(NamedTuple):
    """The comparison, by policy in the order of `COMPARED`; of what is learned there is nothing before the end.

    Where there are fewer records than `MOST`, the rest are NaN.
    """

    lower: Float[Array, "P R"]
    upper: Float[Array, "P R"]
    ess: Float[Array, "P R"]
    broken: Float[Array, " P"]  # how often limits are
    limit: Int[Array, " P"]  # which most often; −1: none
    winner: Int[Array, ""]  # by its number; −1: not yet known

    @classmethod
    def blank(cls) -> "Verdict":
        """Return that nothing is known yet."""
        size = len(COMPARED)
        rows = jnp.zeros((size, MOST))
        return cls(rows, rows, rows, jnp.zeros(size), jnp.full(size, -1), jnp.array(-1))

    def given(self, system: BaseSystem, found: Comparison) -> "Verdict":
        """Return the same with what was found of some policies."""
        verdict = self
        for each in found:
            if each.policy in COMPARED and each.certificate is not None:
                i, own, broken = COMPARED.index(each.policy), each.certificate, each.violation
                which = -1 if broken is None or not broken.limit else _limits(system).index(broken.limit)
                verdict = verdict._replace(
                    lower=verdict.lower.at[i].set(_filled(own.lower_values)),
                    upper=verdict.upper.at[i].set(_filled(own.upper_values)),
                    ess=verdict.ess.at[i].set(_filled(own.ess)),
                    broken=verdict.broken.at[i].set(0.0 if broken is None else broken.probability),
                    limit=verdict.limit.at[i].set(which),
                )
        return verdict

    def comparison(self, system: BaseSystem, horizon: int, target: Target | None) -> Comparison:
        """Return it as a comparison."""
        found = jax.tree.map(np.asarray, self)
        names, limits = None if target is None else target.names, _limits(system)
        estimates = []
        for i, name in enumerate(COMPARED):
            count = int(np.sum(~np.isnan(found.lower[i])))
            lower, upper, ess = (part[i, :count] for part in (found.lower, found.upper, found.ess))
            own = Certificate(lower, upper, ess, DRAWS, horizon, names, origin=(0,))
            which = limits[found.limit[i]] if 0 <= found.limit[i] < len(limits) else ""
            broken = Violation(float(found.broken[i]), RECORDS, which) if limits else None
            estimates.append(PolicyEstimate(own.values, policy=name, certificate=own, violation=broken))
        return Comparison(estimates)


def _filled(values: Float[np.ndarray, " N"]) -> Float[np.ndarray, " R"]:
    return np.pad(values, (0, MOST - len(values)), constant_values=np.nan)


def _limits(system: BaseSystem) -> list[str]:
    """Return what can be broken, by name."""
    return [*system.limits, *(f"the slew of {name}" for name in system.slew)]


def handed_out(comparison: Comparison, risk: float) -> str:
    """Return the simplest policy that none surely beats, of those that keep to the risk as well as the plan does."""
    named = {each.policy: each for each in comparison}
    own = named[PLAN].violation
    least = risk if own is None else max(risk, own.probability)
    within = [name for name in SIMPLER if (v := named[name].violation) is None or v.probability <= least]
    best = max(within, key=lambda name: named[name].mean)
    drawn = [name for name in named if name not in SIMPLER]
    above = [name for name in drawn if comparison.difference(name, best).interval.low > 0.0]
    if above:
        warnings.warn(f"{above[0]} inputs gain more than what was learned; give more rounds and steps.", stacklevel=3)
    return next(name for name in within if not _beaten(comparison, name, within))


def _beaten(comparison: Comparison, name: str, others: list[str]) -> bool:
    """Return whether one of the others surely gains more."""
    return any(comparison.difference(other, name).interval.low > 0.0 for other in others if other != name)
