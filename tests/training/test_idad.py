"""iDAD: its bound by hand, its gradient, a known optimum, annealing, resuming, settings and the command line."""

import dataclasses
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

import nestbed as nb
from nestbed.faces.cli import settings
from nestbed.faces.cli.compare import compare
from nestbed.faces.cli.config import config as print_config
from nestbed.faces.cli.evaluation import Options
from nestbed.faces.cli.settings import assignments
from nestbed.faces.cli.show import show
from nestbed.faces.cli.train import train
from nestbed.likelihood.base import Record
from nestbed.policies.recurrent import Recurrent
from nestbed.runs import folder as runs
from nestbed.runs.train import DivergedError
from nestbed.training import idad, toml
from nestbed.training.gradient import GradientInfo
from nestbed.training.idad import IDAD, ascend, objective, spce
from toys import TRAINING, Drive, Leak, LinearLeak

TANK = f"{Path(__file__).parents[1] / 'tank.py'}:Tank"
SMALL = nb.IDADConfig(
    iterations=3,
    steps=4,
    horizon=3,
    batch=6,
    contrastive=7,
    learning_rate=0.01,
    trajectories=12,
    particles=16,
    belief="exact",
    policy=dataclasses.replace(TRAINING.policy, cell="lstm"),
)
BARE = nb.PolicyConfig(encoder=(), recurrent=(), head=())


# The bound.


def log_likelihood(record, theta):
    """Return the log-likelihood (B, L) of records of the leak under parameters (B or 1, L), written from scratch."""
    x, u, x_next = (
        np.asarray(part)[..., 0] for part in (record.observations[:, :-1], record.designs, record.observations[:, 1:])
    )
    mean = x[..., None] + 0.5 * (-theta[:, None, :] * x[..., None] + u[..., None])
    return norm.logpdf(x_next[..., None], mean, 0.5 * np.sqrt(0.5)).sum(axis=1)


def bound_by_hand(record, theta, draws):
    own, others = log_likelihood(record, theta[:, None]), log_likelihood(record, draws[None])
    return own[:, 0] - logsumexp(np.concatenate([own, others], axis=1), axis=1) + np.log(1 + len(draws))


def without_the_count(record, theta, draws):
    return bound_by_hand(record, theta, draws) - np.log(1 + len(draws))


def without_the_truth(record, theta, draws):
    own, others = log_likelihood(record, theta[:, None]), log_likelihood(record, draws[None])
    return own[:, 0] - logsumexp(others, axis=1) + np.log(len(draws))


def check_bound(expected):
    draw = np.random.default_rng(0)
    record = Record(jnp.array(draw.standard_normal((4, 4, 1))), jnp.array(draw.uniform(-1, 1, (4, 3, 1))))
    theta, draws = draw.normal(1.0, 0.7, 4), draw.normal(1.0, 0.7, 5)
    found = spce(LinearLeak(), record, (jnp.array(theta),), (jnp.array(draws),))
    assert found.dtype == jnp.float64
    np.testing.assert_allclose(found, expected(record, theta, draws), rtol=1e-10)


def test_bound_by_hand():
    check_bound(bound_by_hand)


@pytest.mark.parametrize("mutant", [without_the_count, without_the_truth])
def test_mutant_bounds_are_caught(mutant):
    with pytest.raises(AssertionError):
        check_bound(mutant)


def test_records_are_made_by_their_own_parameters_and_the_draws_are_others(monkeypatch):
    """Hardly any noise, so that states tell the parameters behind them; as many draws as records."""
    system, seen = LinearLeak(diffusion=(1e-6,)), []
    monkeypatch.setattr(idad, "spce", lambda *given: seen.extend(given) or jnp.zeros(6))
    config = dataclasses.replace(SMALL, contrastive=6).resolve(system)
    policy = IDAD(system, config).untrained(jax.random.key(0))
    objective(jax.random.key(1), system, policy, config)
    _, record, (theta,), (draws,) = seen
    x, u = record.observations[..., 0], record.designs[..., 0]
    np.testing.assert_allclose(x[:, 1:], x[:, :-1] + 0.5 * (-theta[:, None] * x[:, :-1] + u), atol=1e-4)
    assert len(np.unique(np.concatenate([theta, draws]))) == 12


