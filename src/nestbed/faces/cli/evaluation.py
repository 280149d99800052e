"""What `nestbed evaluate` and `nestbed compare` share: options, estimates, and the files these are saved in."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from nestbed.belief.registry import BELIEFS
from nestbed.faces.cli.listing import Whole, entries
from nestbed.numerics import interrupts
from nestbed.numerics.errors import NestbedError, at_least_one, at_least_zero, seed_from

if TYPE_CHECKING:
    from nestbed.evaluation.comparison import Comparison
    from nestbed.model.system import BaseSystem
    from nestbed.policies.base import Policy


@Parameter(name="*")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How policies are evaluated.

    Parameters
    ----------
    records
        Simulated records of each policy, the same rigs for all; by default 1024, or 256 where posteriors are far from
        Gaussian and take long.
    draws
        L: parameters drawn for each record from a proposal fitted to it; the bounds come together as 1 / L.
    accuracy
        In nats: more records are simulated until each interval reaches no further to either side.
    target
        Parameters of interest, the others being nuisance, or methods (theta) of the system that make something of them;
        all parameters by default.
    risk
        For systems with limits: baselines are scaled down until they break them no more often than that.
    seeds
        With --belief or --contrastive: independent estimates per policy; their spread is the sd.
    trajectories
        With --belief or --contrastive, N: simulated records per estimate.
    particles
        With --belief, M: parameter particles per record.
    moves
        With --belief ibis: Metropolis steps whenever a record's particles are resampled.
    contrastive
        L of the bounds sPCE and sNMC, such as 1000000, in place of a certificate; the lower one cannot exceed
        log(L + 1).
    horizon
        T: experiments (time steps) per record; by default that of the training, or else the system's own.
    seed
        Seed of all randomness: the same seed gives the same numbers.
    out
        Folder for the table (CSV) and the figure (PNG); made if missing.
    """

    records: Whole | None = None
    draws: Whole = 64
    accuracy: float | None = None
    target: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="")] = ()
    risk: float = 0.01
    belief: Annotated[
        str | None,
        entries("The published estimator in place of a certificate, by sweeps with this posterior: {}.", BELIEFS),
    ] = None
    seeds: Whole = 25
    trajectories: Whole = 16
    particles: Whole | None = None
    moves: Whole = 3
    contrastive: Whole = 0
    horizon: Whole | None = None
    seed: Whole = 0
    out: Path | None = None

    def over(self, horizon: int) -> Options:
        """Return them for so many experiments unless they say how many, or say which one is not possible."""
        changes: dict[str, Any] = {"horizon": horizon if self.horizon is None else self.horizon}
        if self.swept:
            entry = BELIEFS.find(self.belief or next(iter(BELIEFS)))
            changes |= {"belief": entry.name, "particles": entry.count(self.particles, 1024)}
        full = dataclasses.replace(self, **changes)
        sizes = {name: getattr(full, name) for name in ("horizon", *CERTIFICATES, *SWEEPS)}
        at_least_one(**{name: size for name, size in sizes.items() if size is not None})
        usual = Options()
        given = [name for name in SWEEPS if getattr(self, name) != getattr(usual, name)]
        if given and not self.swept:
            raise NestbedError(
                f"{given[0]} is for the published estimator, but gains are certified; give --belief ibis too for that "
                "estimator, or leave it out."
            )
        if self.swept and (self.accuracy is not None or self.target):
            name = "accuracy" if self.accuracy is not None else "target"
            raise NestbedError(
                f"{name} is for certificates, but --belief or --contrastive ask for the published estimator; leave "
                "one of the two out."
            )
        at_least_zero(contrastive=full.contrastive)
        seed_from(full.seed)
        return full

    @property
    def swept(self) -> bool:
        """Whether the published estimator was asked for."""
        return self.belief is not None or self.contrastive != 0

    @property
    def settings(self) -> dict[str, Any]:
        """What `nb.compare` is given."""
        if self.swept:
            sizes = {name: getattr(self, name) for name in (*SWEEPS, "belief", "horizon")}
            return {**sizes, "contrastive": self.contrastive or None}
        return {name: getattr(self, name) for name in (*CERTIFICATES, "accuracy", "horizon")} | {
            "target": self.target or None
        }

    @property
    def total(self) -> int:
        """How many records are simulated of each policy."""
        return (2 if self.contrastive else 1) * self.seeds * self.trajectories if self.swept else self.records or MOST

    def __str__(self) -> str:
        if not self.swept:
            about = f", about {', '.join(self.target)}" if self.target else ""
            records = self.records or f"up to {MOST}"
            return f"T = {self.horizon}, {records} records, L = {self.draws}, seed {self.seed}{about}"
        assert self.belief is not None
        assert self.particles is not None
        size = BELIEFS.find(self.belief).sized(self.particles, self.moves)
        draws = f", L = {self.contrastive:,}" if self.contrastive else ""
        return f"T = {self.horizon}, N = {self.trajectories}, {size}{draws}, {self.seeds} seed{'s' * (self.seeds > 1)}"


