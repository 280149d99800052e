"""Several policies on one system, estimated alike."""

import csv
import io
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import jax
import numpy as np

from nestbed.evaluation.certificate import Certificate, certificate
from nestbed.evaluation.contrastive_bounds import bounds
from nestbed.evaluation.eig import eig
from nestbed.evaluation.estimates import Estimate
from nestbed.evaluation.violation import Violation, violation
from nestbed.information import objective
from nestbed.model.system import BaseSystem
from nestbed.model.target import Target, Wanted, targeted
from nestbed.numerics import noise, storage
from nestbed.numerics.errors import NestbedError, at_least_one, did_you_mean
from nestbed.numerics.intervals import Interval, chance_above, of_means, quantile
from nestbed.numerics.progress import Progress, Watch, part, renamed
from nestbed.policies.base import Policy
from nestbed.policies.signals import Constant


@dataclass(frozen=True, eq=False, repr=False)
class PolicyEstimate(Estimate):
    """One policy's expected information gain over several seeds, in nats, with bounds where they were asked for."""

    policy: str = ""
    spce: Estimate | None = None  # lower bound
    snmc: Estimate | None = None  # upper bound
    certificate: Certificate | None = None  # where the gain was certified; the values are its own
    violation: Violation | None = None  # how often limits are broken, for systems that have limits

    @property
    def interval(self) -> Interval:
        """Where the expected gain lies, with 95 % confidence; what a certificate's bounds leave open is in it."""
        return super().interval if self.certificate is None else self.certificate.interval

    @property
    def doubt(self) -> str:
        """A sentence on why the estimate is too low to be compared, or nothing."""
        if self.limit:
            return self.limit
        if self.spce is None:
            return ""
        bound, own = ((each.standard_error, len(each.values)) for each in (self.spce, self))
        if not chance_above(self.spce.mean - self.mean, bound, own) > SURE:
            return ""
        return (
            f"the estimate, {self.mean:.2f} nats, is below its own lower bound sPCE, {self.spce.mean:.2f}, so it is "
            "too low: use nb.certificate or belief='guided', or give more particles."
        )

    @property
    def curve(self) -> tuple[Any, Any, Any]:
        """The gain after each experiment, and the ends of its 95 % interval."""
        if self.certificate is not None:
            found = self.certificate.curve
            reach = quantile(self.certificate.records - 1) * found.standard_error
            return found.mean, found.lower - reach, found.upper + reach
        assert self.steps is not None, "an estimate by sweeps has gains by experiment"
        total = np.cumsum(self.steps, axis=1)
        return total.mean(axis=0), *of_means(total)


class Comparison(Sequence[PolicyEstimate]):
    """Estimates in the order in which the policies were given."""

    def __init__(self, estimates: Sequence[PolicyEstimate]):
        self.estimates = tuple(estimates)

    @overload
    def __getitem__(self, index: int) -> PolicyEstimate: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[PolicyEstimate]: ...
    def __getitem__(self, index: Any) -> Any:
        return self.estimates[index]

    def __len__(self) -> int:
        return len(self.estimates)

    def __iter__(self) -> Iterator[PolicyEstimate]:
        return iter(self.estimates)

    @property
    def doubts(self) -> dict[str, str]:
        """Policies whose estimates are known to be too low, each with a sentence on why and what to do."""
        return {each.policy: each.doubt for each in self.estimates if each.doubt}

    def beats(self, one: str, other: str) -> float:
        """Return the probability that one policy's expected gain is above another's, given the two estimates.

        By Student's t, so that few trajectories are not taken for many; of what the bounds of certificates leave open,
        the chance nearest to one half. Raises an error where an estimate is known to be too low.
        """
        a, b = self._find(one), self._find(other)
        for name in (one, other):
            if name in self.doubts:
                raise NestbedError(f"who gains more is not known, since for {name} {self.doubts[name]}")
        if one == other:
            return 0.5
        if a.certificate is not None and b.certificate is not None:
            more = a.certificate.less(b.certificate)
            ends = ((more.lower, more.lower_standard_error), (more.upper, more.upper_standard_error))
            size = more.records
            low, high = sorted(chance_above(end, (error, size), (0.0, size)) for end, error in ends)
            return min(max(low, 0.5), high)
        return chance_above(a.mean - b.mean, *((each.standard_error, len(each.values)) for each in (a, b)))

    def difference(self, one: str, other: str) -> Certificate:
        """Return how much more one policy gains than another, with bounds and an interval, from the same rigs."""
        a, b = self._find(one).certificate, self._find(other).certificate
        if a is None or b is None:
            raise NestbedError("the policies were not certified, so their difference has no interval; use nb.compare.")
        return a.less(b)

    def _find(self, name: str) -> PolicyEstimate:
        named = {each.policy: each for each in self.estimates}
        if name not in named:
            raise NestbedError(f"there is no policy {name!r} in the comparison; {did_you_mean(str(name), named)}.")
        return named[name]

    def __str__(self) -> str:
        width = max((len(each.policy) for each in self.estimates), default=0)
        return "\n".join(f"{each.policy:{width}s}  {_told(each)}" for each in self.estimates)

    __repr__ = __str__


