"""Feedback on a plan: gradients, a problem whose best feedback is known, what is handed out, and what is kept."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nestbed as nb
from nestbed.evaluation.comparison import Comparison
from nestbed.faces.cli.show import show
from nestbed.information import smoothness
from nestbed.numerics import slopes
from nestbed.policies import feedback
from nestbed.training import ascent, pathwise, verdict
from toys import TRAINING, Bounded, Follow, Leak, LinearLeak

KEY = jax.random.key(0)
SMALL = nb.PathwiseConfig(
    iterations=2, rounds=1, basins=2, steps=3, batch=4, records=8, policy=nb.FeedbackConfig(width=4)
)
NO_MARGIN = jnp.zeros(())


def policy_for(system, width=4, noise=0.1):
    """Return feedback whose network says something."""
    unit = jnp.sin(jnp.arange(system.horizon * len(system.design_names), dtype=float)).reshape(system.horizon, -1)
    policy = feedback.begin(KEY, system, 0.5 * unit, width)
    head = jax.tree.map(lambda leaf: leaf + 0.2, policy.head)
    return eqx.tree_at(lambda p: p.head, policy, head).with_noise(noise)


def slope_of(policy, system, way=ascent.gain, batch=8, key=KEY, margin=NO_MARGIN):
    """Return the gradient by plan and bias of the head."""

    @eqx.filter_jit
    def slopes(key, plan, bias):
        def value(plan, bias):
            moved = eqx.tree_at(lambda p: (p.plan, p.head.bias), policy, (plan, bias))
            return -way(key, system, moved, None, batch, margin)

        return jax.grad(value, argnums=(0, 1))(plan, bias)

    return [-part for part in slopes(key, policy.plan, policy.head.bias)]


def differences(policy, system, step=1e-5):
    """Return the same by plan, by finite differences."""

    @jax.jit
    def value(plan):
        moved = eqx.tree_at(lambda p: p.plan, policy, plan)
        return ascent.gain(KEY, system, moved, None, 8, NO_MARGIN)

    found = np.zeros(policy.plan.shape)
    for place in np.ndindex(*found.shape):
        low, high = (value(policy.plan.at[place].add(sign * step)) for sign in (-1.0, 1.0))
        found[place] = (high - low) / (2.0 * step)
    return found


class Pair(nb.System):
    """Two states, of which noise is carried from one to the other within a step."""

    state = ("place", "speed")
    designs = nb.Box(push=(-1.0, 1.0))
    prior = {"drag": dist.LogNormal(0.0, 0.3)}
    step, diffusion = 0.6, (0.1, 0.2)
    defaults = nb.Defaults(horizon=3)
    integrator = "rk4"

    def drift(self, x, u, theta):
        return x.speed, u.push - theta.drag * x.speed**3


@pytest.mark.parametrize(
    "system",
    [
        pytest.param(Leak(), id="euler"),
        pytest.param(Pair(), id="noise carried along", marks=pytest.mark.slow),
    ],
)
def test_gradients_against_finite_differences(system):
    policy = policy_for(system)
    policy = eqx.tree_at(lambda p: p.share, policy, jnp.zeros(()))  # the network runs in single precision
    np.testing.assert_allclose(slope_of(policy, system)[0], differences(policy, system), rtol=2e-4, atol=1e-7)


@pytest.mark.slow
def test_a_gradient_that_forgets_carried_noise_is_caught(monkeypatch):
    """A mutant: the rough gradients of searches."""
    system = Pair()
    policy = eqx.tree_at(lambda p: p.share, policy_for(system), jnp.zeros(()))
    truth = differences(policy, system)
    monkeypatch.setattr(
        "nestbed.likelihood.observed.Observed._noise",
        lambda self, x, u, theta: pathwise_noise(self.system, x, u, theta),
    )
    assert not np.allclose(slope_of(policy, system)[0], truth, rtol=2e-4, atol=1e-7)


def pathwise_noise(system, x, u, theta):
    from nestbed.model import integration

    return integration.noise(system, x, u, theta, rough=True)


NARROW = {"level": (-0.5, 1.1)}
"""Limits of a leak that its records near, from a start of 1."""


def z_of_scores(way, system):
    """Return by how many standard errors score gradients of plan and bias differ from those through the simulator."""
    policy = policy_for(system, noise=0.2)
    through, scored = (
        [
            np.concatenate(
                [np.ravel(part) for part in slope_of(policy, system, each, 8192, jax.random.key(k), jnp.array(1.0))]
            )
            for k in range(12)
        ]
        for each in (ascent.gain, way)
    )
    apart = np.array(scored) - np.mean(through, axis=0)
    return np.abs(apart.mean(axis=0) / (apart.std(axis=0, ddof=1) / np.sqrt(len(apart)))).max()


@pytest.mark.slow
@pytest.mark.parametrize("system", [Leak(), Leak(limits=NARROW)], ids=["free", "within limits"])
def test_score_gradients_are_those_through_the_simulator(system):
    """Five slopes; Student's t with 11 degrees beyond 6.5 has a chance of 4e-5 each."""
    assert z_of_scores(ascent.scored_gain, system) < 6.5


