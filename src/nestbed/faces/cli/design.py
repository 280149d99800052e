"""`nestbed design`."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from nestbed.faces.cli import listing

FEW = 5
"""Rounds of the search below which more of them are advised."""
MORE = "5 to 10 s"
"""What certificates took beside the search on two free cores, for each of examples/."""


def design(
    system: Annotated[str, listing.system()],
    *,
    horizon: listing.Whole | None = None,
    target: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="")] = (),
    risk: float = 0.01,
    seconds: float = 20.0,
    seed: listing.Whole = 0,
    out: Path | None = None,
) -> None:
    """Find the inputs that tell most about a system's unknown parameters, and certify what they gain.

    For example:

    nestbed design nonlinear_pendulum

    nestbed design my_motor.py:Motor --horizon 100 --target inertia --out results/motor

    nestbed compare my_motor.py:Motor results/motor --baselines random prbs

    Parameters
    ----------
    horizon
        T: experiments (time steps); by default the system's own.
    target
        Parameters of interest, the others being nuisance, or methods (theta) of the system that make something of them;
        all parameters by default.
    risk
        Probability with which any of the system's limits may be broken within the horizon, over prior and noise.
    seconds
        That the search may take, compiling included; where that takes long, three quarters of them are left for
        searching all the same. Certificates and what they compile come on top. Ctrl-C ends it early and keeps the best.
    seed
        Seed of all randomness.
    out
        Folder for the inputs (CSV), what they gain and tell (JSON), the figure (PNG) and a page with all of it (HTML);
        by default designs/SYSTEM.
    """
    import jax

    from nestbed.faces import figures, reports
    from nestbed.faces.terminal import bars, say, tables
    from nestbed.numerics import storage
    from nestbed.numerics.errors import seed_from
    from nestbed.planning.design import design as search
    from nestbed.planning.plan import PLAN
    from nestbed.systems import load, name_of

    model = load(system)
    seed_from(seed)
    folder = storage.writable(Path("designs") / name_of(model) if out is None else out)
    say(
        f"Searching for {seconds:g} s, longer where compiling takes most of them; certificates come on top: for most "
        f"systems {MORE} on two free cores.",
        sys.stderr,
    )
    with bars.Searching("design") as progress:
        plan = search(
            jax.random.key(seed),
            model,
            horizon=horizon,
            target=target or None,
            risk=risk,
            seconds=seconds,
            progress=progress,
        )
    plan.save(folder)
    with storage.saving(folder):
        figures.plan(plan, plan.predicted(), folder / "plan.png")
        storage.write(folder / "report.html", reports.plan(plan, folder / "plan.png").encode())
    rounds = f"{plan.rounds} round" + "s" * (plan.rounds != 1)
    caption = f"T = {plan.horizon}, {rounds} in {plan.seconds:.0f} s, {plan.gain.records} records"
    tables.comparison(plan.comparison, system, caption)
    tables.identifiability(plan.identifiability)
    if plan.rounds < FEW:
        longer = 10 * math.ceil(0.4 * max(seconds, plan.seconds))
        say(f"There was time for {rounds} of the search only; --seconds {longer} is likely to find better inputs.")
    if plan.origin != PLAN:
        say(f"The inputs are those of {plan.origin}, which the search did not beat.")
    say(f"Saved {folder}: inputs.csv, plan.json, plan.png, report.html")
