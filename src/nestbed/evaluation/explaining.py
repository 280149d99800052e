"""Whether a model explains data: tests of where outcomes lie in what was predicted before them.

Under the model these residuals are independent standard normal numbers, sensor by sensor, however little is known of
the parameters. Five tests look for what they are not, for each sensor: too large or too small (a chi-square), off on
average, correlated from one sample to the next, correlated over longer stretches, and single ones far off. All are
exact for any number of samples, but that numbers beyond MOST count as that: a correlation is the slope of every second
number on its neighbours, which given these has Student's distribution. The model is taken to fail where the smallest p
is below ALARM, shared out among all tests (Bonferroni): so data of the model itself are called unexplained in at most
1 % of all records, whatever their length. That holds as far as predictions are exact: particles of a prior are finitely
many, and a rig in its far tail lies beyond them all, so that the first outcomes count little unless they are very far
off; and between them lies nothing, so that first outcomes are never taken for too near.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import special

from nestbed.evaluation import rounding
from nestbed.evaluation.rounding import Replicates

ALARM = 0.01
"""Probability that data of the model itself are said to be unexplained, over all tests of all sensors of a record."""
CLEARLY = 1e-4
"""The same where nobody asked: a posterior warns of what is beyond all doubt."""
FEW = 0.02
"""Share of the samples up to which those far off are single ones."""
AFTER = 5
"""Samples after one far off that it may have led astray."""
EARLY = 3
"""Experiments after which a prior has met the data."""
MOST = 3.5
"""Deviations that one outcome counts as at most in all tests but that of single ones: a few say nothing of the rest."""
SURELY = 7.7
"""Deviations below which early outcomes count so much at most there too: particles end before a prior's tails do."""
WILD = 5.0
"""Standard deviations that outcomes are off by on average beyond which it is no matter of noise or dynamics."""
FEWEST = 8
"""Samples below which no correlation is looked for."""


@dataclass(frozen=True)
class Test:
    """One test of one sensor: what it looks at, what it found, and how often chance alone finds as much."""

    __test__ = False  # nothing of pytest's

    sensor: str
    kind: str  # "size", "mean", "correlation", "slow correlation" or "outlier"
    value: float  # root mean square, mean, correlation, correlation of sums, largest residual
    p: float
    samples: int


@dataclass(frozen=True)
class Explanation:
    """Whether a model explains data, with the tests that say so."""

    tests: tuple[Test, ...]
    explains: bool
    sentence: str
    alarm: float = ALARM

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        tests = [vars(test) for test in self.tests]
        return {"explains": self.explains, "sentence": self.sentence, "alarm": self.alarm, "tests": tests}


def explain(
    names: Sequence[str], residuals: Any, alarm: float = ALARM, rounded: Replicates = rounding.nothing
) -> Explanation:
    """Return whether the residuals, (T, number of sensors) with NaN where nothing was measured, are those of the model.

    `names` are the sensors', `alarm` is how often data of the model itself may be called unexplained, and `rounded`
    gives residuals that rounding makes of such data: what fails in these as well speaks against no model.
    """
    columns = np.asarray(residuals, float).T
    tests = tuple(test for name, z in zip(names, columns, strict=True) for test in tested(name, z))
    if not tests:
        return Explanation((), True, "whether the model explains the data is not known: nothing was measured.", alarm)
    level = alarm / len(tests)
    excuses = _excuses(tests, level, rounded)
    least = min((test for test in tests if test.sensor not in excuses), key=lambda test: test.p, default=None)
    if least is None or least.p >= level:
        words = f"none of {len(tests)} tests speaks against it (smallest p {_p(min(test.p for test in tests))})."
        return Explanation(tests, True, f"the model explains the data: {' '.join(excuses.values()) or words}", alarm)
    failed = [test for test in tests if test.sensor == least.sensor and test.p < level]
    z = columns[list(names).index(least.sensor)]
    return Explanation(tests, False, f"the model does not explain the data: {_complaint(failed, z, level)}", alarm)