@pytest.mark.slow
def test_score_gradients_lead_away_from_limits():
    free, limited = (
        slope_of(policy_for(system, noise=0.2), system, ascent.scored_gain, 1024, margin=jnp.array(1.0))[0]
        for system in (Leak(), Leak(limits={"level": (None, 0.3)}))
    )
    assert float(jnp.sum(limited)) < -1.0 < float(jnp.sum(free))


@pytest.mark.slow
def test_a_score_of_the_wrong_sign_is_caught():
    def turned(key, system, policy, *rest):
        real = ascent.scored_gain(key, system, policy, *rest)
        return 2.0 * jax.lax.stop_gradient(real) - real

    assert z_of_scores(turned, Leak()) > 6.5


def test_what_is_beyond_a_limit_comes_back_when_that_pays():
    slope = jax.vmap(jax.grad(lambda x, pull: pull * slopes.within(x)))  # of a loss: a positive pull leads down
    np.testing.assert_allclose(
        slope(jnp.array([1.5, 1.5, 0.5, -1.5]), jnp.array([1.0, -1.0, -1.0, 1.0])), [1, 0, -1, 0]
    )
    np.testing.assert_allclose(jax.grad(lambda x: jnp.sqrt(slopes.finite(x)).sum())(jnp.array([4.0, 0.0])), [0.25, 0])


@pytest.mark.slow
def test_the_best_feedback_of_a_known_problem_is_found(tmp_path, capsys):
    """To one per cent; the best plan without feedback gains a fifth less."""
    system = Follow()
    config = nb.PathwiseConfig(rounds=2, basins=1, iterations=4, steps=75)
    run = nb.train(KEY, system, config, out=tmp_path)
    assert run.winner == "learned"
    learned, plan = (next(each for each in run.comparison if each.policy == name) for name in ("learned", "plan"))
    assert learned.mean > 0.99 * system.best
    assert plan.mean < 0.85 * system.best
    assert "The policy that adapts won" in run.outcome
    show(tmp_path)
    more = run.comparison.difference("learned", "plan").mean
    assert f"adapting gains {more:+.3f} beside the plan" in " ".join(capsys.readouterr().out.split())
    again = nb.load_run(tmp_path, system)
    assert again.winner == run.winner
    assert [each.mean for each in again.comparison] == [each.mean for each in run.comparison]
    seen = jnp.array([2.5]), jnp.zeros(1)
    loaded = nb.load_policy(tmp_path / "policy_last.npz", system)
    for policy in (run.policy, again.policy, loaded):
        carry, first = policy.step(KEY, policy.init(), jnp.zeros(1), jnp.zeros(1))
        assert abs(float(policy.step(KEY, carry, *seen)[1][0]) - 2.5) < 0.5
        assert float(first[0]) == float(loaded.step(KEY, loaded.init(), jnp.zeros(1), jnp.zeros(1))[1][0])


