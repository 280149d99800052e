"""Several policies on one system, scored alike."""

import csv
import io
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, overload

import jax
import numpy as np
from jaxtyping import Float

from nestbed import noise, storage
from nestbed.errors import NestbedError, at_least_one, did_you_mean
from nestbed.evaluation.contrastive_bounds import bounds
from nestbed.evaluation.eig import eig
from nestbed.evaluation.intervals import Interval, chance_above, of_mean
from nestbed.system import BaseSystem


class Spread(NamedTuple):
    """A mean over seeds, in nats."""

    mean: float
    sd: float  # over seeds, each the mean of its own trajectories
    standard_error: float  # over all trajectories


class Score(NamedTuple):
    """One policy's expected information gain over several seeds, in nats."""

    policy: str
    mean: float
    sd: float  # over seeds, each the mean of its own trajectories
    standard_error: float
    steps: Float[np.ndarray, "N T"]  # gain of every experiment of every trajectory
    spce: Spread | None = None  # lower bound
    snmc: Spread | None = None  # upper bound

    @property
    def interval(self) -> Interval:
        """Where the expected gain lies, with 95 % confidence: by Student's t, corrected for skewness."""
        return of_mean(self.steps.sum(axis=1))


class Comparison(Sequence[Score]):
    """Scores in the order in which the policies were given."""

    def __init__(self, scores: Sequence[Score]):
        self.scores = tuple(scores)

    @overload
    def __getitem__(self, index: int) -> Score: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Score]: ...
    def __getitem__(self, index: Any) -> Any:
        return self.scores[index]

    def __len__(self) -> int:
        return len(self.scores)

    def __iter__(self) -> Iterator[Score]:
        return iter(self.scores)

    def beats(self, one: str, other: str) -> float:
        """Return the probability that one policy's expected gain is above another's, given the two estimates.

        By Student's t, so that few trajectories are not taken for many.
        """
        named = {score.policy: score for score in self.scores}
        for name in (one, other):
            if name not in named:
                raise NestbedError(f"there is no policy {name!r} in the comparison; {did_you_mean(str(name), named)}.")
        a, b = named[one], named[other]
        if one == other:
            return 0.5
        return chance_above(a.mean - b.mean, *((score.standard_error, len(score.steps)) for score in (a, b)))

    def __str__(self) -> str:
        width = max((len(score.policy) for score in self.scores), default=0)
        lines = [f"{s.policy:{width}s}  {s.mean:6.2f} ± {s.standard_error:.2f} nats{_bounded(s)}" for s in self.scores]
        return "\n".join(lines)

    __repr__ = __str__


def compare(
    key: jax.Array,
    system: BaseSystem,
    policies: Mapping[str, Any],
    *,
    seeds: int = 25,
    trajectories: int = 16,
    contrastive: int | None = None,
    progress: Callable[[str, int], None] | None = None,
    **settings: Any,
) -> Comparison:
    """Score every policy by `seeds` estimates of `trajectories` each; `settings` go to `eig`.

    With `contrastive`, as many draws also give the bounds sPCE and sNMC, from as many records. A policy's numbers
    hang on the key and its name, not on the others beside it. `progress` is called with a policy's name and the
    number of its trajectories just finished, from any thread.
    """
    at_least_one(seeds=seeds, trajectories=trajectories, contrastive=1 if contrastive is None else contrastive)
    if not isinstance(policies, Mapping) or not policies or not all(isinstance(name, str) for name in policies):
        raise NestbedError('policies must be named; give a dictionary, as in {"random": nb.policies.Random(system)}.')
    key = noise.as_key(key)
    scores = []
    for name, policy in policies.items():
        gain_key, bound_key = jax.random.split(jax.random.fold_in(key, zlib.crc32(name.encode())))
        told = None if progress is None else _telling(progress, name)
        estimate = eig(gain_key, system, policy, trajectories=seeds * trajectories, progress=told, **settings)
        score = Score(name, *spread(estimate.gains, seeds), estimate.steps)
        if contrastive is not None:
            found = bounds(
                bound_key,
                system,
                policy,
                horizon=settings.get("horizon"),
                outer=seeds * trajectories,
                contrastive=contrastive,
                progress=told,
            )
            score = score._replace(spce=spread(found.spce.values, seeds), snmc=spread(found.snmc.values, seeds))
        scores.append(score)
    return Comparison(scores)


def _bounded(score: Score) -> str:
    if score.spce is None or score.snmc is None:
        return ""
    below, above = (f"{bound.mean:.2f} ± {bound.standard_error:.2f}" for bound in (score.spce, score.snmc))
    return f"  (sPCE {below}, sNMC {above})"


def _telling(progress: Callable[[str, int], None], name: str) -> Callable[[int], None]:
    return lambda count: progress(name, count)


def spread(values: Float[np.ndarray, " N"], seeds: int) -> Spread:
    """Return the mean of independent values, its error, and the sd of the means of `seeds` equal parts."""
    means = values.reshape(seeds, -1).mean(axis=1)
    sd = float(means.std(ddof=1)) if seeds > 1 else math.nan
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else math.nan
    return Spread(float(values.mean()), sd, error)


def save_table(scores: Comparison, file: Path) -> None:
    """Write one line per policy: its estimates, and the probability that it beats each of the others."""
    names = [score.policy for score in scores]
    metrics = [name for name in ("spce", "snmc") if getattr(scores[0], name) is not None]
    parts = ("mean_nats", "sd_over_seeds", "standard_error")
    columns = [f"{metric}_{part}" for metric in ("eig", *metrics) for part in parts]
    stream = io.StringIO()
    writer = csv.writer(stream)
    writer.writerow(["policy", *columns, *(f"probability_beats_{name}" for name in names)])
    for score in scores:
        values = [score.mean, score.sd, score.standard_error]
        values += [value for metric in metrics for value in getattr(score, metric)]
        chances = [scores.beats(score.policy, name) for name in names]
        writer.writerow([score.policy, *(f"{value:.6f}" for value in [*values, *chances])])
    storage.write(file, stream.getvalue().encode(errors="surrogateescape"))
