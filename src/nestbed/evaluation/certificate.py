"""The expected information gain between two bounds, to a hundredth of a nat.

Of each simulated record the true parameters θ₀ are known, and how likely it is in all, log p(z), follows from L draws
of a proposal that is fitted to the record alone: the average of their weights, without θ₀, errs to the low side (so
that the gain is bounded from above: VNMC), and with θ₀ among them to the high side (from below: ACE). Since θ₀ is a
draw from the posterior of its record, averages over θ₀ and the L draws by weight have the expectation that averages
over the posterior have, which take the place of log p(z | θ₀) with less variance. Control variates take most of the
rest: what the posteriors say about the parameters averages to the prior.
"""

import dataclasses
import functools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float

from nestbed.evaluation.judging import MORE, TOGETHER, Judge, Judged
from nestbed.likelihood import adequacy
from nestbed.model import checks
from nestbed.model.system import BaseSystem
from nestbed.model.target import Target, Wanted, targeted
from nestbed.numerics import noise
from nestbed.numerics.errors import NestbedError, at_least_one
from nestbed.numerics.intervals import Interval, of_mean
from nestbed.numerics.progress import Progress, Watch
from nestbed.policies.base import Policy, prepare

FEWEST, SMALL = 4.0, 0.1
"""Effective draws, and their share, below which a record's bounds tell little."""
APART, WIDE = 0.02, 0.1
"""Distance of the bounds, in nats, above which it is told that a record's shape is why; and whatever the reason."""
MANIFOLD = 0.01
"""Share of records whose target has its values in several places above which that is told."""
MOST_RECORDS = 1 << 20
"""Records beyond which no accuracy is pursued."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Certificate:
    """A lower and an upper bound of the expected information gain, an estimate between them and its interval, in nats.

    Each holds in expectation over simulated records, whose number is in the standard errors. The estimate is the middle
    of the bounds; the interval (95 %) reaches from the lower one less its error to the upper one and its error.
    """

    lower_values: Float[np.ndarray, " N"]  # after control variates, one of each record
    upper_values: Float[np.ndarray, " N"]
    ess: Float[np.ndarray, " N"]  # effective share of the draws, of each record
    draws: int
    horizon: int
    target: tuple[str, ...] | None = None
    mixed: Bool[np.ndarray, " N"] | None = None  # records whose posterior needed more than one Gaussian
    elsewhere: Bool[np.ndarray, " N"] | None = None  # records whose target has its values in other places too
    origin: tuple[int, ...] = ()  # the key's words
    _curve: Callable[[], "Curve"] | None = None

    @property
    def records(self) -> int:
        """How many were simulated."""
        return len(self.lower_values)

    @property
    def lower(self) -> float:
        """The lower bound (ACE)."""
        return float(self.lower_values.mean())

    @property
    def upper(self) -> float:
        """The upper bound (VNMC)."""
        return float(self.upper_values.mean())

    @property
    def lower_standard_error(self) -> float:
        """Of the lower bound."""
        return _standard_error(self.lower_values)

    @property
    def upper_standard_error(self) -> float:
        """Of the upper bound."""
        return _standard_error(self.upper_values)

    @property
    def values(self) -> Float[np.ndarray, " N"]:
        """The middle between the bounds, of each record."""
        return 0.5 * (self.lower_values + self.upper_values)

    @property
    def mean(self) -> float:
        """The estimate: the middle between the bounds."""
        return float(self.values.mean())

    @property
    def standard_error(self) -> float:
        """Of the estimate, from the number of records; what the bounds leave open comes on top, as in `interval`."""
        return _standard_error(self.values)

    @property
    def interval(self) -> Interval:
        """Where the expected gain lies, with 95 % confidence, what the bounds leave open included."""
        return Interval(of_mean(self.lower_values).low, of_mean(self.upper_values).high)

    @functools.cached_property
    def curve(self) -> "Curve":
        """The same after each experiment, from 256 records at most, 64 where they take long; it takes a while."""
        if self._curve is None:
            raise NestbedError("this certificate has no curve; ask the one that nb.certificate returned.")
        return self._curve()

    def less(self, other: "Certificate") -> "Certificate":
        """Return what this one gains more than another, from the same key: the noise that both share cancels."""
        same = all(getattr(self, name) == getattr(other, name) for name in ("origin", "horizon", "target"))
        if not self.origin or not same:
            raise NestbedError(
                "the certificates are of other records or targets, so their difference has no interval; make both with "
                "the same key, horizon and target."
            )
        count = min(self.records, other.records)
        lower, upper = (
            mine[:count] - theirs[:count]
            for mine, theirs in ((self.lower_values, other.upper_values), (self.upper_values, other.lower_values))
        )
        ess = np.minimum(self.ess[:count], other.ess[:count])
        return Certificate(lower, upper, ess, min(self.draws, other.draws), self.horizon, self.target)

    def __str__(self) -> str:
        about = f" about {', '.join(self.target)}" if self.target else ""
        low, high = self.interval
        return f"{self.mean:.3f} nats{about} (95 %: {low:.3f} to {high:.3f}; bounds {self.lower:.3f}, {self.upper:.3f})"

    def __repr__(self) -> str:
        return (
            f"Certificate(mean={self.mean!r}, standard_error={self.standard_error!r}, lower={self.lower!r}, "
            f"upper={self.upper!r}, records={self.records}, draws={self.draws})"
        )


class Curve(NamedTuple):
    """The gain after each experiment."""

    lower: Float[np.ndarray, " T"]
    upper: Float[np.ndarray, " T"]
    mean: Float[np.ndarray, " T"]
    standard_error: Float[np.ndarray, " T"]


def certificate(
    key: jax.Array,
    system: BaseSystem,
    policy: Policy,
    *,
    horizon: int | None = None,
    records: int | None = None,
    draws: int = 64,
    accuracy: float | None = None,
    target: Wanted | Sequence[Wanted] | Target | None = None,
    progress: Watch[Progress] | None = None,
) -> Certificate:
    """Bound the expected information gain of a policy from below and above.

    Args:
        key: a jax key; the same key gives the same numbers, and the same simulated rigs for every policy.
        system: the model.
        policy: what chooses the designs.
        horizon: T, experiments per record; by default the system's.
        records: how many are simulated, at first; by default 1024, fewer where they take long: 256 where one Gaussian
            does not fit posteriors, down to 64 where the system is much work besides.
        draws: L, parameters drawn for each record; the bounds come together as 1 / L.
        accuracy: in nats; more records are simulated until the interval reaches no further to either side.
        target: names of the parameters of interest, the others being nuisance; all by default. Or what follows from
            them: the name of a method (theta) of the system, or a function of theta. The gain about these alone is
            bounded in the same way.
        progress: called with how many records are done, `.done` of `.total`, from any thread.

    Returns:
        Both bounds and the estimate between them, with their errors and an interval, in nats.
    """
    checks.instance(system)
    adequacy.check(system)
    horizon = system.horizon if horizon is None else horizon
    at_least_one(horizon=horizon, records=1 if records is None else records, draws=draws)
    if records == 1:
        raise NestbedError("records is 1, but at least 2 are needed for an interval; give more, such as 1024.")
    check_accuracy(accuracy)
    wanted = targeted(system, target)
    judge = Judge(noise.as_key(key), system, prepare(policy, system, horizon), horizon, draws, wanted)
    found = _certificate(judge, judge.judge(records, progress))
    while accuracy is not None and found.records < MOST_RECORDS:
        reach, gap = 0.5 * (found.interval.high - found.interval.low), 0.5 * (found.upper - found.lower)
        if reach <= accuracy or gap > 0.9 * accuracy:
            break
        needed = math.ceil(1.05 * found.records * ((reach - gap) / (accuracy - gap)) ** 2)
        found = _certificate(judge, judge.judge(min(MOST_RECORDS, max(found.records + TOGETHER, needed)), progress))
    _tell(found, accuracy)
    return found


def _certificate(judge: Judge, found: Judged) -> Certificate:
    """Return the certificate of judged records."""
    names = None if judge.target is None else judge.target.names
    origin = tuple(int(word) for word in np.asarray(jax.random.key_data(judge.key)))
    parts = found.lower, found.upper, found.ess, judge.draws, judge.horizon, names, found.mixed, found.elsewhere
    return Certificate(*parts, origin, lambda: _curve(judge))


def _curve(judge: Judge) -> Curve:
    """Return the certificate after each experiment."""
    found = [_certificate(judge, each) for each in judge.after_each()]
    return Curve(*(np.array([getattr(each, name) for each in found]) for name in Curve._fields))


def _tell(found: Certificate, accuracy: float | None) -> None:
    """Say which record's bounds tell little, or that the accuracy was not reached and why."""
    draws = found.draws * np.where(np.asarray(found.mixed), MORE, 1)
    few = np.flatnonzero(~((found.ess * draws > FEWEST) | (found.ess > SMALL)))
    gap = found.upper - found.lower
    if len(few) and gap > APART:
        warnings.warn(
            f"the posterior of {len(few)} of {found.records} records (the first is record {few[0]}) has a shape that "
            f"no proposal fits, and the bounds are {gap:.2f} nats apart; give more draws than {found.draws} (`draws`).",
            stacklevel=3,
        )
    elif gap > WIDE:
        warnings.warn(
            f"the bounds, {found.lower:.2f} and {found.upper:.2f}, are far apart, and all that is known of the gain is "
            f"that it lies between them; give more draws than {found.draws} (`draws`).",
            stacklevel=3,
        )
    places = int(np.sum(np.asarray(found.elsewhere)))
    if places > MANIFOLD * found.records and found.target is not None:
        warnings.warn(
            f"in {places} of {found.records} records {', '.join(found.target)} has the same value at several places, "
            "of which one was looked at, and the bounds may be off by the logarithm of their number; make a target of "
            "something that rises or falls throughout.",
            stacklevel=3,
        )
    low, high = found.interval
    if accuracy is not None and 0.5 * (high - low) > accuracy:
        cause = "the bounds are apart" if found.upper - found.lower > accuracy else "records are at their most"
        warnings.warn(
            f"the accuracy of {accuracy} nats was not reached: the interval is {low:.3f} to {high:.3f} since {cause}; "
            f"give more draws than {found.draws} (`draws`), or ask for less.",
            stacklevel=3,
        )


def check_accuracy(accuracy: float | None) -> None:
    """Raise unless an accuracy is a positive number, or None."""
    if accuracy is not None and not (isinstance(accuracy, int | float) and 0.0 < accuracy < math.inf):
        raise NestbedError(f"accuracy is {accuracy!r}, but it must be a positive number of nats, such as 0.02.")


def _standard_error(values: Float[np.ndarray, " N"]) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan
