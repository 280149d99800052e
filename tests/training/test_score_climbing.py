"""Score climbing: its gradient, its score against quadrature, a known optimum, resuming, one compilation."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nestbed as nb
from nestbed.numerics import programs
from nestbed.policies.recurrent import Recurrent
from nestbed.smc.sweep import Sweep, SweepInfo
from nestbed.training import score_climbing
from nestbed.training.score_climbing import ScoreClimbing, objective, transformation
from toys import TRAINING, Drive, Leak, LinearLeak

pytestmark = pytest.mark.filterwarnings("ignore:experiments gain about as much")  # with few particles

TINY = TRAINING.policy
SMALL = TRAINING
BARE = nb.PolicyConfig(encoder=(), recurrent=(), head=())


def record(key, system, count=6, horizon=4):
    states = jax.random.normal(key, (count, horizon + 1, len(system.state_names)))
    low, high = np.array(system.designs.low), np.array(system.designs.high)
    share = jax.random.uniform(jax.random.fold_in(key, 1), (count, horizon, len(low)), minval=0.05, maxval=0.95)
    return states, low + (high - low) * share


def double(policy):
    return jax.tree.map(lambda leaf: leaf.astype(float), policy)


# The gradient of the objective.


@pytest.mark.parametrize("cell", ["gru", pytest.param("lstm", marks=pytest.mark.slow)])
def test_gradient_against_finite_differences(cell):
    """Twenty directions through all weights, in float64."""
    system = nb.systems.load("double_link")
    policy = double(Recurrent(jax.random.key(0), system, cell=cell, encoder=(7, 6), recurrent=(5, 4), head=(6,)))
    states, designs = record(jax.random.key(1), system)
    value = jax.jit(lambda policy: objective(policy, states, designs, jnp.arange(1.0, 7.0)))
    slope = jax.grad(value)(policy)
    for k in range(20):
        leaves, structure = jax.tree.flatten(policy)
        draw = np.random.default_rng(k)
        direction = jax.tree.unflatten(structure, [draw.standard_normal(leaf.shape) for leaf in leaves])
        moved = [value(jax.tree.map(lambda w, d: w + h * d, policy, direction)) for h in (1e-5, -1e-5)]  # noqa: B023
        products = jax.tree.map(lambda a, b: jnp.sum(a * b), slope, direction)
        np.testing.assert_allclose(sum(jax.tree.leaves(products)), (moved[0] - moved[1]) / 2e-5, rtol=1e-5, atol=1e-6)


def test_gradient_against_the_score_by_hand():
    """Without hidden layers s ~ Normal(w · x + b, σ²), whose score every textbook has."""
    system = nb.systems.load("cart_pole")
    policy = double(Recurrent(jax.random.key(0), system, encoder=(), recurrent=(), head=(), log_std=0.3))
    states, designs = record(jax.random.key(1), system)
    slope = jax.grad(objective)(policy, states, designs, jnp.ones(6))
    s = np.arctanh(np.asarray(designs) / 5.0)[..., 0]
    layer, variance = policy.head[0], np.exp(0.6)
    x = np.asarray(states)[:, :-1]
    deviation = s - x @ np.asarray(layer.weight)[0] - np.asarray(layer.bias)
    np.testing.assert_allclose(slope.head[0].bias, deviation.sum() / variance / 6, rtol=1e-6)
    np.testing.assert_allclose(slope.head[0].weight[0], np.einsum("nt,ntx->x", deviation, x) / variance / 6, rtol=1e-6)
    np.testing.assert_allclose(slope.log_std[0], (deviation**2 / variance - 1).sum() / 6, rtol=1e-6)


def log_marginal(mean, log_std, eta):
    """Return log Z of one experiment with Drive, by quadrature over design and outcome, written from scratch."""
    nodes, mass = np.polynomial.hermite_e.hermegauss(80)
    mass = mass / mass.sum()
    s = mean + np.exp(log_std) * nodes
    u = 2.0 + 2.0 * np.tanh(s)[:, None]
    variance = 1.0 + u**2
    y = np.sqrt(variance) * nodes
    m, p = u * y / variance, 1.0 / variance
    gain = -0.5 * ((y - u * m) ** 2 + u**2 * p) + 0.5 * (np.log(variance) + y**2 / variance)
    return np.log(mass @ np.exp(eta * gain) @ mass)


def check_score(weighted):
    """Fisher's identity: the mean score under the sweep's weights is the gradient of log Z; five standard errors."""
    system, eta, count = Drive(), 0.3, 200_000
    config = dataclasses.replace(SMALL, horizon=1, trajectories=count, eta=eta, policy=BARE)
    climber = ScoreClimbing(system, config.resolve(system))
    policy = climber.untrained(jax.random.key(0))
    policy = eqx.tree_at(lambda p: (p.head[0].bias, p.log_std), policy, (jnp.array([-1.2]), jnp.array([-0.5])))
    sweep = climber.sweep(jax.random.key(1), policy, None)
    slopes = jax.vmap(lambda x, u: jax.grad(lambda p: p.log_likelihood(x, u))(policy))(
        sweep.observations, sweep.designs
    )
    weights = np.exp(sweep.log_weights) if weighted else np.full(count, 1 / count)
    h = 1e-4
    for estimate, slope in (
        (slopes.head[0].bias[:, 0], (log_marginal(-1.2 + h, -0.5, eta) - log_marginal(-1.2 - h, -0.5, eta)) / (2 * h)),
        (slopes.log_std[:, 0], (log_marginal(-1.2, -0.5 + h, eta) - log_marginal(-1.2, -0.5 - h, eta)) / (2 * h)),
    ):
        estimate = np.asarray(estimate, float)
        score = weights @ estimate
        error = np.sqrt(np.sum(weights**2 * (estimate - score) ** 2))
        assert abs(slope) > 10 * error, "too small to tell from 0"
        assert abs(score - slope) < 5 * error, f"score={score}, {slope=}"


def test_weighted_score_is_the_gradient_of_the_log_marginal_likelihood():
    check_score(weighted=True)


def test_mutant_score_without_weights_is_caught():
    with pytest.raises(AssertionError, match="score="):
        check_score(weighted=False)


# A problem with a known optimum.


PENALTY, ETA = 0.04, 0.5


def best_design():
    """Return the design that maximises log E[exp(η (gain − penalty u²))] for one experiment, by quadrature."""
    s = np.linspace(-3, 3, 2001)
    u = 2.0 + 2.0 * np.tanh(s)
    values = np.array([log_marginal(each, -30.0, ETA) for each in s]) - ETA * PENALTY * u**2
    return u[np.argmax(values)]


def learned_design(**changes):
    config = nb.ScoreClimbingConfig(
        iterations=60, horizon=1, trajectories=512, batch=128, eta=ETA, belief="exact", policy=BARE,
        action_penalty=4.0 * PENALTY,  # in units of half the box, 2
        learning_rate=0.05, schedule="linear", optimiser="adam",
    )  # fmt: skip
    run = nb.train(jax.random.key(0), Drive(), dataclasses.replace(config, **changes))
    mean = run.policy.mean()
    return float(mean.step(jax.random.key(0), mean.init(), jnp.zeros(1), jnp.zeros(1))[1][0])


@pytest.mark.slow
@pytest.mark.parametrize("conditional", [True, False])
def test_training_reaches_a_known_optimum(conditional):
    """The untrained policy's mean is 2; the optimum lies elsewhere inside the box."""
    best = best_design()
    assert abs(best - 2.0) > 0.5
    assert abs(learned_design(conditional=conditional) - best) < 0.15


@pytest.mark.slow
def test_mutant_climbing_downhill_misses_it(monkeypatch):
    monkeypatch.setattr(score_climbing, "objective", lambda *given: -objective(*given))
    assert abs(learned_design(iterations=20, trajectories=511) - best_design()) > 0.5  # a size not compiled before


# The loop.


def weights(run):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(run.state)]


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(weights(one), weights(other), strict=True))


VARIANTS = {
    "particles": (Leak, {"belief": "ibis"}),
    "exact": (LinearLeak, {}),
    "plain": (LinearLeak, {"conditional": False}),
    "lstm, two sweeps": (LinearLeak, {"sweeps": 2, "policy": dataclasses.replace(TINY, cell="lstm")}),
    "clipped, cosine": (LinearLeak, {"clip": 0.5, "schedule": "cosine", "optimiser": "adamw"}),
}


class StopHereError(Exception):
    """A power cut."""


@pytest.mark.parametrize(
    "variant",
    [pytest.param(name, marks=[] if name in ("exact", "clipped, cosine") else [pytest.mark.slow]) for name in VARIANTS],
)
def test_resumed_run_is_the_run_never_stopped(variant, tmp_path):
    kind, changes = VARIANTS[variant]
    system, config = kind(), dataclasses.replace(SMALL, **changes)
    whole = nb.train(jax.random.key(3), system, config)

    def stop(run):
        if run.iteration == 3:
            raise StopHereError

    with pytest.raises(StopHereError):
        nb.train(jax.random.key(3), system, config, out=tmp_path, progress=stop)
    assert nb.load_run(tmp_path, system).iteration == 3
    resumed = nb.train(jax.random.key(3), system, config, out=tmp_path, resume=True)
    assert same(whole, resumed)
    loaded = nb.load_run(tmp_path, system)
    assert same(whole, loaded)
    numbers = lambda run: [{k: v for k, v in row.items() if "seconds" not in k} for row in run.metrics]  # noqa: E731
    assert numbers(whole) == numbers(loaded) == numbers(resumed)


def test_a_run_can_be_made_longer(tmp_path):
    whole = nb.train(jax.random.key(0), LinearLeak(), SMALL)
    nb.train(jax.random.key(0), LinearLeak(), dataclasses.replace(SMALL, iterations=2), out=tmp_path)
    assert same(whole, nb.train(jax.random.key(0), LinearLeak(), SMALL, out=tmp_path, resume=True))


def test_keys_matter():
    one, other = (nb.train(jax.random.key(k), LinearLeak(), dataclasses.replace(SMALL, iterations=1)) for k in (0, 1))
    assert not same(one, other)


@pytest.mark.slow
def test_metrics_have_what_the_run_is_judged_by():
    run = nb.train(jax.random.key(3), Leak(), dataclasses.replace(SMALL, belief="ibis"))
    assert [row["iteration"] for row in run.metrics] == list(range(6))
    for row in run.metrics[1:]:
        assert 0 < row["ess"] <= 12
        assert 0 <= row["resampled"] <= 3
        assert row["rejuvenated"] == 0 or 0 < row["acceptance"] <= 1
        parts = row["seconds_sweep"] + row["seconds_gradient"] + row["seconds_evaluation"]
        np.testing.assert_allclose(parts, row["seconds"])
    expected = 0.5 * np.log(2 * np.pi * np.e) + float(run.policy.log_std[0])
    np.testing.assert_allclose(run.metrics[-1]["entropy"], expected, rtol=1e-6)
    best = max(run.metrics, key=lambda row: row["eig"])
    assert float(run.state.best_eig) == best["eig"]


def test_evaluation_is_that_of_the_mean_policy():
    """The mean of 400 evaluations against the closed form for the design of the mean policy; the noisy one differs."""
    system = Drive()
    config = dataclasses.replace(SMALL, horizon=1, policy=BARE).resolve(system)
    climber = ScoreClimbing(system, config)
    policy = climber.untrained(jax.random.key(0))
    policy = eqx.tree_at(lambda p: p.head[0].bias, policy, jnp.array([-1.0]))
    scores = [climber.evaluate(jax.random.key(k), policy)["eig"] for k in range(400)]
    design = 2.0 + 2.0 * np.tanh(-1.0)
    s = -1.0 + np.random.default_rng(0).standard_normal(10_000)
    noisy = np.mean(0.5 * np.log1p((2.0 + 2.0 * np.tanh(s)) ** 2))
    error = np.std(scores) / 20
    assert abs(np.mean(scores) - 0.5 * np.log1p(design**2)) < 4.5 * error
    assert abs(np.mean(scores) - noisy) > 9 * error


def test_conditional_sweeps_keep_the_reference(monkeypatch):
    """Each sweep is given the reference that the sweep before it drew."""
    given, drawn = [], []
    original = score_climbing.compiled_sweep

    def spy(*arguments, reference, **settings):
        result = original(*arguments, reference=reference, **settings)
        if settings["keep"]:  # the beliefs, so no evaluation
            given.append(reference)
            drawn.append(result[0].reference)
        return result

    monkeypatch.setattr(score_climbing, "compiled_sweep", spy)
    run = nb.train(jax.random.key(0), LinearLeak(), dataclasses.replace(SMALL, sweeps=2))
    assert given[0] is None
    assert given[1:] == drawn[:-1]
    assert len(given) == 1 + 2 * 5
    assert run.state.reference is drawn[-1]


@pytest.mark.slow
def test_batches_cover_all_draws_once():
    """With rows of one trajectory each, plain SGD of rate 1 moves by the mean gradients of the batches, 8 and 4."""
    system = LinearLeak()
    config = dataclasses.replace(SMALL, optimiser="sgd", learning_rate=1e-3, policy=BARE).resolve(system)
    policy = ScoreClimbing(system, config).untrained(jax.random.key(0))
    states, designs = record(jax.random.key(1), system, 12, 3)
    logs = jax.nn.log_softmax(jnp.linspace(-1.0, 1.0, 12))
    sweep = Sweep(states, designs, *[None] * 6)._replace(log_weights=logs)
    key = jax.random.key(2)
    moved, _, _ = score_climbing.climb(
        key, policy, transformation(config).init(eqx.filter(policy, eqx.is_array)), sweep, config
    )
    drawn = jax.random.categorical(key, sweep.log_weights, shape=(12,))
    expected = policy
    for rows in (drawn[:8], drawn[8:]):
        slope = jax.grad(objective)(expected, sweep.observations[rows], sweep.designs[rows], jnp.ones(len(rows)))
        expected = jax.tree.map(lambda w, g: w + 1e-3 * g, expected, slope)
    np.testing.assert_allclose(moved.head[0].bias, expected.head[0].bias, rtol=1e-5)
    np.testing.assert_allclose(moved.log_std, expected.log_std, rtol=1e-5)
    assert not np.allclose(moved.log_std, policy.log_std, rtol=1e-5)


@pytest.mark.slow
def test_a_run_compiles_once():
    """After the first iteration nothing is compiled again, nor for another seed."""
    programs.drop()  # so that none are dropped meanwhile
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: compiled.append(event) if event.endswith("backend_compile_duration") else None
    )
    jax.jit(lambda x: x + 1)(0)
    assert compiled, "the listener hears nothing"
    counts = []
    for seed in (0, 1):
        run = nb.train(
            jax.random.key(seed),
            LinearLeak(),
            SMALL,
            progress=lambda run: counts.append((run.iteration, len(compiled))),
        )
        assert run.finished
    assert len({count for _, count in counts[1:]}) == 1, f"compilations by iteration: {counts}"


@pytest.mark.parametrize("optimiser", ["adam", "adamw", "rmsprop", "sgd"])
@pytest.mark.parametrize("schedule", ["constant", "cosine", "linear"])
def test_optimisers_and_schedules(optimiser, schedule):
    """The last of all steps of a falling schedule is nearly 0, and clipping bounds the first."""
    config = dataclasses.replace(SMALL, optimiser=optimiser, schedule=schedule, learning_rate=0.1, clip=1.0)
    steps = transformation(config.resolve(Leak()))
    weights = jnp.ones(3)
    state = steps.init(weights)
    moves = []
    for _ in range(5 * 2):
        change, state = steps.update(jnp.full(3, 1e3), state, weights)
        moves.append(float(jnp.abs(change).max()))
    if optimiser == "sgd":
        np.testing.assert_allclose(moves[0], 0.1 / np.sqrt(3), rtol=1e-5)
        share = {"constant": 1.0, "linear": 0.5, "cosine": 0.5}[schedule]  # half of all steps, not of all iterations
        np.testing.assert_allclose(moves[5], share * 0.1 / np.sqrt(3), rtol=1e-5)
    assert (moves[-1] < 0.15 * moves[0]) == (schedule != "constant") or optimiser == "rmsprop"