def compare(
    key: jax.Array,
    system: BaseSystem,
    policies: Mapping[str, Policy],
    *,
    horizon: int | None = None,
    records: int | None = None,
    draws: int = 64,
    accuracy: float | None = None,
    target: Wanted | Sequence[Wanted] | Target | None = None,
    progress: Watch[Progress] | None = None,
    **sweeps: Any,
) -> Comparison:
    """Certify the gain of every policy on the same simulated rigs.

    Args:
        key: a jax key.
        system: the model.
        policies: by name.
        horizon: T, experiments per record; by default the system's.
        records: how many are simulated with each policy, at first; by default as many as `nb.certificate` has.
        draws: L, parameters drawn for each record.
        accuracy: in nats; more records are simulated until every interval reaches no further to either side.
        target: parameters of interest or what follows from them, as `nb.certificate` takes it; all by default.
        progress: called with a policy's `.name` and how many of its records are done, `.done` of `.total`, from any
            thread.
        **sweeps: the published estimator in place of certificates, if any of these is given: seeds (25), trajectories
            (16 for each seed), contrastive (draws for sPCE and sNMC), and what else `nb.eig` takes, such as belief.

    Returns:
        One estimate per policy, in nats, in the order given; `.beats("a", "b")` is the probability that a gains more,
        `.difference("a", "b")` how much, with its interval.
    """
    if not isinstance(policies, Mapping) or not policies or not all(isinstance(name, str) for name in policies):
        raise NestbedError('policies must be named; give a dictionary, as in {"random": nb.policies.Random(system)}.')
    if sweeps:
        return _by_sweeps(key, system, policies, horizon=horizon, progress=progress, **sweeps)
    found = []
    for name, policy in policies.items():
        certified = certificate(
            key,
            system,
            policy,
            horizon=horizon,
            records=records,
            draws=draws,
            accuracy=accuracy,
            target=target,
            progress=renamed(progress, name),
        )
        broken = violation(key, system, policy, horizon=horizon) if system.limits or system.slew else None
        found.append(PolicyEstimate(certified.values, policy=name, certificate=certified, violation=broken))
    return Comparison(found)


def _by_sweeps(
    key: jax.Array,
    system: BaseSystem,
    policies: Mapping[str, Policy],
    *,
    seeds: int = 25,
    trajectories: int = 16,
    contrastive: int | None = None,
    progress: Watch[Progress] | None = None,
    **settings: Any,
) -> Comparison:
    """Estimate every policy by sweeps, with sPCE and sNMC of as many records where draws for them are given."""
    at_least_one(seeds=seeds, trajectories=trajectories, contrastive=1 if contrastive is None else contrastive)
    key = noise.as_key(key)
    count = seeds * trajectories
    total = count if contrastive is None else 2 * count
    found = []
    for name, policy in policies.items():
        gain_key, bound_key = jax.random.split(jax.random.fold_in(key, zlib.crc32(name.encode())))
        gains = eig(gain_key, system, policy, trajectories=count, progress=part(progress, name, 0, total), **settings)
        below = above = None
        if contrastive is not None:
            both = bounds(
                bound_key,
                system,
                policy,
                horizon=settings.get("horizon"),
                outer=count,
                contrastive=contrastive,
                progress=part(progress, name, count, total),
            )
            below, above = (Estimate(bound.values, seeds) for bound in both)
        found.append(PolicyEstimate(gains.values, seeds, gains.steps, gains.limit, policy=name, spce=below, snmc=above))
        if found[-1].doubt and not gains.limit:
            warnings.warn(f"for {name} {found[-1].doubt}", stacklevel=3)
    return Comparison(found)