def _excuses(tests: Sequence[Test], level: float, rounded: Replicates) -> dict[str, str]:
    """Return the sensors whose tests fail no more than rounding makes those of the model's own data fail, in words."""
    found = {}
    for name in {test.sensor: None for test in tests if test.p < level}:
        least = min(test.p for test in tests if test.sensor == name)
        replicates = rounded(name)
        if replicates is None:
            continue
        alike = sum(min(test.p for test in tested(name, z)) <= least for z in replicates.T)
        if alike > ALARM * replicates.shape[1]:
            found[name] = (
                f"that what {name} shows is no white noise about it (smallest p {_p(least)}) is the work of its coarse "
                f"steps, which do as much to {alike} of {replicates.shape[1]} simulated records of the model."
            )
    return found


def tested(name: str, z: Float[np.ndarray, " T"]) -> list[Test]:
    """Return the tests of one sensor; too few samples leave some out."""
    known = np.isfinite(z)
    n = int(known.sum())
    if n == 0:
        return []
    held = np.clip(z, -MOST, MOST)
    seen, doubted = held[known], (np.arange(len(z)) < EARLY) & (np.abs(np.nan_to_num(z)) < SURELY)
    squares, mean = float(np.sum(seen**2)), float(np.mean(seen))
    early = np.arange(len(z))[known] < EARLY
    most = float(np.sum(np.where(early, np.maximum(np.abs(seen), 1.0), seen) ** 2))
    size = 2.0 * min(special.chdtr(n, most), special.chdtrc(n, squares))
    off = np.where(doubted, held, z)[known]
    largest = float(off[np.abs(off).argmax()])
    within = math.log1p(-min(2.0 * special.ndtr(-abs(largest)), 1.0 - 1e-16))  # of one, then of all
    found = [
        ("size", math.sqrt(float(np.mean(z[known] ** 2))), size),
        ("mean", float(np.mean(z[known])), 2.0 * special.ndtr(-abs(mean) * math.sqrt(n))),
        ("outlier", largest, -math.expm1(n * within)),
    ]
    long = _length(n)
    if n >= FEWEST:
        found.append(("correlation", *_neighbours(held)))
    if n >= FEWEST * long and long > 1:
        found.append(("slow correlation", *_neighbours(_sums(held, long))))
    return [Test(name, kind, value, min(1.0, float(p)), n) for kind, value, p in found]


def _length(samples: int) -> int:
    """Return how many samples a stretch has whose sum is compared with the next."""
    return max(1, round(0.5 * math.sqrt(samples)))


