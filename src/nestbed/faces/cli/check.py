"""`nestbed check`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

from nestbed.faces.cli import listing


def check(
    system: Annotated[str, listing.system()],
    *,
    seconds: float = 20.0,
    seed: listing.Whole = 0,
    out: Path | None = None,
) -> None:
    """Say what looks wrong with a system of your own, and what its inputs could tell.

    For example:

    nestbed check my_cart.py:MyCart

    Looks at the drift over prior, box and limits, at the step beside a fine integration, at noise and scales and, where
    states are hidden, at the filter that follows them; then searches for the best inputs for a while and says which
    parameters any input can tell and which not, beside random designs and PRBS.

    Parameters
    ----------
    seconds
        That the search may take; 0 leaves it out.
    seed
        Seed of all randomness.
    out
        Folder for the picture of where the prior leads and the report of the search; by default checks/SYSTEM.
    """
    import jax

    from nestbed.faces import figures, priors, reports
    from nestbed.faces.terminal import bars, say, tables
    from nestbed.numerics import storage
    from nestbed.planning.design import design
    from nestbed.planning.inspection import inspect
    from nestbed.systems import load, name_of

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model = load(system)
        remarks = inspect(model)
    folder = storage.writable(Path("checks") / name_of(model) if out is None else out)
    for remark in remarks:
        say(f"{'✓' if remark.good else '!'} {remark.sentence[:1].upper()}{remark.sentence[1:]}")
    for words in dict.fromkeys(str(warning.message) for warning in told):
        say(f"! {words[:1].upper()}{words[1:]}")
    with storage.saving(folder):
        priors.prior_predictive(jax.random.key(seed), model, folder / "prior.png")
    after = f"Next: nestbed run {system}, with the model itself as the rig, or your own by --rig."
    if seconds <= 0.0:
        say(f"Saved {folder}: prior.png")
        say(after)
        return
    with bars.Searching("design") as progress:
        plan = design(jax.random.key(seed), model, seconds=seconds, progress=progress)
    with storage.saving(folder):
        figures.plan(plan, plan.predicted(), folder / "plan.png")
        storage.write(folder / "report.html", reports.plan(plan, folder / "plan.png").encode())
    tables.comparison(
        plan.comparison,
        system,
        f"T = {plan.horizon}, {plan.rounds} round{'s' * (plan.rounds != 1)} in {plan.seconds:.0f} s",
    )
    tables.identifiability(plan.identifiability)
    say(f"Saved {folder}: prior.png, plan.png, report.html")
    say(after)