@pytest.mark.filterwarnings("ignore:the noise floor of")
def test_gradient_against_finite_differences():
    """Twenty directions through all weights, in float64; with biases of 0 the start is on the rectifiers' kink."""
    system = nb.systems.NonlinearPendulum(noise_floor=0.01)
    config = dataclasses.replace(SMALL, belief="ibis").resolve(system)
    made = IDAD(system, config).untrained(jax.random.key(0))
    policy = jax.tree.map(lambda leaf: leaf.astype(float) + (0.3 if leaf.ndim == 1 else 0.0), made)
    both = jax.jit(jax.value_and_grad(lambda policy: objective(jax.random.key(1), system, policy, config)))
    slope = both(policy)[1]
    assert length(slope) > 1e-3
    leaves, structure = jax.tree.flatten(policy)
    for k in range(20):
        draw = np.random.default_rng(k)
        direction = jax.tree.unflatten(structure, [draw.standard_normal(leaf.shape) for leaf in leaves])
        moved = [both(jax.tree.map(lambda w, d: w + h * d, policy, direction))[0] for h in (1e-5, -1e-5)]  # noqa: B023
        products = jax.tree.map(lambda a, b: jnp.sum(a * b), slope, direction)
        np.testing.assert_allclose(sum(jax.tree.leaves(products)), (moved[0] - moved[1]) / 2e-5, rtol=1e-5, atol=1e-6)


def length(tree):
    return np.sqrt(sum(float((leaf**2).sum()) for leaf in jax.tree.leaves(tree)))


def test_memory_does_not_grow_with_the_horizon():
    """The way back holds a few arrays of B × L numbers, not one per experiment."""
    system, sizes = LinearLeak(), []
    slope = jax.jit(jax.grad(lambda record, *theta: spce(system, record, *theta).sum()))
    for horizon in (4, 64):
        record = Record(jnp.zeros((16, horizon + 1, 1)), jnp.zeros((16, horizon, 1)))
        compiled = slope.lower(record, (jnp.zeros(16),), (jnp.zeros(1024),)).compile()
        sizes.append(compiled.memory_analysis().temp_size_in_bytes)
    assert sizes[1] - sizes[0] < 4 * 16 * 1024 * 8


# The steps.


def test_a_known_optimum_is_learned():
    """One experiment is worth ½ log(1 + u²): the most at the upper limit of the box, the untrained design being 2."""
    config = nb.IDADConfig(
        iterations=2, steps=150, horizon=1, batch=32, contrastive=31, learning_rate=0.05, belief="exact", policy=BARE
    )
    run = nb.train(jax.random.key(0), Drive(), config)
    mean = run.policy.mean()
    design = float(mean.step(jax.random.key(0), mean.init(), jnp.zeros(1), jnp.zeros(1))[1][0])
    assert design > 3.8
    last = run.metrics[-1]
    assert abs(last["eig"] - 0.5 * np.log1p(design**2)) < 4.5 * last["eig_error"]
    assert run.metrics[1]["spce"] < last["spce"] < np.log(32)


def test_the_first_step_is_adams():
    """Adam's first step moves every weight by the learning rate given, whatever the gradient's length; log σ stays."""
    system = LinearLeak()
    config = dataclasses.replace(SMALL, steps=1).resolve(system)
    state = IDAD(system, config)._start(IDAD(system, config).untrained(jax.random.key(0)))
    for rate in (1e-3, 0.02):
        policy, _, told = ascend(jax.random.key(1), system, state.policy, state.optimiser, jnp.array(rate), config)
        change = np.abs(policy.head[-1].bias - state.policy.head[-1].bias)
        np.testing.assert_allclose(change, rate, rtol=1e-3)
        np.testing.assert_array_equal(policy.log_std, state.policy.log_std)
    key = jax.random.split(jax.random.key(1), 1)[0]
    np.testing.assert_allclose(told.objective, objective(key, system, state.policy, config), rtol=1e-6)


