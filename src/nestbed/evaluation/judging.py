"""Simulated records, each weighed as its posterior needs it: what certificates are made of."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from nestbed.evaluation import experiments, level_sets, weighing
from nestbed.evaluation.weighing import Weighed
from nestbed.information import effort
from nestbed.likelihood.base import Record
from nestbed.model.prior import Components
from nestbed.model.system import BaseSystem
from nestbed.model.target import Target
from nestbed.numerics import blocks, controls
from nestbed.numerics.errors import NestbedError
from nestbed.numerics.progress import Progress, Watch

TOGETHER = 256
"""Records in one program, whatever their number: another number compiles nothing."""
AT_ONCE = 8
"""Records that are weighed again together."""
MORE = 8
"""Draws from a mixture, for each that one Gaussian would give: it fits less well."""
GOOD = 0.3
"""Effective share of the draws above which a fit is good; with more draws a smaller one is."""
ENOUGH = 0.1
"""Effective share of the draws of several fits above which a record that one did not suit is done."""
MISSED = 0.01
"""Nats between the bounds, beyond what the number of draws leaves, that tell of modes which fits do not know."""
AFFORDED = {weighing.by_gaussian: 1024, weighing.by_fits: 256, weighing.by_mixture: 256}
"""Records of a certificate unless told: those that one Gaussian does not fit take up to a hundred times as long."""
DEAR, FEWER = 50_000_000, 4
"""Operations of one record's information above which there are fewer records, one for so many."""
WORK, FEWEST = 50_000_000_000, 64
"""Operations that the records of a certificate take together, unless they were fewer than so many."""
TIMES = {weighing.by_gaussian: 1, weighing.by_fits: 10, weighing.by_mixture: 100}
"""About how much longer one record takes than with one Gaussian."""
LOOKED_AT = 128
"""Records that tell whether a slower way of weighing them is enough."""
CURVED = 64
"""Records that a curve over experiments is of, where each takes long."""
PROBE = 2**32 - 1
"""The block that is only looked at, so that no bound knows what was found."""


class Judged(NamedTuple):
    """Both bounds of each record, after control variates; effective shares of its draws, and how it was weighed."""

    lower: Float[np.ndarray, " N"]
    upper: Float[np.ndarray, " N"]
    ess: Float[np.ndarray, " N"]
    mixed: Bool[np.ndarray, " N"]  # its posterior needed more than one Gaussian
    elsewhere: Bool[np.ndarray, " N"]  # other parameters near the fit have the same values of the target as its own


