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
from nestbed.numerics.errors import at_least_one
from nestbed.numerics.intervals import Interval, of_mean
from nestbed.numerics.progress import Progress, Watch
from nestbed.policies.signals import inputs_of

RIGS, ROUNDS, KEPT = 32, 10, 4
"""Rigs that get a plan each, rounds of its search, and sequences that go on from one round to the next."""
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
    key, wanted = noise.as_key(key), targeted(system, target)
    unit = np.asarray(system.designs.unscale(inputs_of(system, plan)))
    w = proposal.whiten(system.parameters, system.parameters.sample(jax.random.fold_in(key, rigs), (rigs,)))
    known = jnp.diag(jnp.asarray(objective.precision(system)))
    rest, left = jnp.array(system.rest_design), jnp.asarray(len(unit))

    def one(i: int) -> float:
        situation = Situation(tuple(value[i : i + 1] for value in w), known, rest, left)
        return _more(jax.random.fold_in(key, i), system, unit, wanted, situation)

    first = one(0)  # so that it is compiled once
    rest_of = blocks.run(rigs - 1, 1, lambda i: one(1 + i), progress, "oracle") if rigs > 1 else []
    return Oracle(np.array([first, *rest_of]))


def _more(
    key: jax.Array, system: BaseSystem, unit: Float[np.ndarray, "T du"], target: Target | None, situation: Situation
) -> float:
    """Return how much more than a plan the best sequence gains on one rig; the plan is among those it starts from."""
    search_key, child_key, judge_key, tell_key = jax.random.split(key, 4)
    sequences = np.repeat(unit[None], search.TOGETHER, axis=0)
    for turn in range(ROUNDS):
        children = search.mutate(jax.random.fold_in(child_key, turn), jnp.asarray(sequences[KEPT:]))
        sequences = np.concatenate([sequences[:KEPT], np.asarray(children)])
        rate = search.FIRST_RATE * (search.LAST_RATE / search.FIRST_RATE) ** (turn / max(1, ROUNDS - 1))
        keys = jax.random.fold_in(search_key, turn), jax.random.fold_in(judge_key, turn)
        climbed = search.climb(*keys, system, sequences, target, rate, 0.0, situation)
        best = np.argsort(-climbed.score, kind="stable")[:KEPT]
        sequences = climbed.unit[np.resize(best, search.TOGETHER)]
    both = np.stack([unit, sequences[0]])
    before, after = search.score(tell_key, system, both, target, JUDGES, 0.0, situation)
    return float(after - before)
