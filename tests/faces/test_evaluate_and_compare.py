"""`nestbed evaluate` and `nestbed compare`: what they find, what they show, and what they say of mistakes."""

import csv
import dataclasses
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import nestbed as nb
from nestbed.faces.cli import sources
from nestbed.faces.cli.compare import compare
from nestbed.faces.cli.evaluate import evaluate
from nestbed.faces.cli.evaluation import Options
from toys import TRAINING

LEAK = f"{Path(__file__).parents[1] / 'toys.py'}:LinearLeak"
SIZES = {"seeds": 2, "trajectories": 2, "belief": "exact"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs") / "leak"
    nb.train(jax.random.key(0), nb.systems.load(LEAK), dataclasses.replace(TRAINING, iterations=1), out=place)
    return place


def words(capsys):
    return " ".join(capsys.readouterr().out.split())


def test_a_run_a_policy_file_and_a_baseline_are_evaluated(run, capsys):
    for policy in (str(run), str(run / "policy_last.npz"), "chirp"):
        evaluate(policy, system=LEAK, options=Options(contrastive=5, horizon=3, **SIZES))
        told = words(capsys)
        assert "EIG" in told
        assert "below, ≤ log(L + 1) = 1.79" in told
        assert "│ above │" in told
        assert "T = 3, N = 2, exact belief, L = 5, 2 seeds" in told


def test_a_run_and_its_last_policy_file_are_one_policy(run):
    found = [sources.policy(str(place), LEAK, None).policy for place in (run, run / "policy_last.npz")]
    for one, other in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_array_equal(one, other)


def test_bounds_can_be_left_out_and_a_run_has_its_own_horizon(run, capsys, tmp_path):
    evaluate(str(run), system=LEAK, options=Options(contrastive=0, out=tmp_path, **SIZES))
    told = words(capsys)
    assert "T = 3" in told  # that of the training; the system's is 4
    assert sorted(file.name for file in tmp_path.iterdir()) == ["evaluation.csv", "evaluation.png"]
    assert "sPCE" not in told
    assert "L =" not in told


def test_gains_are_certified_unless_told_otherwise(run, tmp_path, capsys):
    """On the same rigs, with the best constant of a few levels among the baselines."""
    options = Options(records=256, out=tmp_path, horizon=3)
    compare(LEAK, [run], baselines=["random", "constant"], options=options)
    told = words(capsys)
    for part in ("leak", "random", "constant", "in nats", "95 % interval", "below best", "T = 3, 256 records, L = 64"):
        assert part in told
    with (tmp_path / "comparison.csv").open() as stream:
        rows = {row["policy"]: row for row in csv.DictReader(stream)}
    assert list(rows) == ["leak", "random", "constant"]
    for row in rows.values():
        assert float(row["interval_low"]) < float(row["lower_bound"]) <= float(row["upper_bound"])
    assert float(rows["constant"]["eig_mean_nats"]) > float(rows["random"]["eig_mean_nats"])
    assert float(rows["constant"]["probability_beats_random"]) > 0.99
    evaluate(str(run), system=LEAK, options=Options(records=256))
    told = words(capsys)
    for part in ("estimate, 95 %:", "bound from below (ACE)", "bound from above (VNMC)", "lower ≤ EIG ≤ upper"):
        assert part in told


@pytest.mark.slow
def test_comparisons_show_bounds_and_chances(run, tmp_path, capsys):
    baselines = ["random", "prbs_independent", "chirp"]
    compare(LEAK, [run], baselines=baselines, options=Options(contrastive=5, out=tmp_path, **SIZES))
    told = words(capsys)
    for name in ("leak", *baselines):
        assert name in told
    assert "sPCE ≤ EIG ≤ sNMC" in told
    assert "probability that the policy of the row gains more than that of the column" in told
    with (tmp_path / "comparison.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["policy"] for row in rows] == ["leak", *baselines]
    assert float(rows[0]["probability_beats_leak"]) == 0.5
    total = float(rows[0]["probability_beats_random"]) + float(rows[1]["probability_beats_leak"])
    assert total == pytest.approx(1.0, abs=1e-5)


@pytest.mark.slow
def test_a_horizon_of_ones_own_reaches_policies_that_remember(capsys):
    compare(LEAK, baselines=["myopic"], options=Options(horizon=5, **SIZES))
    assert "T = 5" in words(capsys)
    evaluate("greedy", system=LEAK, options=Options(horizon=5, contrastive=0, **SIZES))
    assert "T = 5" in words(capsys)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (
            lambda run: evaluate(str(run), options=Options(contrastive=5)),
            "is of LinearLeak, which is not built in; give the",
        ),
        (
            lambda run: evaluate(str(run), system="cart_pole"),
            "is of LinearLeak, but the system is cart_pole",
        ),
        (lambda run: compare("cart_pole", [run]), "is of LinearLeak, but the system is cart_pole"),
        (lambda run: evaluate(str(run / "config.toml"), system=LEAK), "is not a policy that nestbed can read"),
        (lambda run: evaluate(str(run.parent / "none")), r"there is no .*none: give the folder of a run"),
        (lambda run: evaluate(str(run.parent), system=LEAK), "there is no run in"),
        (
            lambda run: evaluate("chrip", system=LEAK),
            "there is no chrip .did you mean 'chirp'.*: give .* a baseline with --system: random",
        ),
        (lambda run: compare(LEAK, [run / "config.toml"]), "config.toml is not a policy that nestbed can read"),
        (
            lambda run: compare(LEAK, [run / "none.npz"]),
            "cannot read the policy .*: there is no such file",
        ),
        (lambda run: evaluate("chirp", system=LEAK, options=Options(horizon=0)), "horizon is 0"),
        (lambda run: evaluate("chirp", system=LEAK, options=Options(contrastive=-1)), "contrastive is -1"),
        (lambda run: compare(LEAK, options=Options(horizon=0)), "horizon is 0"),
        (lambda run: compare(LEAK, options=Options(seed=-1)), "the seed is -1"),
        (lambda run: compare(LEAK, options=Options(records=0)), "records is 0"),
        (
            lambda run: compare(LEAK, options=Options(particles=8)),
            "particles is for the published estimator",
        ),
        (
            lambda run: compare(LEAK, options=Options(target=("rat",))),
            "no parameter 'rat' to be a target",
        ),
        (lambda run: compare(LEAK, baselines=["gready"]), "did you mean 'greedy'"),
    ],
)
def test_mistakes_get_a_sentence(run, make, told):
    with pytest.raises(nb.NestbedError, match=told):
        make(run)


