"""`nestbed compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from nestbed.faces.cli import evaluation, listing
from nestbed.numerics.errors import NestbedError
from nestbed.policies.registry import BASELINES

BESIDE = ("random", "prbs", "maximum_length", "chirp", "constant")
"""Baselines that policies are compared with by default."""
CONSTANT = "constant"
DEFAULTS = evaluation.Options()


def compare(
    system: Annotated[str, listing.system()],
    runs: Annotated[list[Path] | None, Parameter(consume_multiple=True, negative="")] = None,
    *,
    baselines: Annotated[
        tuple[str, ...],
        Parameter(consume_multiple=True, negative="", show_default=" ".join),
        listing.entries("Policies to evaluate beside them: {}.", BASELINES),
    ] = BESIDE,
    options: evaluation.Options = DEFAULTS,
) -> None:
    """Compare how much information policies gain about a system's unknown parameters.

    For example:

    nestbed compare cart_pole --baselines random prbs chirp --out results/cart_pole

    nestbed compare nonlinear_pendulum runs/nonlinear_pendulum --accuracy 0.02

    nestbed compare nonlinear_pendulum runs/nonlinear_pendulum runs/nonlinear_pendulum/policy_best.npz

    Parameters
    ----------
    runs
        Folders of plans; folders of runs, whose mean policies after the last iteration are evaluated, and policy files
        (.npz), such as runs/nonlinear_pendulum/policy_best.npz, whose mean policies are; inputs as CSV.
    """
    from nestbed.faces.cli import sources
    from nestbed.faces.terminal import say, tables
    from nestbed.policies import baseline
    from nestbed.systems import load

    model = load(system)
    trained = sources.trained(runs or [], model)
    horizons = {candidate.horizon for candidate in trained.values() if candidate.horizon is not None}
    full = options.over(horizons.pop() if len(horizons) == 1 else model.horizon)
    beside = {name: baseline(name, model, full.horizon) for name in baselines}
    if CONSTANT in baselines:
        beside[CONSTANT] = evaluation.best_constant(model, full)
    policies = {
        **{name: candidate.policy for name, candidate in trained.items()},
        **evaluation.complying(model, beside, full),
    }
    if not policies:
        raise NestbedError(
            "there is nothing to compare; name a run's folder, a policy file or --baselines, such as random."
        )
    estimates = evaluation.estimate(model, policies, full, "comparison")
    tables.comparison(estimates, system, str(full))
    evaluation.save(estimates, model, full, "comparison", system)
    for name, candidate in trained.items():
        if candidate.budget:
            say(f"Spent on {name}: {candidate.budget}")