def _sums(z: Float[np.ndarray, " T"], length: int) -> Float[np.ndarray, " K"]:
    """Return sums over stretches, each in units of its own deviation: again independent standard normal numbers."""
    whole = z[: len(z) // length * length].reshape(-1, length)
    counts = np.isfinite(whole).sum(axis=1)
    found: np.ndarray = np.nansum(whole, axis=1) / np.sqrt(np.maximum(counts, 1))
    return np.where(counts > 0, found, np.nan)


def _neighbours(z: Float[np.ndarray, " T"]) -> tuple[float, float]:
    """Return how neighbours are correlated, and the p of every second one's slope on those beside it.

    The slope is that of a line through 0, where the mean is under the model; the correlation is about the mean found.
    """
    held = np.where(np.isfinite(z), z, 0.0)
    beside = np.append(0.0, held[:-1]) + np.append(held[1:], 0.0)
    odd = np.isfinite(z) & (np.arange(len(z)) % 2 == 1) & (beside != 0.0)
    x, y, freedom = beside[odd], held[odd], int(odd.sum()) - 1
    pairs = np.isfinite(z[1:] * z[:-1])
    if freedom < FEWEST // 4 or not pairs.any():
        return 0.0, 1.0
    centred, slope = held - np.nanmean(z), x @ y / (x @ x)
    left = (y - slope * x) @ (y - slope * x) / freedom
    value = np.mean((centred[1:] * centred[:-1])[pairs]) / max(np.nanvar(z), 1e-300)
    t = abs(slope) * math.sqrt(x @ x / max(left, 1e-300))
    return float(np.clip(value, -1.0, 1.0)), float(2.0 * special.stdtr(freedom, -t))


def _complaint(failed: list[Test], z: Float[np.ndarray, " T"], level: float) -> str:
    """Return what speaks against the model, in words: single values first, then units, dynamics, offsets and noise."""
    by_kind = {test.kind: test for test in failed}
    test = by_kind.get("outlier")
    far = np.flatnonzero(np.abs(np.nan_to_num(z)) > -special.ndtri(0.5 * level / np.isfinite(z).sum()))
    if test is not None:
        single = _single(z, far, level)
        if single or np.nanmean(z**2) > WILD**2:
            return _far(test, z, far, single)
    test = by_kind.get("correlation") or by_kind.get("slow correlation")
    if test is not None and not ("mean" in by_kind and _alike(test)):
        return _correlated(test)
    if (test := by_kind.get("mean")) is not None:
        side = "above" if test.value > 0 else "below"
        return (
            f"what {test.sensor} shows lies {abs(test.value):.2g} standard deviations {side} what is predicted, on "
            f"average (p {_p(test.p)}), as where a sensor has an offset or a drift is missing; make the offset a "
            "parameter, or correct the units of the record."
        )
    return _sized(by_kind["size"]) if "size" in by_kind else _far(by_kind["outlier"], z, far, False)


def _single(z: Float[np.ndarray, " T"], far: Int[np.ndarray, " K"], level: float) -> bool:
    """Return whether a few outcomes far off are all that is wrong, with what a filter makes of each for a while."""
    near = np.isfinite(z)
    for after in range(AFTER + 1):
        near[np.minimum(far + after, len(z) - 1)] = False
    events = 1 + np.sum(np.diff(far) > AFTER)
    rest = z[near]
    enough = 2 * len(rest) > np.isfinite(z).sum() and events <= max(1.0, FEW * len(z))
    return bool(enough and special.chdtrc(len(rest), np.sum(rest**2)) >= level)


def _alike(test: Test) -> bool:
    """Return whether neighbours are alike only for being off on average."""
    count = test.samples if test.kind == "correlation" else test.samples / _length(test.samples)
    return abs(test.value) < 3.0 / math.sqrt(count)


def _far(test: Test, z: Float[np.ndarray, " T"], far: Int[np.ndarray, " K"], single: bool) -> str:
    advice = "the units and the order of the record's columns and designs, and the noise of the model"
    if single:
        advice = "these readings, and give what is none as not measured"
    if single and far[0] < EARLY:
        advice = "the units of the record's columns and designs, and the prior: all later outcomes are as predicted"
    return (
        f"{len(far)} of {test.samples} outcomes are improbable under all that was believed before (the first is that "
        f"of {test.sensor} in experiment {far[0]}, about {abs(z[far[0]]):.0f} standard deviations off); check {advice}."
    )


def _correlated(test: Test) -> str:
    span = "one sample" if test.kind == "correlation" else f"{_length(test.samples)} samples"
    found = f"from {span} to the next (correlation {test.value:.2f}, p {_p(test.p)})"
    if test.value > 0.0:
        return (
            f"what {test.sensor} shows is off in the same direction {found}, as where dynamics are missing or a delay "
            "is wrong; add a state or a delay, or a diffusion for what is not modelled, before the parameters are "
            "relied on."
        )
    return (
        f"what {test.sensor} shows swings {found}, as where states have too much noise beside the sensor; make the "
        "diffusion smaller, or the sensor's noise larger."
    )


def _sized(test: Test) -> str:
    if test.value > 1.0:
        return (
            f"what {test.sensor} shows is {test.value:.2g} times as far from what is predicted as the model's noise "
            f"allows (p {_p(test.p)}); make its noise larger, or a parameter, or check the units and the equations."
        )
    return (
        f"what {test.sensor} shows is nearer to what is predicted than the model's noise, {test.value:.2g} of it (p "
        f"{_p(test.p)}), so posteriors are wider than they need be; make its noise smaller, or a parameter."
    )


def _p(p: float) -> str:
    return "< 1e-16" if p < 1e-16 else f"{p:.2g}"
