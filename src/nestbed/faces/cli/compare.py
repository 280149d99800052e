"""`nestbed compare`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from nestbed.faces.cli import evaluation, listing
from nestbed.numerics.errors import NestbedError
from nestbed.policies.registry import BASELINES

if TYPE_CHECKING:
    from nestbed.evaluation.comparison import Comparison
    from nestbed.model.system import BaseSystem
    from nestbed.policies.base import Policy

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
    oracle: Annotated[bool, Parameter(negative="")] = False,
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
    oracle
        Also tell what knowing the parameters beforehand would gain: how much is left for any policy.
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
    if oracle:
        policies |= _fixed(policies, full.horizon)
    estimates = evaluation.estimate(model, policies, full, "comparison")
    tables.comparison(estimates, system, str(full))
    for name, words in evaluation.out_of_bounds(estimates, full.risk).items():
        say(f"{name} breaks limits in {words}: what it gains is not to be had within them.")
    evaluation.save(estimates, model, full, "comparison", system)
    for name, candidate in trained.items():
        if candidate.budget:
            say(f"Spent on {name}: {candidate.budget}")
    if oracle:
        _tell_of_oracle(model, policies, estimates, full)


def _fixed(policies: Mapping[str, Policy], horizon: int | None) -> dict[str, Policy]:
    """Return the plans that feedback is put on, where nothing to compare is fixed for all rigs: oracles begin there."""
    from nestbed.policies.feedback import Feedback

    if _signals(policies, horizon):
        return {}
    found = {f"plan of {name}": each.alone() for name, each in policies.items() if isinstance(each, Feedback)}
    if not found:
        raise NestbedError("an oracle needs inputs to start from; compare a plan, or a baseline such as chirp, too.")
    return {**found}


def _signals(policies: Mapping[str, Policy], horizon: int | None) -> dict[str, Any]:
    """Return the inputs of policies that are fixed for all rigs."""
    from nestbed.policies.feedback import Feedback
    from nestbed.policies.signals import Replay

    assert horizon is not None
    return {
        name: policy.inputs() if isinstance(policy, Feedback) else policy.signal(horizon)
        for name, policy in policies.items()
        if isinstance(policy, Replay) or (isinstance(policy, Feedback) and float(policy.share) == 0.0)
    }


def _tell_of_oracle(
    system: BaseSystem, policies: Mapping[str, Policy], estimates: Comparison, options: evaluation.Options
) -> None:
    """Say how much more inputs would gain that were made for each rig alone, than the best that were fixed for all."""
    import jax

    from nestbed.faces.terminal import bars, say
    from nestbed.planning.oracle import oracle

    signals = _signals(policies, options.horizon)
    gains = {each.policy: each.mean for each in estimates}
    start = max(signals, key=lambda name: gains[name])
    with bars.Searching("oracle") as progress:
        found = oracle(
            jax.random.key(options.seed), system, signals[start], target=options.target or None, progress=progress
        )
    best = max(gains, key=lambda name: gains[name])
    low, high = found.interval
    known = gains[start] + found.mean
    left = known - gains[best]
    say(
        f"Plans made for each rig by one who knows its parameters would gain about {known:.2f} nats: "
        f"{found.mean:.2f} ({low:.2f} to {high:.2f}) more than {start}. Above {best} that leaves {max(left, 0.0):.2f}."
    )