def test_annealing_after_iterations_without_a_better_bound(monkeypatch):
    """Bounds 1, 0.5, 1, 2, 1.5: the second, the third and the fifth are no better than the best before them."""
    bounds = iter([1.0, 0.5, 1.0, 2.0, 1.5])

    def scripted(key, system, policy, optimiser, rate, config):
        return policy, optimiser, GradientInfo(jnp.array(next(bounds)), jnp.array(1.0), jnp.array(True))

    monkeypatch.setattr(idad, "ascend", scripted)
    config = dataclasses.replace(SMALL, iterations=5, learning_rate=0.1, annealing=0.5)
    run = nb.train(jax.random.key(0), LinearLeak(), config)
    assert [row["learning_rate"] for row in run.metrics] == [0.1, 0.1, 0.1, 0.05, 0.025, 0.025]
    assert (float(run.state.learning_rate), float(run.state.best_bound)) == (0.0125, 2.0)


def test_divergence_keeps_the_last_good_policy():
    config = dataclasses.replace(SMALL, learning_rate=1e38)
    with pytest.raises(DivergedError, match=r"weight of the policy that is not finite; .*learning_rate") as caught:
        nb.train(jax.random.key(0), LinearLeak(), config)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(caught.value.run.policy))


# The run.


class StopHereError(Exception):
    """A power cut."""


