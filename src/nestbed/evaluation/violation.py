"""How likely a policy breaks a system's limits, and how far a policy must be scaled down to keep them."""

import functools
import math
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nestbed.evaluation import experiments
from nestbed.evaluation.judging import TOGETHER
from nestbed.model import checks, limits
from nestbed.model.system import BaseSystem
from nestbed.numerics import blocks, noise
from nestbed.numerics.errors import NestbedError, at_least_one
from nestbed.numerics.intervals import Interval
from nestbed.policies.base import Policy, prepare
from nestbed.policies.compliant import Compliant
from nestbed.policies.signals import Replay

RECORDS = 4096
"""Simulated runs that tell how likely a limit is broken."""
AIM = 0.5
"""Share of the risk that inputs are chosen by: what chance adds to it in a few thousand runs stays below the whole."""
SHARES = np.linspace(1.0, 0.0, 21)
"""Shares of a policy's designs that are tried, until one complies."""
FINER = 7
"""Shares that are tried between the first that complies and the one before it."""
WIDEST, FARTHEST = 3.0, 6.0
"""Standard deviations that a search keeps from limits at first, and at most."""


@dataclass(frozen=True)
class Violation:
    """The probability that any limit is broken within the horizon, over prior and noise."""

    probability: float
    records: int
    limit: str = ""  # the one that is broken most often

    @property
    def interval(self) -> Interval:
        """Where the probability lies, with 95 % confidence (Clopper–Pearson)."""
        from scipy.stats import beta

        broken = round(self.probability * self.records)
        low = beta.ppf(0.025, broken, self.records - broken + 1) if broken else 0.0
        high = beta.ppf(0.975, broken + 1, self.records - broken) if broken < self.records else 1.0
        return Interval(float(low), float(high))

    def __str__(self) -> str:
        low, high = self.interval
        which = f", most often {self.limit}" if self.limit else ""
        told = [f"{100 * value:.{3 if value > 0.1 else 2}g}" for value in (self.probability, low, high)]
        return f"limits broken in {told[0]} % of runs ({told[1]} to {told[2]} %{which})"


def violation(
    key: jax.Array, system: BaseSystem, policy: Policy, *, horizon: int | None = None, records: int = RECORDS
) -> Violation:
    """Estimate how likely a policy breaks any of a system's limits within the horizon.

    Args:
        key: a jax key.
        system: the model, with its `limits`.
        policy: what chooses the designs.
        horizon: T, experiments; by default the system's.
        records: simulated runs, with parameters drawn from the prior.

    Returns:
        The probability with its interval, and which limit is broken most often.
    """
    checks.instance(system)
    horizon = system.horizon if horizon is None else horizon
    at_least_one(horizon=horizon, records=records)
    return _violation(noise.as_key(key), system, prepare(policy, system, horizon), horizon, records)


def _violation(key: jax.Array, system: BaseSystem, ready: Any, horizon: int, records: int) -> Violation:
    names = [*system.limits, *(f"the slew of {name}" for name in system.slew)]
    if not names:
        return Violation(0.0, records)
    found = _worst_of(key, system, ready, horizon, records) > 0.0
    often = found.mean(axis=1)
    probability = float(found.any(axis=0).mean())
    return Violation(probability, records, names[int(np.argmax(often))] if probability else "")


def margin(key: jax.Array, system: BaseSystem, policy: Policy, horizon: int, risk: float) -> float:
    """Return how far from limits runs must stay at their worst, on average, so that they break any with this risk.

    In standard deviations over runs, from 0 to `FARTHEST`; a limit that no run comes near counts for nothing.
    """
    reached = _worst_of(key, system, prepare(policy, system, horizon), horizon, RECORDS)[: len(system.limits)]
    counted = np.isfinite(reached)
    middle, spread = (
        np.array([of(row[ok]) if ok.any() else 0.0 for row, ok in zip(reached, counted, strict=True)])[:, None]
        for of in (np.mean, np.std)
    )
    near = ((middle + FARTHEST * spread > 0.0) & (spread > 0.0))[:, 0]
    if not near.any():
        return WIDEST
    off = np.where(counted, (reached - middle) / np.where(spread > 0.0, spread, 1.0), np.inf)[near].max(axis=0)
    return float(np.clip(np.quantile(off, 1.0 - risk, method="higher"), 0.0, FARTHEST))