class StopError(Exception):
    pass


def test_resumed_runs_are_the_same_to_the_last_bit(tmp_path):
    whole = nb.train(KEY, LinearLeak(), SMALL)

    def stop(run):
        if run.iteration == 1:
            raise StopError

    with pytest.raises(StopError):
        nb.train(KEY, LinearLeak(), SMALL, out=tmp_path, progress=stop)
    resumed = nb.train(KEY, LinearLeak(), SMALL, out=tmp_path, resume=True)
    leaves = [jax.tree.leaves(run.state) for run in (whole, resumed)]
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(*leaves, strict=True))
    assert resumed.winner == whole.winner
    with pytest.raises(nb.NestbedError, match="has iterations = 2, but 3 was asked for"):
        nb.train(KEY, LinearLeak(), dataclasses.replace(SMALL, iterations=3), out=tmp_path, resume=True)


def test_a_loser_is_kept_and_not_handed_out(monkeypatch):
    """A network that leads every design to where nothing is told."""
    real = pathwise.ascend

    def spoiled(*arguments, **settings):
        policy, *rest = real(*arguments, **settings)
        lost = eqx.tree_at(lambda p: p.head.bias, policy, jnp.full_like(policy.head.bias, 3.0))
        return lost, *rest

    monkeypatch.setattr(pathwise, "ascend", spoiled)
    run = nb.train(KEY, Follow(), dataclasses.replace(SMALL, horizon=2))
    assert run.winner == "plan"
    assert "won, the simplest that nothing surely beats" in run.outcome
    gains = {each.policy: each.mean for each in run.comparison}
    assert gains["learned"] < gains["plan"] - 0.1
    assert float(run.best.head.bias[0]) == 3.0
    handed = nb.certificate(jax.random.key(9), Follow(), run.policy).mean
    assert abs(handed - gains["plan"]) < 0.1


def test_what_leads_where_there_are_no_numbers_is_dropped(monkeypatch):
    """Every network that was trained does; the run ends with the plan."""
    from nestbed.numerics.errors import NonFiniteError

    def failing(real):
        def judged(key, system, policies, **settings):
            some = policies.values() if isinstance(policies, dict) else [policies]
            if any(bool(jnp.any(p.head.weight != 0.0)) for p in some if isinstance(p, nb.policies.Feedback)):
                raise NonFiniteError("a state is not finite.")
            return real(key, system, policies, **settings)

        return judged

    for name in ("certificate", "compare"):
        monkeypatch.setattr(pathwise, name, failing(getattr(pathwise, name)))
    with pytest.warns(UserWarning, match="what was learned is dropped .* since a state is not finite"):
        run = nb.train(KEY, Follow(), dataclasses.replace(SMALL, horizon=2, basins=1))
    assert run.winner == "plan"
    assert run.metrics[1]["eig"] == run.metrics[0]["eig"]
    assert np.isnan(run.metrics[1]["eig_error"])


def test_a_simpler_policy_is_handed_out_unless_another_surely_gains_more():
    values = {name: np.full(64, 1.0) for name in verdict.COMPARED}
    random = np.random.default_rng(0)

    def handed(**more):
        found = []
        for name, base in values.items():
            rows = base + more.get(name, 0.0) + 0.1 * random.standard_normal(64)
            own = nb.Certificate(rows, rows, np.ones(64), 64, 2, None, origin=(0,))
            found.append(nb.PolicyEstimate(own.values, policy=name, certificate=own))
        return verdict.handed_out(Comparison(found), 0.01)

    low = dict.fromkeys(verdict.BESIDE, -0.9)
    loud = 12.0 * (random.standard_normal(64) - 0.5)
    assert handed(**{**low, "learned": 0.5, "noisy": 0.6 + loud - loud.mean()}) == "learned"
    assert handed(**{**low, "learned": 0.01}) == "plan"
    assert handed(**{**low, "learned": 0.5}) == "learned"
    assert handed(**{**low, "noisy": 0.5}) == "noisy"
    with pytest.warns(UserWarning, match="random inputs gain more than what was learned"):
        assert handed(**{**low, "random": 0.5}) == "plan"