class Judge:
    """Simulates records of one policy and weighs them; what is done is kept.

    For a target, each record is weighed twice: over all parameters, and over the nuisance with the target given.
    """

    def __init__(
        self, key: jax.Array, system: BaseSystem, policy: Any, horizon: int, draws: int, target: Target | None
    ):
        self.key, self.system, self.policy = key, system, policy
        self.horizon, self.draws, self.target = horizon, draws, target
        self.free = [(True,) * len(system.parameter_names)]
        self.level = None
        if target is not None:
            nuisance = target.nuisance(system)
            if target.plain(system) and system.parameters.divisible(nuisance):
                self.free.append(nuisance)
            else:
                self.level = target
        self.done: list[list[Weighed]] = []
        self.ways: list[Any] = [weighing.by_gaussian] * len(self.free)
        self.unsuited = 0.0  # share of records that one Gaussian does not suit, of those that are only looked at
        self.simulated = functools.lru_cache(maxsize=4)(self._simulated)

    @property
    def size(self) -> int:
        """How many records are weighed together."""
        return TOGETHER if all(way is weighing.by_gaussian for way in self.ways) else AT_ONCE

    @property
    def afforded(self) -> int:
        """How many records do not take too long."""
        operations = effort.operations(self.system, self.horizon)
        most = min(AFFORDED[way] for way in self.ways) // (FEWER if operations > DEAR else 1)
        each = operations * (max(TIMES[way] for way in self.ways) + TIMES[weighing.by_mixture] * self.unsuited)
        return min(most, max(FEWEST, int(WORK / each) // FEWEST * FEWEST))

    def judge(self, total: int | None, progress: Watch[Progress] | None) -> Judged:
        """Judge `total` records, or as many as are not too dear; those that are there already are kept."""
        first = len(self.done)
        if not first:
            self.probe()
        total = self.afforded if total is None else total
        count = total - first * self.size
        if count > 0:
            self.done += blocks.run(count, self.size, lambda i: self.block(first + i), progress, "certificate")
        return self.bounded(jax.tree.map(lambda *parts: np.concatenate(parts)[:total], *self.done))

    def probe(self) -> None:
        """Find out whether fits miss parts of the posterior without their draws telling: by θ₀ of other records.

        One fit may end in a mode that holds little; several are taken together then, and where these miss parts too,
        mixtures that are led from everywhere.
        """
        theta, record, draw_key, _ = self._simulated(PROBE)
        for i, free in enumerate(self.free):
            one = self.weigh(weighing.by_gaussian, draw_key, theta, record, self.horizon, self.draws, free)
            if _missed(one, GOOD, self.draws) <= MISSED:
                self.try_again(one, draw_key, theta, record, self.horizon, free)
                self.unsuited = max(self.unsuited, float(np.mean(one.pilot < GOOD)))
                continue
            self.ways[i] = weighing.by_fits
            again = self.again(weighing.by_fits, draw_key, theta, record, self.horizon, free, np.arange(LOOKED_AT))
            if _missed(again, GOOD / MORE, MORE * self.draws) > MISSED:
                self.ways[i] = weighing.by_mixture

    def _simulated(self, index: int) -> tuple[Components, Record, jax.Array, jax.Array]:
        """Return records with their parameters, and keys for what is drawn for them, and once more."""
        simulation_key, draw_key, mend_key = jax.random.split(jax.random.fold_in(self.key, index), 3)
        theta, record = experiments.simulated(simulation_key, self.system, self.policy, self.horizon, TOGETHER)
        return theta, record, draw_key, mend_key

    def rigs(self, index: int) -> tuple[Components, Record, jax.Array, jax.Array]:
        """Return one block of records: the same ones, whatever their number in a block."""
        parts = TOGETHER // self.size
        theta, record, *keys = self.simulated(index // parts)
        if parts == 1:
            return theta, record, keys[0], keys[1]
        rows = np.arange(self.size) + index % parts * self.size
        own = [jax.random.fold_in(key, index % parts) for key in keys]
        return *jax.tree.map(lambda leaf: leaf[rows], (theta, record)), own[0], own[1]

    def block(self, index: int) -> list[Weighed]:
        """Return one block of records, weighed as each needs it."""
        theta, record, draw_key, mend_key = self.rigs(index)
        return self.weighed(draw_key, mend_key, theta, record, self.horizon)

    def weighed(
        self, draw_key: jax.Array, mend_key: jax.Array, theta: Components, record: Record, count: int
    ) -> list[Weighed]:
        """Weigh the first `count` experiments of records; again those whose posterior is no single Gaussian."""
        found = []
        for question, (free, way) in enumerate(zip(self.free, self.ways, strict=True)):
            key, everyone = jax.random.fold_in(draw_key, question), np.arange(len(theta[0]))
            mend = jax.random.fold_in(mend_key, question)
            if way is weighing.by_gaussian:
                one = self.weigh(way, key, theta, record, count, self.draws, free)
                self.try_again(one, key, theta, record, count, free)
                self.by_several(one, mend, theta, record, count, free)
                poor = np.flatnonzero((one.pilot < GOOD) & (one.pilot != weighing.MIXED))
            else:
                one = self.again(way, key, theta, record, count, free, everyone)
                poor = np.flatnonzero((one.pilot < GOOD / MORE) & (way is weighing.by_fits))
            if len(poor):
                again = self.again(weighing.by_mixture, mend, theta, record, count, free, poor)
                for old, new in zip(one, again, strict=True):
                    old[poor] = new
            found.append(one)
        if self.level is not None:
            key = jax.random.fold_in(draw_key, len(found))
            one = self.weigh(level_sets.given, key, theta, record, count, self.draws, self.level)
            lost = np.flatnonzero(~np.isfinite(one.excluding + one.including))
            if len(lost):
                raise NestbedError(
                    f"the gain about {', '.join(self.level.names)} cannot be certified: for {len(lost)} of "
                    f"{len(theta[0])} simulated rigs (the first is number {lost[0]}) no other parameters were found "
                    "where it has the same value; make a target of something smooth that rises or falls throughout, "
                    "with no kink or flat part."
                )
            found.append(one)
        return found

    def again(
        self,
        how: Any,
        key: jax.Array,
        theta: Components,
        record: Record,
        count: int,
        free: tuple[bool, ...],
        chosen: Int[np.ndarray, " R"],
    ) -> Weighed:
        """Weigh the chosen records by mixtures, a few at a time."""

        def some(i: int) -> Weighed:
            first = i * AT_ONCE
            rows = np.resize(chosen[first : first + AT_ONCE], AT_ONCE)
            taken = jax.tree.map(lambda leaf: leaf[rows], (theta, record))
            mine = jax.random.fold_in(key, first)
            return self.weigh(how, mine, taken[0], taken[1], count, MORE * self.draws, free)

        parts = blocks.run(len(chosen), AT_ONCE, some)
        return jax.tree.map(lambda *values: np.concatenate(values)[: len(chosen)], *parts)

    def try_again(
        self,
        one: Weighed,
        key: jax.Array,
        theta: Components,
        record: Record,
        count: int,
        free: tuple[bool, ...],
    ) -> None:
        """Weigh records whose fit was poor by the best of fits from other starts: most had only a bad one.

        As many for each as the program has room for; which is best is told by pilot draws, which no bound knows.
        """
        poor = np.flatnonzero(one.pilot < GOOD)
        if not len(poor):
            return
        rows = np.resize(poor, len(one.pilot))
        taken = jax.tree.map(lambda leaf: leaf[rows], (theta, record))
        again = self.weigh(
            weighing.by_gaussian, jax.random.fold_in(key, 1), taken[0], taken[1], count, self.draws, free
        )
        best = [i + len(poor) * int(np.argmax(again.pilot[i :: len(poor)])) for i in range(len(poor))]
        better = again.pilot[best] > one.pilot[poor]
        for old, new in zip(one, again, strict=True):
            old[poor[better]] = new[best][better]

    def by_several(
        self,
        one: Weighed,
        key: jax.Array,
        theta: Components,
        record: Record,
        count: int,
        free: tuple[bool, ...],
    ) -> None:
        """Weigh records that no single fit suits by several together, which takes a tenth of a mixture's time."""
        poor = np.flatnonzero(one.pilot < GOOD)
        if not len(poor):
            return
        again = self.again(weighing.by_fits, jax.random.fold_in(key, 1), theta, record, count, free, poor)
        suited = again.pilot >= ENOUGH
        again.pilot[:] = weighing.MIXED
        for old, new in zip(one, again, strict=True):
            old[poor[suited]] = new[suited]

    def weigh(
        self,
        how: Any,
        key: jax.Array,
        theta: Components,
        record: Record,
        count: int,
        draws: int,
        free: tuple[bool, ...] | Target,
    ) -> Weighed:
        """Return what the first `count` experiments of records come to."""
        given = (free,) if isinstance(free, Target) else (free, self.target if all(free) else None)
        found = how(key, self.system, theta, record, jnp.asarray(count), draws, *given)
        weighed = Weighed(*(np.array(part) for part in found))
        bad = np.isnan(weighed.average + weighed.excluding + weighed.including)
        if bad.any():
            experiments.blame(self.system, record, theta, int(np.argmax(bad)), count - 1)
        return weighed

    def bounded(self, found: list[Weighed]) -> Judged:
        """Return the bounds of weighed records."""
        joint, *given = found
        below, above = (given[0].excluding, given[0].including) if given else (joint.average, joint.average)
        plain = np.stack([below - joint.including, above - joint.excluding], axis=-1)
        lower, upper = controls.adjusted(plain, joint.controls).T
        ess = np.min([one.ess for one in found], axis=0)
        mixed = np.any([one.pilot == weighing.MIXED for one in found], axis=0) | (weighing.by_fits in self.ways)
        elsewhere = np.zeros(len(ess), bool) if self.level is None else given[0].pilot == level_sets.ELSEWHERE
        return Judged(lower, upper, ess, mixed, elsewhere)

    def after_each(self) -> list[Judged]:
        """Judge some records after each of their experiments: a large block, or fewer that take long."""
        theta, record, *_ = self.simulated(0)
        rows = np.arange(TOGETHER if self.size == TOGETHER else CURVED)
        theta, record = jax.tree.map(lambda leaf: leaf[rows], (theta, record))
        key = jax.random.fold_in(self.key, PROBE - 1)

        def after(t: int) -> Judged:
            draw_key, mend_key = jax.random.split(jax.random.fold_in(key, t))
            return self.bounded(self.weighed(draw_key, mend_key, theta, record, t + 1))

        return blocks.run(self.horizon, 1, after)


def _missed(found: Weighed, good: float, draws: int) -> float:
    """Return by how much θ₀ parts the bounds where draws seem good, beyond what their number does, in nats."""
    own = found.own[found.pilot >= good]
    with np.errstate(divide="ignore"):
        return float(np.mean(-np.log1p(-own))) - math.log1p(1.0 / draws) if len(own) else 0.0
