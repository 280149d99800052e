"""Every example is a system that nestbed has nothing to say against, stepped as it needs."""

from pathlib import Path

import pytest

import nestbed as nb
from nestbed.model import checks, integration

EXAMPLES = sorted(Path(__file__).parents[1].joinpath("examples").glob("*.py"))
STEPS = {
    "motor": "exponential",
    "joint": "rk4",
    "spring": "rk4",
    "tank": "euler",
}


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_is_a_system_without_fault(file):
    system = nb.systems.load(f"{file}:{file.stem.title()}")
    checks.instance(system)
    assert all(name in system.units or name in ("susceptible", "infected") for name in system.state_names)
    assert integration.scheme(system).integrator == STEPS.get(file.stem, integration.scheme(system).integrator)


@pytest.mark.slow
@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_what_is_designed_is_not_below_any_baseline(file):
    """With nothing but the system; within the interval of the difference."""
    import jax

    system = nb.systems.load(f"{file}:{file.stem.title()}")
    plan = nb.design(jax.random.key(0), system, rounds=2)
    for each in plan.comparison[1:]:
        assert plan.comparison.difference("plan", each.policy).interval.high >= 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["motor:LimitedMotor", "reactor:LimitedReactor"])
def test_limits_of_examples_are_kept(name):
    """In 2000 runs that the search has not seen."""
    import jax

    file, kind = name.split(":")
    system = nb.systems.load(f"{EXAMPLES[0].parent / file}.py:{kind}")
    plan = nb.design(jax.random.key(0), system, rounds=3)
    assert nb.violation(jax.random.key(7), system, plan.policy, records=2000).probability <= 0.01