def test_what_breaks_limits_too_often_is_not_handed_out():
    def handed(**broken):
        found = []
        for name in verdict.COMPARED:
            rows = np.full(64, {"plan": 1.0, "learned": 2.0, "noisy": 3.0}.get(name, 0.1)) + 0.1 * np.sin(np.arange(64))
            own = nb.Certificate(rows, rows, np.ones(64), 64, 2, None, origin=(0,))
            risk = nb.Violation(broken.get(name, 0.0), 1000, "speed")
            found.append(nb.PolicyEstimate(own.values, policy=name, certificate=own, violation=risk))
        return verdict.handed_out(Comparison(found), 0.01)

    assert handed() == "noisy"
    assert handed(noisy=0.02) == "learned"
    assert handed(noisy=0.02, learned=0.5) == "plan"
    assert handed(noisy=0.02, learned=0.04, plan=0.05) == "noisy"


@pytest.mark.slow
def test_what_breaks_limits_in_the_end_is_calmed():
    """A plan that often breaks them is led away from them; one that keeps them is left as it is."""
    system = Bounded()
    config = dataclasses.replace(SMALL, horizon=6, steps=40, batch=16).resolve(system)
    trainer = pathwise.Pathwise(system, config)
    far, near = (trainer._start(feedback.begin(KEY, system, jnp.full((6, 1), u), 4)) for u in (0.35, 0.0))
    assert trainer._calmed(KEY, near) is near
    found = trainer._calmed(KEY, far)
    risks = [nb.violation(KEY, system, each.policy, horizon=6).probability for each in (far, found)]
    assert risks[0] > 0.3
    assert risks[1] <= 0.5 * config.risk
    assert float(found.margin) > float(far.margin)
    *_, climbed = trainer._ascended(KEY, far, far.policy, far.optimiser, 2 * config.turns)  # noise falls no further
    assert np.isfinite(float(climbed.objective))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:chirp inputs gain more than what was learned")  # than from such inputs, in one turn
def test_inputs_to_begin_with_are_made_to_keep_limits():
    config = dataclasses.replace(SMALL, horizon=12, iterations=1)
    with pytest.warns(UserWarning, match="the inputs to begin with break limits"):
        run = nb.train(KEY, Bounded(), config, start=np.full((12, 1), 4.0))
    plan = next(each for each in run.comparison if each.policy == "plan")
    assert plan.violation.probability <= 0.01
    again = nb.certificate(jax.random.key(7), Bounded(), feedback.begin(KEY, Bounded(), run.state.plan, 4).alone())
    assert abs(again.mean - plan.mean) < 4.0 * np.hypot(again.standard_error, plan.standard_error)


@pytest.mark.slow
def test_feedback_is_put_on_inputs_that_are_given(tmp_path):
    """Without a search; the other methods learn to apply them first."""
    inputs = np.array([[0.5], [-1.0], [1.0]])
    config = dataclasses.replace(SMALL, horizon=3)
    with pytest.warns(UserWarning, match="maximum_length inputs gain more than what was learned"):
        run = nb.train(KEY, LinearLeak(), config, start=inputs)
    np.testing.assert_allclose(LinearLeak().designs.scale(np.asarray(run.state.plan)), inputs)
    place = run.save(tmp_path / "given")
    with pytest.raises(nb.NestbedError, match="began with inputs that were given; go on with the same"):
        nb.train(KEY, LinearLeak(), config, start=-inputs, out=place, resume=True)
    assert nb.train(KEY, LinearLeak(), config, out=place, resume=True).winner == run.winner
    for file in ("checkpoint.npz", "metrics.jsonl"):  # as if it had been stopped in the search
        (place / file).write_bytes(b"")
    with pytest.raises(nb.NestbedError, match="began with inputs that were given; go on with the same"):
        nb.train(KEY, LinearLeak(), config, out=place, resume=True)
    begun = dataclasses.replace(TRAINING, iterations=1)
    run = nb.train(KEY, LinearLeak(), begun, start=nb.policies.Replay(LinearLeak(), inputs))
    imitated = nb.load_policy(run.save(tmp_path / "imitated") / "policy_best.npz", LinearLeak()).mean()
    carry, first = imitated.step(KEY, imitated.init(), jnp.ones(1), jnp.zeros(1))
    assert float(first[0]) > 0.2
    assert float(imitated.step(KEY, carry, jnp.ones(1), first)[1][0]) < -0.6
    with pytest.raises(nb.NestbedError, match="the plan has 2 rows, but the horizon is 3"):
        nb.train(KEY, LinearLeak(), config, start=inputs[:2])
    with pytest.raises(nb.NestbedError, match="flow = 3 in experiment 0"):
        nb.train(KEY, LinearLeak(), config, start=np.full((3, 1), 3.0))