def test_advice_is_given_where_the_command_has_the_flag(run, tmp_path, command):
    asked = command("evaluate", run)
    assert asked.returncode == 2
    assert "give the system too (--system path/to/file.py:ClassName for one of your own)." in asked.stderr
    shutil.copytree(run, tmp_path / "begun")
    (tmp_path / "begun" / "metrics.jsonl").write_text("")
    shown = command("show", tmp_path / "begun").stderr
    assert "stopped before its first iteration; resume it." in shown
    assert "--resume" not in shown


def test_a_run_named_like_a_baseline_is_not_mistaken_for_it(run, tmp_path, monkeypatch):
    shutil.copytree(run, tmp_path / "random")
    system = nb.systems.load(LEAK)
    assert list(sources.trained([tmp_path / "random"], system)) == [str(tmp_path / "random")]
    monkeypatch.chdir(tmp_path)
    assert list(sources.trained([Path("random")], system)) == ["./random"]
    monkeypatch.chdir(tmp_path / "random")
    assert list(sources.trained([Path("policy_best.npz")], system)) == ["random/policy_best.npz"]


def test_policy_files_are_compared_beside_runs(run, tmp_path, capsys):
    """Each under a name of its own, over the experiments of their training."""
    for k in (0, 1):
        shutil.copytree(run, tmp_path / "both" / f"seed_{k}")
    files = [run / "policy_best.npz", run / "policy_last.npz", tmp_path / "both" / "seed_1" / "policy_best.npz"]
    compare(
        LEAK, [run, *files, tmp_path / "both"], baselines=["random"], options=Options(out=tmp_path / "out", **SIZES)
    )
    told = words(capsys)
    assert "T = 3" in told  # that of the training; the system's is 4
    names = ["leak", "leak/policy_best.npz", "leak/policy_last.npz", "both/seed_1/policy_best.npz"]
    names += ["both/seed_0", "both/seed_1", "random"]
    with (tmp_path / "out" / "comparison.csv").open() as stream:
        assert [row["policy"] for row in csv.DictReader(stream)] == names
    assert "leak/policy_best.npz" in told


def test_policies_of_one_name_are_told_apart(run, tmp_path):
    system = nb.systems.load(LEAK)
    other = Path(shutil.copytree(run, tmp_path / "leak"))
    files = [place / "policy_best.npz" for place in (run, other)]
    assert list(sources.trained([*files, files[0]], system)) == [str(file) for file in files]
    best, last = (sources.trained([run / f"policy_{name}.npz"], system) for name in ("best", "last"))
    assert [*best, *last] == ["leak/policy_best.npz", "leak/policy_last.npz"]


def test_a_policy_file_on_its_own_has_no_horizon_of_a_training(run, tmp_path):
    file = Path(shutil.copy(run / "policy_best.npz", tmp_path / "mine.npz"))
    (found,) = sources.trained([file], nb.systems.load(LEAK)).values()
    assert found.horizon is None
    assert sources.policy(str(run / "policy_best.npz"), LEAK, None).horizon == 3


def test_several_seeds_are_for_compare(run, tmp_path):
    for k in (0, 1):
        shutil.copytree(run, tmp_path / "both" / f"seed_{k}")
    with pytest.raises(nb.NestbedError, match="holds several runs: seed_0, seed_1; give one, or `nestbed compare`"):
        evaluate(str(tmp_path / "both"), system=LEAK)
