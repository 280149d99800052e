"""What knowing the parameters beforehand would gain: a plan for each of some rigs, beside one for all of them."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from nestbed.belief import proposal
from nestbed.information import objective, search
from nestbed.information.objective import Situation
from nestbed.model import checks
from nestbed.model.system import BaseSystem
from nestbed.model.target import Target, Wanted, targeted
from nestbed.numerics import blocks, noise
from nestbed.numerics.errors import NestbedError, at_least_one
from nestbed.numerics.intervals import Interval, of_mean
from nestbed.numerics.progress import Progress, Watch
from nestbed.planning import starts
from nestbed.policies.signals import inputs_of

RIGS, ROUNDS = 32, 10
"""Rigs that get a plan each, and rounds of its search."""
CHILDREN, SIGNALS = 5, 4
"""Children of the plan and classical signals that it begins with, beside the plan; the others are random."""
JUDGES = 128
"""Times that noise is drawn anew for each rig, to tell what both plans gain on it."""


@dataclass(frozen=True)
class Oracle:
    """How much more plans gain that know the parameters, on each of some rigs, in nats: what adapting is worth at most.

    By expected Gauss–Newton gains, and by a search: another would find a little more. Plans know the parameters and not
    the noise, so that feedback on noise may come above it.
    """

    values: Float[np.ndarray, " R"]

    @property
    def mean(self) -> float:
        """On average over rigs."""
        return float(self.values.mean())

    @property
    def interval(self) -> Interval:
        """Where the average lies, with 95 % confidence."""
        return of_mean(self.values)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.mean:.3f} nats more with the parameters known  (95 %: {low:.3f} to {high:.3f})"

    __repr__ = __str__


def oracle(
    key: jax.Array,
    system: BaseSystem,
    plan: Any,
    *,
    target: Wanted | tuple[Wanted, ...] | Target | None = None,
    rigs: int = RIGS,
    progress: Watch[Progress] | None = None,
) -> Oracle:
    """Estimate how much more than a plan inputs gain that were made for each rig alone.

    Args:
        key: a jax key.
        system: the model; its limits, where there are any, are kept on average, not with a stated risk.
        plan: inputs, one row per experiment, or a signal, an `nb.Plan` among them, to compare with.
        target: parameters of interest, as `nb.design` takes it; all parameters by default.
        rigs: how many are drawn from the prior.
        progress: called with how many rigs are done, `.done` of `.total`.

    Returns:
        The difference on each rig, in nats.
    """
    checks.instance(system)
    at_least_one(rigs=rigs)
    if rigs < 2:
        raise NestbedError("rigs is 1, but an error needs at least 2.")
    key, wanted = noise.as_key(key), targeted(system, target)
    unit = np.asarray(system.designs.unscale(inputs_of(system, plan)))
    w = proposal.whiten(system.parameters, system.parameters.sample(jax.random.fold_in(key, rigs), (rigs,)))

    def one(i: int) -> float:
        situation = objective.of_one_rig(system, tuple(value[i] for value in w), len(unit))
        return _more(jax.random.fold_in(key, i), system, unit, wanted, situation)

    first = one(0)  # so that it is compiled once
    return Oracle(np.array([first, *blocks.run(rigs - 1, 1, lambda i: one(1 + i), progress, "oracle")]))


def _more(
    key: jax.Array, system: BaseSystem, unit: Float[np.ndarray, "T du"], target: Target | None, situation: Situation
) -> float:
    """Return how much more than a plan the best sequence gains on one rig; the plan is among those it starts from."""
    search_key, child_key, tell_key = jax.random.split(key, 3)
    children = search.mutate(child_key, jnp.asarray(np.repeat(unit[None], CHILDREN, axis=0)))
    signals = starts.classical(system, len(unit))[:SIGNALS]
    seed = int(jax.random.randint(child_key, (), 0, 2**31 - 1))
    fresh = starts.random(seed, system, len(unit), search.TOGETHER - 1 - CHILDREN - len(signals))
    sequences = np.concatenate([unit[None], np.asarray(children), signals, fresh])
    best = search.evolve(search_key, system, sequences, target, ROUNDS, 0.0, situation)[0]
    before, after = search.score(tell_key, system, np.stack([unit, best]), target, JUDGES, 0.0, situation)
    return float(after - before)