@pytest.mark.slow
def test_two_iterations_by_hand():
    """The whole loop once more from public pieces, with Adam written out: policy, reference, scores, best, norms."""
    system, key = LinearLeak(), jax.random.key(7)
    config = dataclasses.replace(
        SMALL, iterations=2, slew_penalty=0.3, action_penalty=0.2, gain="constant_noise", learning_rate=0.05
    ).resolve(system)
    run = nb.train(key, system, config)
    sizes = {"horizon": 3, "trajectories": 12, "belief": "exact", "gain": "constant_noise"}
    terms = {"eta": 0.4, "slew_penalty": 0.3, "action_penalty": 0.2}

    def score(key, policy):
        result = nb.sweep(jax.random.split(key, 1)[0], system, policy.mean(), eta=0.0, **sizes)
        return float(result.gains.sum(1).mean())

    def mean_likelihood(policy, states, designs):
        return jnp.mean(jax.vmap(policy.log_likelihood)(states, designs))

    policy_key, sweep_key, evaluation_key = jax.random.split(jax.random.fold_in(key, 0), 3)
    policy = Recurrent(policy_key, system, **vars(config.policy))
    reference = nb.sweep(sweep_key, system, policy, **sizes, **terms).reference
    scores, policies, norms = [score(evaluation_key, policy)], [policy], []
    first = second = jax.tree.map(jnp.zeros_like, policy)
    step = 0
    for i in (1, 2):
        sweeps_key, climb_key, evaluation_key = jax.random.split(jax.random.fold_in(key, i), 3)
        sweep = nb.sweep(jax.random.split(sweeps_key, 1)[0], system, policy, reference=reference, **sizes, **terms)
        reference = sweep.reference
        drawn = jax.random.categorical(climb_key, sweep.log_weights, shape=(12,))
        norms.append([])
        for rows in (drawn[:8], drawn[8:]):
            slope = jax.grad(mean_likelihood)(policy, sweep.observations[rows], sweep.designs[rows])
            norms[-1].append(np.sqrt(sum(float((leaf**2).sum()) for leaf in jax.tree.leaves(slope))))
            step += 1
            first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, slope)
            second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, second, slope)
            policy = jax.tree.map(
                lambda w, m, v: w + 0.05 * (m / (1 - 0.9**step)) / (jnp.sqrt(v / (1 - 0.999**step)) + 1e-8),  # noqa: B023
                *(policy, first, second),
            )
        scores.append(score(evaluation_key, policy))
        policies.append(policy)

    np.testing.assert_allclose([row["eig"] for row in run.metrics], scores, rtol=1e-4)
    np.testing.assert_allclose([row["gradient_norm"] for row in run.metrics[1:]], np.mean(norms, axis=1), rtol=1e-3)
    np.testing.assert_allclose(run.state.reference.observations, reference.observations, rtol=1e-4)
    for mine, theirs in ((run.policy, policies[-1]), (run.best, policies[int(np.argmax(scores))])):
        for one, other in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_acceptance_is_that_of_the_trajectories_that_moved():
    info = SweepInfo(jnp.ones(3), jnp.zeros(3, bool), jnp.array([0, 4, 2]), jnp.array([0.0, 2.0, 0.5]), None)
    assert score_climbing._metrics(info)["acceptance"] == pytest.approx(2.5 / 6)


def test_best_is_kept_when_the_score_falls(monkeypatch):
    """Scores 1, 3, 2: the best policy is that of the first iteration, not the last."""
    scores = iter([1.0, 3.0, 2.0])
    monkeypatch.setattr(ScoreClimbing, "evaluate", lambda *_: {"eig": next(scores), "eig_error": 0.1})
    seen = []
    run = nb.train(jax.random.key(0), LinearLeak(), dataclasses.replace(SMALL, iterations=2), progress=seen.append)
    assert float(run.state.best_eig) == 3.0
    np.testing.assert_array_equal(run.best.log_std, seen[1].policy.log_std)
    assert not np.array_equal(run.best.log_std, run.policy.log_std)