LEVELS = (-1.0, -0.5, 0.0, 0.5, 1.0)
"""Constant designs that are tried, in units of the box; for several channels also all pairs of limits at random."""


def best_constant(
    key: jax.Array, system: BaseSystem, horizon: int, target: Wanted | Sequence[Wanted] | Target | None = None
) -> Constant:
    """Return the constant design of the highest expected Gauss–Newton gain, of a few levels."""
    channels = len(system.design_names)
    levels = [np.full(channels, level) for level in LEVELS]
    if channels > 1:
        signs = np.random.default_rng(0).choice([-1.0, 1.0], (8, channels))
        levels += list(np.unique(signs, axis=0))
    unit = np.repeat(np.stack(levels)[:, None], horizon, axis=1)
    key = jax.random.fold_in(noise.as_key(key), zlib.crc32(b"constant"))
    gains = objective.expected(key, system, unit, targeted(system, target), TRIED)
    return Constant(system, levels[int(np.argmax(np.nan_to_num(gains, nan=-np.inf)))])


TRIED = 256
"""Rigs that a constant design is tried on."""


def _chance(comparison: Comparison, one: str, other: str) -> str:
    """Return a probability for the table, empty where it is not known."""
    return "" if comparison.doubts.keys() & {one, other} else f"{comparison.beats(one, other):.6f}"


SURE = 0.999
"""Probability with which an estimate must be below its lower bound to be called too low."""


def _told(estimate: PolicyEstimate) -> str:
    if estimate.certificate is not None:
        low, high = estimate.interval
        broken = "" if estimate.violation is None else f", {estimate.violation}"
        return f"{estimate.mean:6.2f} nats  (95 %: {low:.2f} to {high:.2f}){broken}"
    told = f"{estimate.mean:6.2f} ± {estimate.standard_error:.2f} nats"
    if estimate.spce is None or estimate.snmc is None:
        return told
    below, above = (f"{bound.mean:.2f} ± {bound.standard_error:.2f}" for bound in (estimate.spce, estimate.snmc))
    return f"{told}  (sPCE {below}, sNMC {above})"


def save_table(comparison: Comparison, file: Path) -> None:
    """Write one line per policy: its estimates, and the probability that it beats each of the others."""
    names = [each.policy for each in comparison]
    certified = comparison[0].certificate is not None
    metrics = [name for name in ("spce", "snmc") if getattr(comparison[0], name) is not None]
    parts = ("mean_nats", "sd_over_seeds", "standard_error")
    columns = [f"{metric}_{part}" for metric in ("eig", *metrics) for part in parts]
    if certified:
        ends = ("lower_bound", "upper_bound", "interval_low", "interval_high")
        columns = ["eig_mean_nats", "eig_standard_error", *ends, "records"]
        if comparison[0].violation is not None:
            columns += ["violation_probability", "violation_low", "violation_high"]
    stream = io.StringIO()
    writer = csv.writer(stream)
    writer.writerow(["policy", *columns, *(f"probability_beats_{name}" for name in names)])
    for each in comparison:
        estimates = [each, *(getattr(each, metric) for metric in metrics)]
        values = [value for e in estimates for value in (e.mean, e.sd, e.standard_error)]
        if (c := each.certificate) is not None:
            values = [c.mean, c.standard_error, c.lower, c.upper, *c.interval, c.records]
            if each.violation is not None:
                values += [each.violation.probability, *each.violation.interval]
        chances = [_chance(comparison, each.policy, name) for name in names]
        writer.writerow([each.policy, *(f"{value:.6f}" for value in values), *chances])
    storage.write(file, stream.getvalue().encode(errors="surrogateescape"))