def _worst_of(key: jax.Array, system: BaseSystem, ready: Any, horizon: int, records: int) -> np.ndarray:
    """Return `worst` of simulated runs."""

    def block(i: int) -> Any:
        run_key = jax.random.fold_in(key, i)
        _, found = experiments.simulated_rigs(run_key, system, ready, horizon, TOGETHER)
        return np.asarray(worst(system, found.states, found.record.designs))

    return np.concatenate(blocks.run(records, TOGETHER, block), axis=1)[:, :records]


@eqx.filter_jit
def worst(system: BaseSystem, states: Any, designs: Any) -> Any:
    """Return by how much a run (…) exceeds each limit, and then each slew, at its worst time: (L, …).

    What has no number is beyond any limit.
    """
    found = limits.excesses(system, states, designs)
    stacked = [jnp.stack(parts) for parts in found.values()]
    rows = [jnp.max(jnp.where(jnp.isnan(each), jnp.inf, each), axis=(0, -1)) for each in stacked]
    rest = jnp.broadcast_to(jnp.array(system.rest_design), designs[..., :1, :].shape)
    changes = jnp.abs(jnp.diff(jnp.concatenate([rest, designs], axis=-2), axis=-2))
    for name, most in system.slew.items():
        rows.append(jnp.max(changes[..., system.design_names.index(name)] - most * ROUNDING, axis=-1))
    return jnp.stack(rows)


ROUNDING = 1.0 + 1e-9
"""What a change may exceed its slew by."""


LEVELS = 9
"""Constant levels of the box that are tried where the rest design breaks limits."""


@functools.lru_cache(maxsize=64)
def calmest(system: BaseSystem, horizon: int, risk: float) -> tuple[float, ...]:
    """Return the constant design to scale others towards: the rest design, or what breaks limits least often."""
    key = jax.random.key(0)

    def often(design: Any) -> float:
        ready = prepare(Replay(system, np.asarray(design)[None]), system, horizon)
        _, rigs = experiments.simulated_rigs(key, system, ready, horizon, TOGETHER)
        found = worst(system, rigs.states, rigs.record.designs)[: len(system.limits)]  # slews can be kept
        return float(jnp.mean(jnp.any(found > 0.0, axis=0)))

    if (least := often(system.rest_design)) <= AIM * risk:
        return system.rest_design
    levels = system.designs.scale(np.linspace(-1.0, 1.0, LEVELS)[:, None] * np.ones(len(system.design_names)))
    found = [(often(level), tuple(float(value) for value in level)) for level in levels]
    return min([(least, system.rest_design), *found])[1]


def complying(key: jax.Array, system: BaseSystem, policy: Policy, horizon: int, risk: float) -> Policy:
    """Return a policy scaled towards a calm design until it breaks limits no more often than the risk.

    A signal stays a signal. Where nothing complies, the least harmful is returned.
    """
    if not system.limits and not system.slew:
        return policy
    calm = calmest(system, horizon, risk) if system.limits else system.rest_design

    def first(shares: Any) -> tuple[bool, Any]:
        tried = []
        for share in shares:
            scaled = Compliant(system, policy, share, calm)
            found = _violation(key, system, prepare(scaled, system, horizon), horizon, RECORDS)
            tried.append((found.probability, scaled))
            if found.probability <= AIM * risk:
                return True, scaled
        return False, min(tried, key=lambda each: each[0])[1]

    complies, best = first(SHARES if system.limits else SHARES[:1])
    if complies and system.limits and float(best.share) < 1.0:
        _, best = first(between(float(best.share)))
    if not isinstance(policy, Replay):
        return best
    wanted = np.array(calm) + float(best.share) * (policy.signal(horizon) - np.array(calm))
    return Replay(system, system.designs.clip(np.asarray(limits.playable(system, jnp.asarray(wanted)))))


def between(share: float) -> np.ndarray:
    """Return shares to try once one of `SHARES` complies: towards the one before it, that one last."""
    return np.linspace(min(1.0, share - SHARES[1] + SHARES[0]), share, FINER + 1)[1:]


def check_risk(risk: float) -> None:
    """Raise unless a risk is a probability."""
    if isinstance(risk, bool) or not isinstance(risk, int | float) or not 0.0 < risk < 1.0 or math.isnan(risk):
        raise NestbedError(f"risk is {risk!r}, but it must be a probability between 0 and 1, such as 0.01.")