def same(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def test_resumed_run_is_the_run_never_stopped(tmp_path):
    system, key = LinearLeak(), jax.random.key(3)
    whole = nb.train(key, system, SMALL)
    numbers = lambda run: [{k: v for k, v in row.items() if "seconds" not in k} for row in run.metrics]  # noqa: E731
    assert whole.state.learning_rate < SMALL.learning_rate, "nothing was annealed, so nothing of it is tested"

    def stop(run):
        if run.iteration == 2:
            raise StopHereError

    with pytest.raises(StopHereError):
        nb.train(key, system, SMALL, out=tmp_path, progress=stop)
    assert nb.load_run(tmp_path, system).iteration == 2
    resumed = nb.train(key, system, SMALL, out=tmp_path, resume=True)
    loaded = nb.load_run(tmp_path, system)
    for run in (resumed, loaded):
        assert same(whole.state, run.state)
        assert numbers(whole) == numbers(run)
    assert isinstance(loaded.config, nb.IDADConfig)
    assert same(nb.load_policy(tmp_path / "policy_best.npz", system), whole.best)

    longer = dataclasses.replace(SMALL, iterations=4)
    assert same(nb.train(key, system, longer).state, nb.train(key, system, longer, out=tmp_path, resume=True).state)
    with pytest.raises(nb.NestbedError, match="is of LinearLeak, but the system is Leak"):
        nb.load_run(tmp_path, Leak())
    with pytest.raises(nb.NestbedError, match="has batch = 6, but 5 was asked for"):
        nb.train(key, system, dataclasses.replace(longer, batch=5), out=tmp_path, resume=True)
    with pytest.raises(nb.NestbedError, match="was trained by idad, but score_climbing was asked for"):
        nb.train(key, system, TRAINING, out=tmp_path, resume=True)


def test_metrics_have_what_the_run_is_judged_by():
    run = nb.train(jax.random.key(3), LinearLeak(), SMALL)
    for row in run.metrics[1:]:
        assert row["spce"] < np.log(8)
        assert row["gradient_norm"] > 0
        np.testing.assert_allclose(row["seconds_gradient"] + row["seconds_evaluation"], row["seconds"])
    assert float(run.state.best_eig) == max(row["eig"] for row in run.metrics)
    assert isinstance(run.policy, Recurrent)
    assert any(isinstance(cell, eqx.nn.LSTMCell) for cell in run.policy.cells)


# The settings.


def test_the_papers_configuration():
    paper = nb.IDADConfig.paper()
    assert (paper.iterations * paper.steps, paper.batch, paper.contrastive) == (10_000, 512, 16_383)
    assert (paper.steps, paper.learning_rate, paper.annealing, paper.policy.cell) == (400, 5e-4, 0.96, "lstm")
    assert SMALL.budget == ("12 gradient steps × 6 trajectories × 7 contrastive draws (paper: 10000 × 512 × 16383)")


@pytest.mark.parametrize("config", [SMALL, TRAINING])
def test_a_stored_configuration_is_read_as_what_it_was(config, tmp_path):
    full = config.resolve(LinearLeak())
    file = tmp_path / "config.toml"
    file.write_text(toml.written(full))
    assert toml.written(full).startswith(f'method = "{config.method}"\n')
    assert runs.load_config(tmp_path) == full
    assert type(runs.load_config(tmp_path)) is type(config)
    file.write_text(toml.written(full).partition("\n")[2])  # as files were before there were methods
    if isinstance(config, nb.ScoreClimbingConfig):
        assert runs.load_config(tmp_path) == full
    else:
        with pytest.raises(nb.NestbedError, match="the configuration has no key 'steps'"):
            runs.load_config(tmp_path)


@pytest.mark.parametrize(
    ("pairs", "told"),
    [
        (["eta=0.5"], "the configuration has no key 'eta'"),
        (["contrastiv=5"], "did you mean 'contrastive'"),
        (["contrastive=0"], "contrastive is 0, but it must be a whole number of at least 1"),
        (["steps=1.5"], "steps is 1.5, but it must be a whole number"),
        (["annealing=0"], "annealing is 0, but it must be a number above 0 and at most 1"),
        (["annealing=1.1"], "annealing is 1.1, but it must be a number above 0 and at most 1"),
        (["annealing=nan"], "annealing is nan, but it must be a number above 0"),
        (["learning_rate=-1"], "learning_rate is -1, but it must be a finite number of at least 0"),
        (["belief=ibiss"], "did you mean 'ibis'"),
        (["policy.cell=lsmt"], "did you mean 'lstm'"),
        (["method=score_climbing"], "are for the method 'score_climbing', but the method is 'idad'"),
    ],
)
def test_mistakes_in_a_configuration(pairs, told):
    with pytest.raises(nb.NestbedError, match=told):
        nb.IDADConfig().updated(assignments(pairs)).resolve(LinearLeak())


# The command line.


FLAGS = ["steps=2", "batch=4", "contrastive=5", "belief=exact"]
FLAGS += ["policy.encoder=[6]", "policy.recurrent=[5]", "policy.head=[4]"]


@pytest.mark.slow
def test_train_resume_show_and_compare(tmp_path, capsys):
    out, budget = tmp_path / "run", "gradient steps × 4 trajectories × 5 contrastive draws (paper: 10000 × 512 × 16383)"
    train(TANK, out=out, method="idad", set=[*FLAGS, "iterations=2"], quiet=True)
    assert f"Spent: 4 {budget}" in capsys.readouterr().out
    train(TANK, out=out, resume=True, set=["iterations=3"])
    told = capsys.readouterr()
    assert "iteration 3/3  EIG" in told.err
    assert f"Spent: 6 {budget}" in told.out
    show(out)
    told = " ".join(capsys.readouterr().out.split())
    assert f"iDAD, T = 3, evaluated with N = 8, exact belief 6 {budget}" in told
    assert "3 of 3 iterations done" in told
    for heading in ("EIG", "sPCE", "learning rate", "gradient"):
        assert heading in told
    for heading in ("ESS", "log Ẑ", "entropy"):
        assert heading not in told
    compare(TANK, [out], baselines=("random",), options=Options(seeds=2, trajectories=2, belief="exact"))
    assert "run" in capsys.readouterr().out
    with pytest.raises(nb.NestbedError, match="was trained by idad, but --method is score_climbing"):
        train(TANK, out=out, resume=True, method="score_climbing")


def test_config_prints_what_train_reads(tmp_path, capsys):
    system, file = nb.systems.load("cart_pole"), tmp_path / "my.toml"
    for method, config in {"idad": nb.IDADConfig(), "idad_paper": nb.IDADConfig.paper()}.items():
        print_config("cart_pole", method=method)
        file.write_text(capsys.readouterr().out)
        assert nb.IDADConfig().updated(toml.read(file)) == config.resolve(system)
        assert settings.unchanged(tmp_path, False, None, toml.read(file)) == nb.IDADConfig()
    with pytest.raises(nb.NestbedError, match="settings are for the method 'idad', but the method is 'score_climbing'"):
        train("cart_pole", out=tmp_path / "run", method="score_climbing", config=file)
    with pytest.raises(nb.NestbedError, match=r"there is no method 'idda'; did you mean 'idad'"):
        train("cart_pole", out=tmp_path / "run", method="idda")
