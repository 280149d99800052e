"""Expected information gain, posteriors and comparisons."""

import jax
import numpy as np
import pytest

import nestbed as nb
from nestbed import figures
from nestbed.evaluation import comparison
from toys import LinearLeak

KEY = jax.random.key(0)
LINEAR = nb.systems.load("linear_pendulum")
SMALL = {"horizon": 3, "belief": "exact"}


@pytest.mark.parametrize("count", [1, 7, 9, 16, 20])
def test_every_trajectory_counts_once(count):
    estimate = nb.eig(KEY, LinearLeak(), nb.policies.Random(LinearLeak()), trajectories=count, **SMALL)
    assert estimate.gains.shape == (count,)
    assert estimate.steps.shape == (count, 3)
    assert len(np.unique(estimate.gains)) == count
    assert estimate.mean == pytest.approx(estimate.gains.mean())
    if count > 1:
        assert estimate.standard_error == pytest.approx(estimate.gains.std(ddof=1) / np.sqrt(count))


def test_estimates_do_not_depend_on_the_number_of_cores(monkeypatch):
    from nestbed.evaluation import eig as module

    go = lambda: nb.eig(KEY, LinearLeak(), nb.policies.Random(LinearLeak()), trajectories=40, **SMALL).gains  # noqa: E731
    first = go()
    monkeypatch.setattr(module, "cores", lambda: 1)
    np.testing.assert_array_equal(first, go())


def test_exact_and_particle_estimates_agree_on_the_linear_pendulum():
    """2000 exact against 400 particle trajectories of PRBS, z below 4.5."""
    policy = nb.policies.PRBS(LINEAR)
    exact = nb.eig(KEY, LINEAR, policy, trajectories=2000, belief="exact")
    ibis = nb.eig(jax.random.key(1), LINEAR, policy, trajectories=400)
    error = np.hypot(exact.standard_error, ibis.standard_error)
    assert abs(exact.mean - ibis.mean) < 4.5 * error
    assert exact.mean == pytest.approx(2.28, abs=4.5 * exact.standard_error)


def test_a_single_record_gives_results_without_a_leading_axis():
    system = LinearLeak()
    record = nb.sweep(KEY, system, nb.policies.Random(system), trajectories=2, horizon=3, belief="exact", eta=0.0)
    one = nb.posterior(KEY, system, record.states[0], record.designs[0], belief="exact")
    both = nb.posterior(KEY, system, record.states, record.designs, belief="exact")
    assert one.mean.shape == (1,)
    np.testing.assert_allclose(one.mean, both.mean[0])
    np.testing.assert_allclose(both.gains, record.gains, rtol=1e-9)


def test_comparison_scores_seeds(tmp_path):
    system = LinearLeak()
    policies = {"random": nb.policies.Random(system), "prbs": nb.policies.PRBS(system)}
    told = []
    scores = nb.compare(
        KEY, system, policies, seeds=5, trajectories=8, progress=lambda name, n: told.append((name, n)), **SMALL
    )
    assert [s.policy for s in scores] == ["random", "prbs"]
    assert sum(n for name, n in told if name == "prbs") == 40
    means = scores[0].steps.sum(1).reshape(5, 8).mean(1)
    assert scores[0].sd == pytest.approx(means.std(ddof=1))
    comparison.save_table(scores, tmp_path / "table.csv")
    figures.information_gain(scores, system, tmp_path / "figure.png")
    assert (tmp_path / "table.csv").read_text().startswith("policy,eig_mean_nats")
    assert (tmp_path / "figure.png").read_bytes()[1:4] == b"PNG"


@pytest.mark.slow
def test_published_tables():
    """Random and PRBS on all four systems: none beyond three combined standard errors, at most one beyond two."""
    from published import rows

    scores = np.array([row[-1] for row in rows()])
    assert (np.abs(scores) < 3).all()
    assert (np.abs(scores) > 2).sum() <= 1