class Switch(nb.System):
    """An input that tells of the gain above a threshold alone: no slope leads there."""

    state = ("level",)
    designs = nb.Box(flow=(-1.0, 1.0))
    prior = {"gain": dist.Normal(0.0, 1.0)}
    step, diffusion, noise_floor, integrator = 1.0, (1.0,), 0.0, "euler"
    defaults = nb.Defaults(horizon=2)

    def drift(self, x, u, theta):
        return 2.0 * theta.gain * jnp.where(u.flow > 0.2, 1.0, 0.1)


class Quiet(nb.System):
    """An input beyond a threshold calms the noise."""

    state = ("level",)
    designs = nb.Box(flow=(-1.0, 1.0))
    prior = {"gain": dist.Normal(0.0, 1.0)}
    step, noise_floor, integrator = 1.0, 0.0, "euler"
    defaults = nb.Defaults(horizon=2)

    def diffusion(self, x, u, theta):
        return jnp.where(u.flow > 0.2, 0.1, 1.0)

    def drift(self, x, u, theta):
        return theta.gain * (1.0 - 0.1 * u.flow)


def test_drifts_that_jump_are_known():
    assert not smoothness.jumps(Leak())
    assert smoothness.jumps(Quiet())
    assert smoothness.jumps(Switch())
    middle = jnp.full((2, 1), 0.25)
    assert not smoothness.smooth(KEY, Switch(), middle, None)
    assert smoothness.slopes_agree(KEY, Follow(), jnp.full((2, 1), 0.1), None)


@pytest.mark.slow
def test_score_gradients_train_where_the_drift_jumps():
    with pytest.warns(UserWarning, match="jumps where designs change a little"):
        run = nb.train(KEY, Switch(), nb.PathwiseConfig(rounds=1, basins=1, iterations=3, steps=50))
    assert not bool(run.state.smooth)
    best = 0.5 * np.log(9.0)
    assert next(each for each in run.comparison if each.policy == "learned").mean > 0.97 * best


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"noise": 2.0}, "noise is 2.0, but it must be from 0 to 1"),
        ({"risk": 0.0}, "risk is 0.0, but it must be a probability"),
        ({"basins": 0}, "basins is 0, but it must be a whole number"),
        ({"gradient": "pathwize"}, "gradient is 'pathwize'; did you mean 'pathwise'"),
        ({"target": ("rat",)}, "no parameter 'rat' to be a target; did you mean 'rate'"),
        ({"policy": nb.FeedbackConfig(width=0)}, "width is 0, but it must be a whole number"),
    ],
)
def test_mistakes_get_a_sentence(settings, told):
    with pytest.raises(nb.NestbedError, match=told):
        nb.train(KEY, Leak(), nb.PathwiseConfig(**settings))


@pytest.mark.slow
def test_limits_and_slew_are_kept_by_what_is_handed_out():
    run = nb.train(KEY, Bounded(), nb.PathwiseConfig(rounds=6, iterations=6, steps=50))
    found = nb.violation(jax.random.key(5), Bounded(), run.policy, records=4096)
    assert found.interval.low <= 0.01
    assert run.comparison.difference(run.winner, "plan").interval.high >= 0.0
