"""What `nestbed evaluate` and `nestbed compare` share: options, estimates, and the files these are saved in."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from nestbed.belief.registry import BELIEFS
from nestbed.faces.cli.listing import entries
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
    seeds
        Independent estimates per policy; their spread is the sd.
    trajectories
        N: simulated records per estimate.
    particles
        M: parameter particles per record. One experiment's estimated gain cannot exceed log M.
    moves
        Metropolis steps whenever a record's particles are resampled.
    contrastive
        L: contrastive draws of the bounds sPCE and sNMC, such as 1000000; the lower one cannot exceed log(L + 1). 0
        leaves the bounds out.
    horizon
        T: experiments (time steps) per record; by default that of the training, or else the system's own.
    seed
        Seed of all randomness: the same seed gives the same numbers.
    out
        Folder for the table (CSV) and the figure (PNG); made if missing.
    """

    seeds: int = 25
    trajectories: int = 16
    particles: int = 1024
    moves: int = 3
    belief: Annotated[str, entries("Parameter posterior of each record: {}.", BELIEFS)] = next(iter(BELIEFS))
    contrastive: int = 0
    horizon: int | None = None
    seed: int = 0
    out: Path | None = None

    def over(self, horizon: int) -> Options:
        """Return them for so many experiments unless they say how many, or say which one is not possible."""
        full = self if self.horizon is not None else dataclasses.replace(self, horizon=horizon)
        at_least_one(**{name: getattr(full, name) for name in ("seeds", *SIZES)})
        at_least_zero(contrastive=full.contrastive)
        seed_from(full.seed)
        BELIEFS.find(full.belief)
        return full

    @property
    def records(self) -> int:
        """How many are simulated of each policy, for the estimate and for the bounds."""
        return (2 if self.contrastive else 1) * self.seeds * self.trajectories

    def __str__(self) -> str:
        size = BELIEFS.find(self.belief).sized(self.particles, self.moves)
        draws = f", L = {self.contrastive:,}" if self.contrastive else ""
        return f"T = {self.horizon}, N = {self.trajectories}, {size}{draws}, {self.seeds} seed{'s' * (self.seeds > 1)}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounded(Options):  # in this file, where its annotations are evaluated
    """The same, with bounds unless they are left out."""

    contrastive: int = 1_000_000


SIZES = ("horizon", "trajectories", "particles", "moves")


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
    sizes: dict[str, Any] = {size: getattr(options, size) for size in ("seeds", "belief", *SIZES)}
    with bars.Evaluating(policies, options.records) as progress:
        return comparison.compare(
            jax.random.key(options.seed),
            system,
            policies,
            contrastive=options.contrastive or None,
            progress=progress,
            **sizes,
        )


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
