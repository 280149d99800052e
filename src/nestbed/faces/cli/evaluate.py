"""`nestbed evaluate`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

from nestbed.faces.cli import evaluation, listing
from nestbed.policies.registry import BASELINES

if TYPE_CHECKING:
    from nestbed.evaluation.comparison import PolicyEstimate
    from nestbed.evaluation.estimates import Estimate
    from nestbed.model.system import BaseSystem


DEFAULTS = evaluation.Options()


def evaluate(
    policy: Annotated[
        str,
        listing.entries(
            "Folder of a plan or of a run (its mean policy after the last iteration), a policy file (.npz), inputs "
            "(.csv), or a baseline: {}.",
            BASELINES,
        ),
    ],
    *,
    system: Annotated[
        str | None, listing.system("; needed for baselines and for what was trained on a system of your own")
    ] = None,
    options: evaluation.Options = DEFAULTS,
) -> None:
    """Say how good one policy is: its expected information gain, with a bound from below and one from above.

    For example:

    nestbed evaluate runs/nonlinear_pendulum

    nestbed evaluate runs/motor/policy_best.npz --system my_motor.py:Motor

    nestbed evaluate chirp --system cart_pole
    """
    from nestbed.faces.cli import sources
    from nestbed.faces.terminal import say, tables

    candidate = sources.policy(policy, system, options.horizon)
    model = candidate.system
    full = options.over(model.horizon if candidate.horizon is None else candidate.horizon)
    estimates = evaluation.estimate(model, {candidate.name: candidate.policy}, full, "evaluation")
    tables.evaluation(_rows(estimates[0], model, full), f"{candidate.name} on {candidate.title}", _caption(full))
    evaluation.save(estimates, model, full, "evaluation", candidate.title)
    if candidate.budget:
        say(f"Spent: {candidate.budget}")


def _caption(options: evaluation.Options) -> str:
    """Say what the numbers were made with, and what bounds what."""
    if not options.swept:
        return f"{options}\nin expectation lower ≤ EIG ≤ upper"
    return f"{options}\nin expectation sPCE ≤ EIG ≤ sNMC" if options.contrastive else str(options)


def _rows(estimate: PolicyEstimate, system: BaseSystem, options: evaluation.Options) -> list[tuple[str, Estimate, str]]:
    """Return the estimate and the bounds, each with a word on what it is."""
    from nestbed.belief import make
    from nestbed.evaluation.estimates import Estimate

    if (found := estimate.certificate) is not None:
        low, high = found.interval
        return [
            ("EIG", estimate, f"estimate, 95 %: {low:.3f} … {high:.3f}"),
            ("lower", Estimate(found.lower_values), "bound from below (ACE)"),
            ("upper", Estimate(found.upper_values), "bound from above (VNMC)"),
        ]
    most = make(options.belief, system, options.particles, options.moves).most
    limit = "" if math.isinf(most) else f", ≤ {most:.2f} a step"
    rows: list[tuple[str, Estimate, str]] = [("EIG", estimate, f"estimate{limit}")]
    if estimate.spce is not None and estimate.snmc is not None:
        rows.append(("sPCE", estimate.spce, f"below, ≤ log(L + 1) = {math.log1p(options.contrastive):.2f}"))
        rows.append(("sNMC", estimate.snmc, "above"))
    return rows
