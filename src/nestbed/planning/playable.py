"""Sequences as they can be played: within limits as surely as is wanted, scaled towards a calm one until they are."""

import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nestbed.evaluation.violation import AIM, SHARES, Violation, between, calmest, worst
from nestbed.information import objective
from nestbed.model.system import BaseSystem
from nestbed.planning.goal import Goal
from nestbed.policies.signals import Replay

FINAL = 512
"""Rigs that the last sequences are scored on."""
CHECKED = 4096
"""Rigs that tell how often a sequence breaks limits."""


@eqx.filter_jit
def risks(key: jax.Array, system: BaseSystem, unit: Any, rigs: int) -> Any:
    """Return how often each of a few sequences breaks limits."""
    drawn = objective.draw(key, system, unit.shape[1], rigs)

    def one(sequence: Any) -> Any:
        found = objective.simulate(system, drawn, objective.applied(system, sequence[None]))
        return jnp.mean(jnp.any(worst(system, found.states, found.record.designs) > 0.0, axis=0))

    return jax.lax.map(one, jnp.asarray(unit))


def best_played(key: jax.Array, goal: Goal, some: Any) -> Any:
    """Return of some sequences, as they can be played, the one that gains most within the risk, or is least risky."""
    tried = [played(key, goal, unit) for unit in some]
    scores = goal.scored(key, np.stack([np.asarray(unit) for unit, _ in tried]), FINAL)
    excess = np.maximum(0.0, np.array([risk for _, risk in tried]) - AIM * goal.risk)
    return tried[int(np.lexsort((-scores, excess))[0])][0]


def played(key: jax.Array, goal: Goal, unit: Any) -> tuple[Any, float]:
    """Return a sequence as it can be played, scaled towards a calm one until limits are kept, and its risk.

    That is the rest design, or the constant one that breaks limits least often where rest itself does not do.
    """
    system = goal.system
    if not system.limits:
        return jnp.asarray(unit), 0.0
    calm = jnp.asarray(system.designs.unscale(np.asarray(calmest(system, goal.horizon, goal.risk))))

    def first(shares: Any) -> tuple[float, Any, float]:
        """Return the risk of the first share that complies, or of the least risky one, with its sequence."""
        scaled = calm + jnp.asarray(shares)[:, None, None] * (jnp.asarray(unit) - calm)
        found = np.asarray(risks(key, system, scaled, CHECKED))
        kept = np.flatnonzero(found <= AIM * goal.risk)
        i = int(kept[0]) if kept.size else int(np.argmin(found))
        return float(found[i]), scaled[i], float(shares[i])

    tried = []
    for shares in np.split(SHARES, 3):  # most comply at once
        risk, sequence, share = first(shares)
        if risk <= AIM * goal.risk:
            risk, sequence, _ = first(between(share)) if share < 1.0 else (risk, sequence, share)
            return sequence, risk
        tried.append((risk, sequence))
    risk, least = min(tried, key=lambda each: each[0])
    return least, risk


def replayed(goal: Goal, unit: Any) -> Replay:
    """Return a sequence of the unit box as a signal."""
    inputs = objective.applied(goal.system, jnp.asarray(unit)[None])[0]
    return Replay(goal.system, goal.system.designs.clip(np.asarray(inputs)))


def tell_of_limits(found: Violation | None, risk: float) -> None:
    """Say so where nothing that was found keeps to the risk."""
    if found is not None and found.probability > risk:
        warnings.warn(
            f"the best inputs found break {found.limit} in {100 * found.probability:.3g} % of runs, more often than "
            f"the risk of {100 * risk:g} %: check that the limits hold at the start and at rest, widen them, allow "
            "more risk, or give the search more seconds.",
            stacklevel=3,
        )
