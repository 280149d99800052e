"""All that designs, trains and judges, on a system of which only a noisy sensor is seen."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nestbed as nb

KEY = jax.random.key(0)


class Tub(nb.System):
    """A tub behind a pipe, of which a gauge shows the level in the pipe; the valve opens a sample late."""

    state = ("tub", "pipe")
    designs = nb.Box(flow=(-1.0, 1.0))
    prior = {"rate": dist.LogNormal(0.0, 0.5), "gain": dist.Normal(1.0, 0.3)}
    start = {"tub": dist.Normal(1.0, 0.2)}
    sensors = {"gauge": 0.05}
    delay = {"flow": 1}
    limits = {"tub": (None, 3.0)}
    step, diffusion, integrator = 0.5, (0.1, 0.0), "euler"
    defaults = nb.Defaults(horizon=6, trajectories=8, particles=16, iterations=1)

    def drift(self, x, u, theta):
        return -theta.rate * x.tub + theta.gain * u.flow, 1.5 * (x.tub - x.pipe)

    def observe(self, x, theta):
        return x.pipe


@pytest.mark.slow
def test_bounds_agree_with_each_other():
    """Two certificates of other keys, sweeps with guided and IBIS beliefs, and contrastive bounds, of the same gain."""
    system = Tub(limits={})
    policy = nb.policies.PRBS(system)
    found = nb.certificate(KEY, system, policy, records=512)
    assert found.upper - found.lower < 0.02
    for belief, particles in (("guided", 64), ("ibis", 256)):
        swept = nb.eig(KEY, system, policy, trajectories=64, belief=belief, particles=particles)
        assert abs(swept.mean - found.mean) < 5.0 * (swept.standard_error + found.standard_error)
    bounds = nb.spce(KEY, system, policy, outer=256, contrastive=512)
    assert bounds.mean < found.mean + 5.0 * bounds.standard_error


@pytest.mark.slow
def test_a_plan_keeps_limits_of_states_that_are_not_seen():
    plan = nb.design(KEY, Tub(), rounds=1)
    assert plan.gain.mean > max(each.mean for each in plan.comparison[1:]) - 0.05
    assert plan.violation.probability <= 0.01
    assert [name for name, _ in plan.predicted()] == ["gauge", "tub", "pipe"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        nb.PathwiseConfig(iterations=1, rounds=1, basins=1, steps=2, batch=4, records=8, policy=nb.FeedbackConfig(4)),
        nb.ScoreClimbingConfig(policy=nb.PolicyConfig(encoder=(4,), recurrent=(4,), head=())),
    ],
)
def test_training_sees_what_sensors_show(config, tmp_path):
    run = nb.train(KEY, Tub(limits={}), config, out=tmp_path / "run")
    again = nb.load_run(tmp_path / "run", Tub(limits={}))
    assert again.metrics[-1]["eig"] == run.metrics[-1]["eig"]
    with pytest.raises(nb.NestbedError):
        nb.load_run(tmp_path / "run", Tub(limits={}, sensors={"gauge": 0.06}))
    _, u = run.policy.step(KEY, run.policy.init(), jnp.zeros(1), jnp.zeros(1))
    assert u.shape == (1,)
    assert np.isfinite(run.metrics[-1]["eig"])


def test_replanning_goes_on_from_what_filters_say():
    """Half-way, the belief's precision and the hidden states of the filter are those of the record so far."""
    system = Tub(limits={})
    policy = nb.policies.Replan(system, plan=np.full((6, 1), 0.5), particles=8, candidates=2, steps=2)
    carry, u = policy.init(), jnp.zeros(1)
    for y in (0.1, 0.5, 0.7):
        carry, u = policy.step(KEY, carry, jnp.array([y]), u)
    assert abs(float(u[0])) <= 1.0
    assert int(carry.done) == 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", [nb.policies.Myopic, nb.policies.Greedy])
def test_policies_with_a_belief_of_their_own(kind):
    system = Tub(limits={})
    policy = kind(system, 4, particles=32)
    carry, u = policy.step(KEY, policy.init(), jnp.array([0.2]), jnp.zeros(1))
    _, u = policy.step(KEY, carry, jnp.array([0.5]), u)
    assert abs(float(u[0])) <= 1.0