SWEEPS = ("seeds", "trajectories", "particles", "moves")
CERTIFICATES = ("records", "draws")
MOST = 1024
"""Records of a certificate unless told."""


def estimate(system: BaseSystem, policies: Mapping[str, Policy], options: Options, name: str) -> Comparison:
    """Estimate what policies gain while a bar shows how far it is; whether it can be saved is known before."""
    import jax

    from nestbed.evaluation import comparison
    from nestbed.faces.terminal import bars
    from nestbed.numerics import storage

    if options.out is not None:
        folder = storage.writable(options.out)
        for kind in ("csv", "png"):
            storage.plain(folder / f"{name}.{kind}")
    interrupts.check()
    with bars.Evaluating(policies, options.total) as progress:
        return comparison.compare(jax.random.key(options.seed), system, policies, progress=progress, **options.settings)


def best_constant(system: BaseSystem, options: Options) -> Policy:
    """Return the constant design that gains most, of a few levels."""
    import jax

    from nestbed.evaluation import comparison
    from nestbed.evaluation.certificate import check_accuracy
    from nestbed.model.target import targeted

    assert options.horizon is not None
    if not options.swept:  # what is wrong is told before it takes time
        check_accuracy(options.accuracy)
        targeted(system, options.target or None)
    return comparison.best_constant(jax.random.key(options.seed), system, options.horizon, options.target or None)


def complying(system: BaseSystem, policies: Mapping[str, Policy], options: Options) -> dict[str, Policy]:
    """Return baselines within the system's limits."""
    import jax

    from nestbed.evaluation import violation

    violation.check_risk(options.risk)
    assert options.horizon is not None
    key = jax.random.key(options.seed)
    return {
        name: violation.complying(key, system, policy, options.horizon, options.risk)
        for name, policy in policies.items()
    }


def out_of_bounds(estimates: Comparison, risk: float) -> dict[str, str]:
    """Return how often policies break limits, as words, that surely do so more often than the risk."""
    broken = {each.policy: each.violation for each in estimates if each.violation is not None}
    return {
        name: f"{100 * found.probability:.2g} % of runs, more often than the risk of {100 * risk:g} %"
        for name, found in broken.items()
        if found.interval.low > risk
    }


def save(estimates: Comparison, system: BaseSystem, options: Options, name: str, title: str) -> None:
    """Save table and figure if there is a folder for them."""
    from nestbed.evaluation import comparison
    from nestbed.faces import figures
    from nestbed.faces.terminal import say

    if options.out is None:
        return
    file = options.out / name
    try:
        comparison.save_table(estimates, file.with_suffix(".csv"))
        figures.information_gain(estimates, system, file.with_suffix(".png"), name=title)
    except OSError as error:
        raise NestbedError(
            f"could not save to {options.out}: {error.strerror}; the table above is all there is, so free some room or "
            "choose another --out and repeat."
        ) from None
    say(f"Saved {file}.csv and {file}.png")
