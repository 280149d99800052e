"""Several policies on one system, estimated alike."""

import csv
import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import jax

from nestbed.evaluation.contrastive_bounds import bounds
from nestbed.evaluation.eig import eig
from nestbed.evaluation.estimates import Estimate
from nestbed.model.system import BaseSystem
from nestbed.numerics import noise, storage
from nestbed.numerics.errors import NestbedError, at_least_one, did_you_mean
from nestbed.numerics.intervals import chance_above
from nestbed.numerics.progress import Progress, Watch, part
from nestbed.policies.base import Policy


@dataclass(frozen=True, eq=False, repr=False)
class PolicyEstimate(Estimate):
    """One policy's expected information gain over several seeds, in nats, with bounds where they were asked for."""

    policy: str = ""
    spce: Estimate | None = None  # lower bound
    snmc: Estimate | None = None  # upper bound


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

    def beats(self, one: str, other: str) -> float:
        """Return the probability that one policy's expected gain is above another's, given the two estimates.

        By Student's t, so that few trajectories are not taken for many.
        """
        named = {each.policy: each for each in self.estimates}
        for name in (one, other):
            if name not in named:
                raise NestbedError(f"there is no policy {name!r} in the comparison; {did_you_mean(str(name), named)}.")
        a, b = named[one], named[other]
        if one == other:
            return 0.5
        return chance_above(a.mean - b.mean, *((each.standard_error, len(each.values)) for each in (a, b)))

    def __str__(self) -> str:
        width = max((len(each.policy) for each in self.estimates), default=0)
        lines = [
            f"{s.policy:{width}s}  {s.mean:6.2f} ± {s.standard_error:.2f} nats{_bounded(s)}" for s in self.estimates
        ]
        return "\n".join(lines)

    __repr__ = __str__


def compare(
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
    """Estimate the gain of every policy in the same way.

    Args:
        key: a jax key. A policy's numbers hang on it and on the policy's name, not on the others beside it.
        system: the model.
        policies: by name.
        seeds: independent estimates of each policy, whose spread is its `sd`.
        trajectories: N, simulated records of each estimate.
        contrastive: L, draws for the bounds sPCE and sNMC, from as many records; None leaves them out.
        progress: called with a policy's `.name` and how many of its records are done, `.done` of `.total`, from any
            thread.
        **settings: go to `nb.eig`, such as horizon, particles or belief.

    Returns:
        One estimate per policy, in nats, in the order given; `.beats("a", "b")` is the probability that a gains more.
    """
    at_least_one(seeds=seeds, trajectories=trajectories, contrastive=1 if contrastive is None else contrastive)
    if not isinstance(policies, Mapping) or not policies or not all(isinstance(name, str) for name in policies):
        raise NestbedError('policies must be named; give a dictionary, as in {"random": nb.policies.Random(system)}.')
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
        found.append(PolicyEstimate(gains.values, seeds, gains.steps, policy=name, spce=below, snmc=above))
    return Comparison(found)


def _bounded(estimate: PolicyEstimate) -> str:
    if estimate.spce is None or estimate.snmc is None:
        return ""
    below, above = (f"{bound.mean:.2f} ± {bound.standard_error:.2f}" for bound in (estimate.spce, estimate.snmc))
    return f"  (sPCE {below}, sNMC {above})"


def save_table(comparison: Comparison, file: Path) -> None:
    """Write one line per policy: its estimates, and the probability that it beats each of the others."""
    names = [each.policy for each in comparison]
    metrics = [name for name in ("spce", "snmc") if getattr(comparison[0], name) is not None]
    parts = ("mean_nats", "sd_over_seeds", "standard_error")
    columns = [f"{metric}_{part}" for metric in ("eig", *metrics) for part in parts]
    stream = io.StringIO()
    writer = csv.writer(stream)
    writer.writerow(["policy", *columns, *(f"probability_beats_{name}" for name in names)])
    for each in comparison:
        estimates = [each, *(getattr(each, metric) for metric in metrics)]
        values = [value for e in estimates for value in (e.mean, e.sd, e.standard_error)]
        chances = [comparison.beats(each.policy, name) for name in names]
        writer.writerow([each.policy, *(f"{value:.6f}" for value in [*values, *chances])])
    storage.write(file, stream.getvalue().encode(errors="surrogateescape"))
