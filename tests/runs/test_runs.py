"""Run folders: what is in them, what survives, and what the command line says of them."""

import contextlib
import dataclasses
import errno
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import time
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions.transforms import AffineTransform

import nestbed as nb
from children import NESTBED, PATIENCE, alive, nestbed, running
from nestbed.faces.cli.settings import assignments
from nestbed.numerics import interrupts, storage
from nestbed.policies.recurrent import Mean
from nestbed.runs import fingerprint
from nestbed.runs import folder as runs
from nestbed.runs.run import Log, fresh
from nestbed.runs.train import DivergedError
from nestbed.training.pathwise_config import PathwiseConfig
from nestbed.training.score_climbing import ScoreClimbing, ScoreClimbingConfig
from nestbed.training.toml import read
from toys import TRAINING, Leak, LinearLeak

HERE = Path(__file__).parents[1]
TANK = f"{HERE / 'tank.py'}:Tank"
SMALL = dataclasses.replace(TRAINING, iterations=2)
BLANK = {"iteration": 0, "eig": 0.0, "eig_error": 0.1, "seconds": 1.0}
FLAGS = [
    "--method",
    "score_climbing",
    "--set",
    "belief=exact",
    "policy.encoder=[6]",
    "policy.recurrent=[5]",
    "policy.head=[4]",
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run of the leak, to be copied before it is changed."""
    place = tmp_path_factory.mktemp("run") / "leak"
    nb.train(jax.random.key(0), LinearLeak(), SMALL, out=place)
    return place


@pytest.fixture
def folder(trained, tmp_path):
    return Path(shutil.copytree(trained, tmp_path / "copy"))


def resume(folder, system=None, config=SMALL, key=0):
    return nb.train(jax.random.key(key), system or LinearLeak(), config, out=folder, resume=True)


# What a folder holds.


def test_a_folder_holds_plain_data(folder):
    names = {"config.toml", "run.json", "metrics.jsonl", "checkpoint.npz", "policy_best.npz", "policy_last.npz"}
    assert names <= {file.name for file in folder.iterdir()}
    about = json.loads((folder / "run.json").read_text())
    assert about["versions"]["jax"] == jax.__version__
    assert about["system"]["settings"]["prior"] == {"rate": "Normal(loc=1.0, scale=0.7)"}
    for name in ("checkpoint.npz", "policy_best.npz"):
        with np.load(folder / name, allow_pickle=False) as arrays:
            assert all(arrays[key].dtype != object for key in arrays)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [0, 1, 2]


def test_saved_by_hand_is_the_same_run(tmp_path):
    run = nb.train(jax.random.key(0), LinearLeak(), SMALL)
    other = jax.tree.map(lambda leaf: leaf + 1, run.policy)
    run = dataclasses.replace(run, state=run.state._replace(best=other))
    run.save(tmp_path / "run")
    loaded = nb.load_run(tmp_path / "run", LinearLeak())
    assert loaded.metrics == run.metrics
    assert loaded.config == run.config
    for name, policy in {"policy_last.npz": run.policy, "policy_best.npz": run.best}.items():
        stored = nb.load_policy(tmp_path / "run" / name, LinearLeak())
        for one, another in zip(jax.tree.leaves(policy), jax.tree.leaves(stored), strict=True):
            np.testing.assert_array_equal(one, another)
    with pytest.raises(nb.NestbedError, match="holds a run already"):
        run.save(tmp_path / "run")


def test_the_saved_configuration_can_be_used_again(folder):
    assert ScoreClimbingConfig().updated(read(folder / "config.toml")) == SMALL.resolve(LinearLeak())


def test_a_run_of_a_built_in_system_needs_no_system_to_load(tmp_path):
    system = nb.systems.load("linear_pendulum")
    config = SMALL.resolve(system)
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), ScoreClimbing(system, config).template())
    fresh(jax.random.key(0), system, config, blank, BLANK).save(tmp_path)
    assert nb.load_run(tmp_path).system is system


# What goes wrong.


def test_a_folder_with_a_run_is_not_overwritten(folder):
    before = (folder / "checkpoint.npz").read_bytes()
    with pytest.raises(nb.NestbedError, match="holds a run already; resume it or choose another"):
        nb.train(jax.random.key(0), LinearLeak(), SMALL, out=folder)
    assert (folder / "checkpoint.npz").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"system": nb.systems.load("linear_pendulum")},
            "is of LinearLeak, but the system is linear_pendulum",
        ),
        ({"system": Leak()}, "is of LinearLeak, but the system is Leak"),
        ({"system": LinearLeak(step=0.25)}, r"is of LinearLeak with step = 0.5, but the system has 0.25"),
        ({"config": dataclasses.replace(SMALL, eta=0.2)}, "has eta = 0.4, but 0.2 was asked for"),
        ({"config": dataclasses.replace(SMALL, iterations=1)}, "has iterations = 2, but 1 was asked for"),
        ({"key": 1}, "has another seed or key"),
    ],
)
def test_another_run_is_not_resumed(folder, change, told):
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with pytest.raises(nb.NestbedError, match=told):
        resume(folder, **change)
    assert before == {file.name: file.read_bytes() for file in folder.iterdir()}


@cache
def _resolved(config):
    return dataclasses.replace(config, trajectories=64).resolve(LinearLeak())


def ended(*gains, error=0.05, config=SMALL):
    """Return how a training with these gains went."""
    rows = [{"iteration": i, "eig": eig, "eig_error": error} for i, eig in enumerate(gains)]
    return Log(_resolved(config), rows, {"system": {"name": "LinearLeak"}, "key": [0, 7]})


def test_a_training_that_got_worse_says_so():
    worse = ended(4.71, 4.9, 1.87).verdict
    assert worse.startswith(
        "the training made the policy worse: 1.87 ± 0.05 nats after iteration 2, but 4.71 ± 0.05 nats"
    )
    assert "the best was 4.90 ± 0.05 nats after iteration 1, which is kept as policy_best.npz (run.best)" in worse
    assert "a smaller learning_rate (now 0.001) or a slew_penalty above 0, so that the mean policy does the" in worse
    assert "compare it with baselines" in worse
    fallen = ended(1.0, 4.9, 3.5).verdict
    assert fallen.startswith("the last policy is not the best: 3.50 ± 0.05 nats after iteration 2, from 1.00 ± 0.05")
    assert "above 0.3" in ended(4.7, 1.8, config=dataclasses.replace(SMALL, slew_penalty=0.3)).verdict
    assert "more contrastive draws (now 1023)" in ended(4.7, 1.8, config=nb.IDADConfig()).verdict


def test_a_training_that_got_no_worse_than_its_errors_is_not_blamed():
    assert ended(1.0, 2.0, 3.0).verdict is None
    assert ended(3.0, 2.95, 2.9).verdict is None
    assert ended(4.71).verdict is None
    assert ended(4.71, 1.87, error=None).verdict is None


def test_the_best_of_many_is_expected_to_be_above_the_last():
    """Trainings that stay where they are: at most 5 % are blamed (2000 of them, 4.5 binomial errors: 7.2 %)."""
    draw = np.random.default_rng(0)
    found = [ended(*draw.normal(3.0, 0.05, 26)).verdict for _ in range(2000)]
    assert np.mean([told is not None for told in found]) < 0.072


def test_train_and_show_tell_the_verdict(folder, capsys):
    from nestbed.faces.cli.show import show
    from nestbed.faces.cli.train import train

    rows = [{"iteration": i, "eig": eig, "eig_error": 0.05, "seconds": 1.0} for i, eig in enumerate((4.71, 2.0, 1.87))]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "made the policy worse" in nb.load_run(folder, LinearLeak()).verdict
    toy = f"{HERE / 'toys.py'}:LinearLeak"
    for tell in (lambda: show(folder), lambda: train(toy, out=folder, resume=True, quiet=True)):
        tell()
        told = capsys.readouterr().out
        assert "Beware: the training made the policy worse: 1.87 ± 0.05 nats after iteration 2" in told
    shutil.copytree(folder, folder / "seed_7")
    (folder / "run.json").unlink()
    shutil.copytree(folder / "seed_7", folder / "seed_8")
    show(folder)
    assert capsys.readouterr().out.count("Beware: seed 0: the training made the policy worse") == 2


def test_a_falling_schedule_cannot_be_made_longer(folder):
    file = folder / "config.toml"
    file.write_text(file.read_text().replace('schedule = "constant"', 'schedule = "cosine"'))
    with pytest.raises(nb.NestbedError, match="has iterations = 2, but 4 was asked for"):
        resume(folder, config=dataclasses.replace(SMALL, iterations=4, schedule="cosine"))


def test_compare_scores_the_mean_of_the_last_policy(tmp_path, monkeypatch):
    from nestbed.evaluation import comparison
    from nestbed.faces.cli.compare import compare

    system = nb.systems.load("linear_pendulum")
    config = SMALL.resolve(system)
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), ScoreClimbing(system, config).template())
    blank = blank._replace(best=jax.tree.map(lambda leaf: leaf + 1, blank.policy))
    fresh(jax.random.key(0), system, config, blank, BLANK).save(tmp_path)
    seen = {}

    def spy(key, system, policies, **settings):
        seen.update(policies, horizon=settings["horizon"])
        raise nb.NestbedError("seen")

    monkeypatch.setattr(comparison, "compare", spy)
    with pytest.raises(nb.NestbedError, match="seen"):
        compare("linear_pendulum", [tmp_path])
    assert isinstance(seen[tmp_path.name], Mean)
    assert (seen[tmp_path.name].policy.log_std == 0).all()
    assert seen["horizon"] == 3  # that of the training


def test_changed_equations_are_noticed(folder):
    class Changed(LinearLeak):
        def drift(self, x, u, theta):
            return -theta.rate * x.level**3 + u.flow

        def features(self, x, u):
            return ((-(x.level**3),),)

    Changed.__name__ = "LinearLeak"
    with pytest.warns(UserWarning, match="whose equations .* have changed"):
        nb.load_run(folder, Changed())
    with pytest.raises(nb.NestbedError, match=r"whose equations .* have changed since; train in another folder"):
        resume(folder, system=Changed())


def differs(one, other):
    """Return which equation of one system gives other values at the points that were stored for another."""
    return fingerprint.changed_equation(json.loads(json.dumps(fingerprint.describe(one))), other)


def test_whatever_a_policy_depends_on_is_compared():
    class Seen(LinearLeak):
        def view(self, x):
            return (2.0 * x.level,)

    def with_table(value):
        table = jnp.full(3, value)

        class Table(LinearLeak):
            def drift(self, x, u, theta):
                return -theta.rate * x.level + u.flow + table[0]

        return Table()

    class Loud(LinearLeak):
        def diffusion(self, x, u, theta):
            return (0.5 + 1e-6 * x.level**2,)

    assert differs(with_table(1.0), with_table(1.0)) is None
    assert differs(with_table(1.0), with_table(1.0 + 1e-5)) == "drift"
    shifted = [
        Leak(prior={"rate": dist.TransformedDistribution(dist.Normal(0.0, 1.0), AffineTransform(at, 2.0))})
        for at in (1.0, 50.0)
    ]
    assert differs(*shifted) == "prior"
    assert differs(LinearLeak(), Loud()) == "variance"
    assert differs(LinearLeak(), Seen()) == differs(Seen(), LinearLeak()) == "view"
    assert differs(Leak(prior=LinearLeak.prior), LinearLeak()) == "features"


@pytest.mark.parametrize(
    ("hidden", "factor"),
    [
        ("jit", 1.0 + 1e-12),
        ("jit", 1.0 + 1e-5),
        pytest.param("callback", 1.0 + 1e-5, marks=pytest.mark.slow),
        pytest.param("callback", 1.0 + 1e-12, marks=pytest.mark.slow),
    ],
)
def test_equations_behind_another_program_are_compared(folder, hidden, factor):
    """Their text says nothing of what they compute; rounding is no change."""

    def flow(level, rate):
        return -factor * level * rate

    class Hidden(LinearLeak):
        def drift(self, x, u, theta):
            if hidden == "jit":
                return jax.jit(flow)(x.level, theta.rate) + u.flow
            shape = jax.ShapeDtypeStruct(jnp.broadcast_shapes(jnp.shape(x.level), jnp.shape(theta.rate)), float)
            return jax.pure_callback(flow, shape, x.level, theta.rate, vmap_method="broadcast_all") + u.flow

    Hidden.__name__ = "LinearLeak"
    if abs(factor - 1.0) < 1e-9:
        resume(folder, system=Hidden())
        return
    with pytest.raises(nb.NestbedError, match=r"whose equations \(the drift\) have changed since; train in another"):
        resume(folder, system=Hidden())


def test_equations_that_are_no_number_everywhere_are_compared():
    class Rooted(Leak):
        def drift(self, x, u, theta):
            return jnp.sqrt(x.level) - 1.0 + u.flow

    class Other(Leak):
        def drift(self, x, u, theta):
            return jnp.sqrt(jnp.abs(x.level)) - 1.0 + u.flow

    values = fingerprint.describe(Rooted())["equations"]["values"]["drift"][0]
    assert 0 < sum(value is None for value in values) < len(values)
    assert differs(Rooted(), Rooted()) is None
    assert differs(Rooted(), Other()) == "drift"


@pytest.mark.parametrize("name", nb.systems.SYSTEMS)
def test_equations_are_compared_where_they_are_not_trivial(name):
    """At no point is a state or a rate 0, and every state moves: a change of any term shows."""
    system = nb.systems.load(name)
    stored = fingerprint.describe(system)["equations"]
    points = np.array(stored["points"])
    assert points.shape[0] == 2 * fingerprint.POINTS
    designs = slice(len(system.state), len(system.state) + len(system.design_names))
    assert (np.delete(points, designs, axis=1) != 0.0).all()  # a design's limit may be 0
    assert (np.ptp(points, axis=0) > 0.01).all()
    assert (np.array(stored["values"]["drift"]) != 0.0).all()


@pytest.mark.parametrize(
    "damage",
    [
        lambda equations: equations.pop("points"),
        lambda equations: equations.pop("values"),
        lambda equations: equations["points"].pop(),
        lambda equations: equations["points"][3].pop(),
        lambda equations: [row.pop() for row in equations["points"]],
        lambda equations: equations["points"].__setitem__(0, ["a", 0.0, 0.0]),
        lambda equations: equations["points"][0].__setitem__(0, None),
        lambda equations: equations["values"]["drift"][0].pop(),
        lambda equations: equations["values"].__setitem__("drift", "a1b2"),
    ],
)
def test_damaged_points_are_damage(folder, damage):
    about = json.loads((folder / "run.json").read_text())
    damage(about["system"]["equations"])
    (folder / "run.json").write_text(json.dumps(about))
    for load in (lambda: nb.load_run(folder, LinearLeak()), lambda: resume(folder)):
        with pytest.raises(nb.NestbedError, match=r"is damaged.*; restore it from a copy\."):
            load()


def test_points_of_another_system_are_not_those_of_the_paper():
    system = nb.systems.load("linear_pendulum")
    stored = fingerprint.describe(system)
    assert fingerprint.same(stored, system)
    assert not fingerprint.same(stored, nb.systems.load("nonlinear_pendulum"))
    stored["equations"]["points"] = [row[1:] for row in stored["equations"]["points"]]
    assert not fingerprint.same(stored, system)


def test_a_policy_from_before_states_were_scaled_sees_them_as_they_are(folder):
    file = folder / "policy_last.npz"
    with np.load(file) as stored:
        arrays = dict(stored)
    about = json.loads(str(arrays["about"]))
    assert about["policy"].pop("scaled")
    file.write_bytes(storage.npz({**arrays, "about": np.array(json.dumps(about))}))
    assert nb.load_policy(file, LinearLeak()).scales == ()


def test_a_policy_file_with_damaged_points_is_explained(folder):
    file = folder / "policy_last.npz"
    with np.load(file) as stored:
        arrays = dict(stored)
    about = json.loads(str(arrays["about"]))
    about["system"]["equations"] = "0123456789abcdef"
    file.write_bytes(storage.npz({**arrays, "about": np.array(json.dumps(about))}))
    with pytest.raises(nb.NestbedError, match="is not a policy that nestbed can read"):
        nb.load_policy(file, LinearLeak())


def test_a_run_begun_with_other_sources_is_resumed_with_a_warning(folder):
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**about, "sources": "0123456789abcdef"}))
    nb.load_run(folder, LinearLeak())  # without one
    for iterations in (3, 4):
        with pytest.warns(UserWarning, match=r"begun with other sources .* no longer the result of a run never stopp"):
            resume(folder, config=dataclasses.replace(SMALL, iterations=iterations))


@contextlib.contextmanager
def limited(folder):
    """Make files as large as a checkpoint impossible to write."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = (folder / "checkpoint_before.npz").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


def cut(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def test_a_checkpoint_cut_in_half_costs_one_iteration(folder):
    whole = nb.load_run(folder, LinearLeak())
    cut(folder / "checkpoint.npz")
    with pytest.warns(UserWarning, match=r"checkpoint.npz is damaged, so the checkpoint before it is used"):
        again = resume(folder)
    for one, other in zip(jax.tree.leaves(whole.state), jax.tree.leaves(again.state), strict=True):
        np.testing.assert_array_equal(one, other)
    assert nb.load_run(folder, LinearLeak()).iteration == 2


def test_policies_left_behind_by_a_kill_are_caught_up(folder):
    """Killed after the last checkpoint and before its policies were written."""
    before = (folder / "policy_last.npz").read_bytes()
    (folder / "policy_last.npz").write_bytes(b"old")
    (folder / "policy_best.npz").unlink()
    resume(folder)
    assert (folder / "policy_last.npz").read_bytes() == before
    nb.load_policy(folder / "policy_best.npz", LinearLeak())


def test_a_damaged_checkpoint_never_replaces_the_one_before(folder):
    """Damaged, resumed, and stopped again before anything new could be written."""
    cut(folder / "checkpoint.npz")
    with pytest.warns(UserWarning, match="is damaged"), limited(folder), pytest.raises(nb.NestbedError):
        resume(folder)
    assert nb.load_run(folder, LinearLeak()).iteration == 1


def test_a_wrong_byte_anywhere_is_damage_and_nothing_else(folder):
    whole, rng = (folder / "checkpoint.npz").read_bytes(), random.Random(0)
    wanted = storage.sizes(ScoreClimbing(LinearLeak(), SMALL.resolve(LinearLeak())).template())
    assert storage.read(folder / "checkpoint.npz", wanted).keys() == wanted.keys()
    for _ in range(300):
        data = bytearray(whole)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        (folder / "other.npz").write_bytes(data)
        with contextlib.suppress(*storage.DAMAGES):
            storage.read(folder / "other.npz", wanted)


def test_a_lost_checkpoint_does_not_wipe_the_folder(folder):
    for name in ("checkpoint.npz", "checkpoint_before.npz"):
        (folder / name).unlink()
    before = (folder / "metrics.jsonl").read_bytes()
    with pytest.raises(nb.NestbedError, match=r"has no checkpoint.npz; restore it"):
        resume(folder)
    assert (folder / "metrics.jsonl").read_bytes() == before


def test_a_checkpoint_of_another_run_is_refused(folder):
    file = folder / "config.toml"
    file.write_text(file.read_text().replace("eta = 0.4", "eta = 0.9"))
    with pytest.raises(nb.NestbedError, match="is of another run, or the settings"):
        resume(folder, config=dataclasses.replace(SMALL, eta=0.9))


def test_a_failed_start_does_not_block_its_folder(tmp_path):
    with pytest.raises(nb.NestbedError, match="use belief='ibis'"):
        nb.train(jax.random.key(0), Leak(), SMALL, out=tmp_path)
    nb.train(jax.random.key(0), LinearLeak(), dataclasses.replace(SMALL, iterations=1), out=tmp_path)


def test_two_damaged_checkpoints_are_explained(folder):
    cut(folder / "checkpoint.npz")
    (folder / "checkpoint_before.npz").write_bytes(b"")
    with pytest.raises(nb.NestbedError, match=r"no checkpoint in .* can be read"):
        nb.load_run(folder, LinearLeak())
    nb.load_policy(folder / "policy_last.npz", LinearLeak())


@pytest.mark.parametrize("weights", [np.zeros(2, np.float32), np.zeros(1, np.float64)])
def test_a_checkpoint_of_other_sizes_or_types_is_refused(folder, weights):
    for name in ("checkpoint.npz", "checkpoint_before.npz"):
        with np.load(folder / name) as arrays:
            changed = {key: arrays[key] for key in arrays}
        changed["policy/log_std"] = weights
        (folder / name).write_bytes(storage.npz(changed))
    with pytest.raises(nb.NestbedError, match=r"no checkpoint in .* can be read"):
        nb.load_run(folder, LinearLeak())


def test_code_in_a_checkpoint_is_never_run(folder):
    """An array of objects would be unpickled, and open a file: it is refused."""
    mark = folder / "opened"

    class Evil:
        def __reduce__(self):
            return open, (str(mark), "w")

    for name in ("checkpoint.npz", "checkpoint_before.npz"):
        with np.load(folder / name) as arrays:
            changed = {key: arrays[key] for key in arrays}
        changed["best_eig"] = np.array([Evil()], dtype=object)
        with (folder / name).open("wb") as stream:
            np.savez(stream, **changed)
    with pytest.raises(nb.NestbedError, match="can be read"):
        nb.load_run(folder, LinearLeak())
    assert not mark.exists()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run.json", '{"system": {"name": 3, "settings": []}, "key": "abc"}'),
        ("run.json", '{"system": {"name": "LinearLeak", "settings": {}}, "key": [0]}'),
        ("config.toml", "eta = 'x'"),
        ("config.toml", "[policy]\nencoder = 6"),
        ("metrics.jsonl", "5"),
        ("metrics.jsonl", '{"a": 1}'),
    ],
)
def test_files_edited_by_hand_are_explained(folder, name, text):
    (folder / name).write_text(text)
    for load in (lambda: nb.load_run(folder, LinearLeak()), lambda: runs.load_log(folder)):
        with pytest.raises(nb.NestbedError):
            load()


@pytest.mark.parametrize("name", ["run.json", "config.toml", "metrics.jsonl"])
def test_missing_and_torn_files_are_explained(folder, name):
    (folder / name).write_bytes(b"{")
    with pytest.raises(nb.NestbedError, match=r"damaged|not TOML|stopped before its first iteration"):
        nb.load_run(folder, LinearLeak())
    (folder / name).unlink()
    with pytest.raises(nb.NestbedError, match=r"no run in|cannot read the configuration|has no metrics.jsonl"):
        nb.load_run(folder, LinearLeak())


def test_a_torn_line_of_metrics_is_done_again(folder):
    with (folder / "metrics.jsonl").open("a") as stream:
        stream.write('{"iteration": 3, "eig": 1.')
    assert resume(folder, config=dataclasses.replace(SMALL, iterations=4)).iteration == 4
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [0, 1, 2, 3, 4]


def test_no_run_where_there_is_none(tmp_path):
    with pytest.raises(nb.NestbedError, match="there is no run in"):
        nb.load_run(tmp_path / "nowhere")
    with pytest.raises(nb.NestbedError, match="there is no such file"):
        nb.load_policy(tmp_path / "nothing.npz")
    with pytest.raises(nb.NestbedError, match=r"it is a folder, which nb.load_run reads"):
        nb.load_policy(tmp_path)
    (tmp_path / "text.npz").write_text("text")
    with pytest.raises(nb.NestbedError, match="is not a policy that nestbed can read"):
        nb.load_policy(tmp_path / "text.npz")


def test_a_read_only_folder_is_noticed_before_anything_is_computed(tmp_path, monkeypatch):
    def refuse(*arguments, **options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(storage, "_beside", refuse)
    monkeypatch.setattr("nestbed.runs.train._first", lambda *_: pytest.fail("computed in vain"))
    with pytest.raises(nb.NestbedError, match=r"cannot write to the folder .*: Read-only file system"):
        nb.train(jax.random.key(0), LinearLeak(), SMALL, out=tmp_path / "run")


def test_a_full_disk_loses_nothing(folder):
    """A real limit on file sizes: the new checkpoint does not fit, the old one stays whole."""
    whole = nb.train(jax.random.key(0), LinearLeak(), dataclasses.replace(SMALL, iterations=4))
    with limited(folder), pytest.raises(nb.NestbedError, match=r"could not save to .*; what it held before is whole"):
        resume(folder, config=dataclasses.replace(SMALL, iterations=4))
    assert nb.load_run(folder, LinearLeak()).iteration == 2
    assert not list(folder.glob("*.part"))
    again = resume(folder, config=dataclasses.replace(SMALL, iterations=4))
    for one, other in zip(jax.tree.leaves(whole.state), jax.tree.leaves(again.state), strict=True):
        np.testing.assert_array_equal(one, other)


def test_two_processes_do_not_share_a_folder(folder):
    with storage.locked(folder), pytest.raises(nb.NestbedError, match="another process is at work in"):
        resume(folder)


def test_divergence_keeps_the_last_good_policy(tmp_path):
    config = dataclasses.replace(SMALL, iterations=50, learning_rate=1e30, optimiser="sgd")
    with pytest.raises(
        DivergedError, match=r"training diverged in iteration \d+: .*smaller learning_rate \(now 1e\+30\)"
    ) as caught:
        nb.train(jax.random.key(0), LinearLeak(), config, out=tmp_path)
    kept = nb.load_run(tmp_path, LinearLeak())
    assert kept.iteration == caught.value.run.iteration < 50
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(kept.policy))


# The configuration.


def test_assignments():
    pairs = ["eta=0.5", "policy.cell=lstm", "policy.head=[8, 4]", "conditional=false", 'belief="exact"', "sweeps = 2"]
    config = ScoreClimbingConfig().updated(assignments(pairs)).resolve(LinearLeak())
    assert (config.eta, config.belief, config.sweeps, config.conditional) == (0.5, "exact", 2, False)
    assert (config.policy.cell, config.policy.head) == ("lstm", (8, 4))


@pytest.mark.parametrize(
    ("pairs", "told"),
    [
        (["etta=1"], "no key 'etta'; did you mean 'eta'"),
        (["policy.cel=gru"], "no key 'policy.cel'; did you mean 'cell'"),
        (["policy=3"], "it is a table of keys"),
        (["eta"], "write key=value"),
        (["eta.x=1"], "eta is .*, but it must be a number"),
        (["eta=high"], "eta is 'high', but it must be a number"),
        (["iterations=2.5"], "iterations is 2.5, but it must be a whole number"),
        (["iterations=0"], "iterations is 0, but it must be a whole number of at least 1"),
        (["policy.encoder=8"], "encoder is 8, but it must be a list of whole numbers"),
        (["policy.log_std=nan"], "log_std is nan, but it must be a number from -10 to 10"),
        (["policy.encoder=[0]"], "a layer of the policy's encoder is 0"),
        (["policy.cell=gur"], "did you mean 'gru'"),
        (["policy=3", "policy.cell=lstm"], "policy was set to 3 before"),
        (["eta=" + "9" * 400], "but it must be a finite number"),
        (["belief=ibiss"], "did you mean 'ibis'"),
        (["optimiser=adan"], "did you mean 'adam'"),
        (["clip=-1"], "clip is -1, but it must be a finite number of at least 0"),
        (["learning_rate=-1"], "learning_rate is -1, but it must be a finite number of at least 0"),
        (["learning_rate=nan"], "learning_rate is nan, but it must be a finite number of at least 0"),
        (["eta=-1"], "eta is -1, but it must be a finite number of at least 0"),
        (["trajectories=1"], "conditional sweeps need at least 2 trajectories"),
    ],
)
def test_mistakes_in_a_configuration(pairs, told):
    with pytest.raises(nb.NestbedError, match=told):
        ScoreClimbingConfig().updated(assignments(pairs)).resolve(LinearLeak())


def test_lists_are_as_good_as_tuples():
    assert nb.PolicyConfig(encoder=[8, 4]).encoder == (8, 4)


def test_an_edited_file_is_loaded_anew(tmp_path):
    file = tmp_path / "system.py"
    text = (HERE / "tank.py").read_text()
    file.write_text(text)
    assert nb.systems.load(f"{file}:Tank").designs.high == (1.0,)
    file.write_text(text.replace("pump=(0.0, 1.0)", "pump=(0.0, 9.0)"))
    assert nb.systems.load(f"{file}:Tank").designs.high == (9.0,)
    file.write_text(text.replace("def drift", "def drifft"))
    with pytest.raises(nb.NestbedError, match="has no method drift"):
        nb.systems.load(f"{file}:Tank")


def test_mistakes_in_a_call():
    with pytest.raises(nb.NestbedError, match="the configuration is of type dict; give an"):
        nb.train(jax.random.key(0), LinearLeak(), {"eta": 1.0})
    with pytest.raises(nb.NestbedError, match="nothing to resume without a folder"):
        nb.train(jax.random.key(0), LinearLeak(), SMALL, resume=True)
    with pytest.raises(nb.NestbedError, match="give an instance of it, LinearLeak"):
        nb.train(jax.random.key(0), LinearLeak, SMALL)


# The command line.


def test_train_show_and_compare(command, tmp_path):
    out = tmp_path / "run"
    told = command("train", TANK, "--out", out, *FLAGS, "--tensorboard")
    assert told.returncode == 0, told.stderr
    assert "iteration 3/3  EIG" in told.stderr  # line by line, since this is no terminal
    assert "\x1b" not in told.stderr + told.stdout
    assert list((out / "tensorboard").glob("events.out.tfevents.*"))
    told = command("show", out)
    assert told.returncode == 0, told.stderr
    assert "3 of 3 iterations done" in told.stdout
    small = ["--seeds", 2, "--trajectories", 2, "--belief", "exact"]
    told = command("compare", TANK, out, "--baselines", "random", *small)
    assert told.returncode == 0, told.stderr
    assert "run" in told.stdout
    assert "random" in told.stdout


def test_resuming_keeps_settings_and_seeds(command, tmp_path):
    """Nothing but the folder need be told again."""
    first = command("train", TANK, "--out", tmp_path, *FLAGS, "eta=0.3", "--seed", 5, "--quiet")
    assert first.returncode == 0, first.stderr
    again = command("train", TANK, "--out", tmp_path, "--resume", "--set", "iterations=4", "--quiet")
    assert again.returncode == 0, again.stderr
    run = nb.load_run(tmp_path, nb.systems.load(TANK))
    assert (run.iteration, run.config.eta, run.seed) == (4, 0.3, 5)
    other = command("train", TANK, "--out", tmp_path, "--resume", "--seed", 6)
    assert other.returncode == 2
    assert "has another seed or key" in other.stderr


def test_resuming_what_is_not_there_is_refused(command, tmp_path, folder):
    told = command("train", TANK, "--out", tmp_path / "nowhere", "--resume")
    assert told.returncode == 2
    assert "there is nothing to resume in" in told.stderr
    told = command("train", TANK, "--out", folder, "--resume", "--seeds", 2)
    assert told.returncode == 2
    assert "holds a single run" in told.stderr


@pytest.mark.slow
def test_several_seeds(tmp_path):
    told = nestbed("train", TANK, "--out", tmp_path, *FLAGS, "--seeds", 2, "--seed", 3, "--quiet")
    assert told.returncode == 0, told.stderr
    assert told.stderr == ""
    assert {place.name for place in tmp_path.glob("seed_*")} == {"seed_3", "seed_4"}
    assert (tmp_path / "curve.png").exists()
    assert "EIG of the mean policy: " in told.stdout
    assert "Last EIG of 2 trainings" in nestbed("show", tmp_path).stdout
    alone = nestbed("train", TANK, "--out", tmp_path / "alone", *FLAGS, "--seed", 4, "--quiet")
    assert alone.returncode == 0
    bytes_of = [(place / "policy_last.npz").read_bytes() for place in (tmp_path / "seed_4", tmp_path / "alone")]
    assert bytes_of[0] == bytes_of[1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["train", "cart_pol"], "did you mean 'cart_pole'"),
        (["train", f"{HERE / 'tank.py'}:Tenk"], "has no system 'Tenk'; did you mean 'Tank'"),
        (["train", "nowhere.py:Tank"], "there is no file nowhere.py"),
        (["train", TANK, "--method", "score_climbing", "--set", "etta=1"], "no key 'etta'; did you mean 'eta'"),
        (["train", TANK, "--set", "eta=1"], "eta is a setting of score_climbing, but the method is pathwise; add --me"),
        (["train", TANK, "--config", "nowhere.toml"], "cannot read the configuration nowhere.toml"),
        (["train", TANK, "--seeds", "0"], "seeds is 0"),
        (["train", TANK, "--seed", "-1"], "the seed is -1"),
        (["show", "nowhere"], "there is no run in nowhere"),
        (["compare", TANK, "nowhere"], "there is no run in nowhere"),
    ],
)
def test_mistakes_on_the_command_line(command, arguments, told):
    result = command(*arguments)
    assert result.returncode == 2
    assert told in result.stderr
    assert "Traceback" not in result.stderr


def test_a_file_that_does_not_run_is_explained(command, tmp_path):
    file = tmp_path / "broken.py"
    file.write_text("import nestbed as nb\nx = 1 / 0\n")
    result = command("train", f"{file}:Tank")
    assert result.returncode == 2
    assert "does not run: ZeroDivisionError: division by zero (line 2 of broken.py)" in result.stderr


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("dist.Normal(1.0, 0.3)", "dist.Normal(1.0, -0.3, validate_args=True)", "does not run: ValueError"),
        ("return theta.pump", "return jnp.sin('a') + theta.pump", "cannot be made: TypeError"),
        ("return theta.pump", "return missing + theta.pump", "cannot be made: NameError"),
        ("step, diffusion", "step diffusion", "does not run: SyntaxError"),
    ],
)
def test_errors_of_a_file_point_to_its_own_line(tmp_path, before, after, told):
    """Also where a library raised them."""
    file = tmp_path / "system.py"
    text = (HERE / "tank.py").read_text().replace("import numpyro", "import jax.numpy as jnp\nimport numpyro", 1)
    line = text[: text.index(before)].count("\n") + 1
    file.write_text(text.replace(before, after))
    with pytest.raises(
        nb.NestbedError, match=rf"{told}: [^\n]* \((line {line} of system.py|system.py, line {line})\)\.$"
    ):
        nb.systems.load(f"{file}:Tank")


def test_config_prints_what_train_reads(command, tmp_path):
    file = tmp_path / "my.toml"
    system = nb.systems.load("cart_pole")
    for flags, config in (([], PathwiseConfig()), (["--method", "score_climbing"], ScoreClimbingConfig())):
        file.write_text(command("config", "cart_pole", *flags).stdout)
        assert config.updated(read(file)) == config.resolve(system)


def start(out, iterations=150):
    out.mkdir(exist_ok=True)
    flags = [*FLAGS, f"iterations={iterations}", "--out", str(out), "--resume", "--quiet"]
    return running(*NESTBED, "train", TANK, *flags, stdout=subprocess.DEVNULL)


def finish(out):
    with start(out) as process:
        _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, told


def wait_for(file, process):
    while not file.exists() and process.poll() is None:
        time.sleep(0.01)


def test_ctrl_c_says_how_to_go_on(tmp_path):
    out = tmp_path / "run"
    with start(out, iterations=100_000) as process:
        wait_for(out / "checkpoint.npz", process)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert "Traceback" not in told
    assert f"nestbed train {TANK}" in told
    assert "--resume" in told


@pytest.mark.slow
def test_a_child_ends_with_its_test_even_where_ctrl_c_is_ignored(tmp_path):
    """As under nohup, where a test that failed would leave a training behind."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with contextlib.suppress(ZeroDivisionError), start(tmp_path / "left", iterations=100_000) as process:
            wait_for(tmp_path / "left" / "run.json", process)
            assert alive(tmp_path / "left") == [process.pid]
            raise ZeroDivisionError
        assert alive(tmp_path / "left") == []
        with start(tmp_path / "stopped", iterations=100_000) as process:
            wait_for(tmp_path / "stopped" / "checkpoint.npz", process)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
    finally:
        signal.signal(signal.SIGINT, before)


def kill_and_resume(times, tmp_path):
    """Kill training at random moments, resume it each time, and compare the end with a run never killed."""
    out, draw = tmp_path / "killed", random.Random(0)
    landed = 0
    for _ in range(times):
        with start(out) as process:
            if draw.random() < 0.8:  # else anywhere, imports and compilation included
                wait_for(out / "metrics.jsonl", process)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(draw.uniform(0.0, 2.0))
            landed += process.poll() is None
            process.kill()
        if (out / "checkpoint.npz").exists() or (out / "checkpoint_before.npz").exists():
            nb.load_run(out, nb.systems.load(TANK))
    assert landed >= times // 2
    finish(out)
    finish(tmp_path / "whole")
    for name in ("checkpoint.npz", "policy_last.npz", "policy_best.npz"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


@pytest.mark.slow
def test_killed_and_resumed_twenty_times(tmp_path):
    kill_and_resume(20, tmp_path)


def test_end_stops_and_odd_settings_are_compared():
    class Stops(Leak):
        stiffness, parts, odd = 5.0, {1: 0.5, 2: 0.7}, {"hip", "knee"}

        def drift(self, x, u, theta):
            stop = jnp.where(jnp.abs(x.level) > 4.0, jitted(self.stiffness) * x.level, 0.0)
            return -theta.rate * x.level + u.flow - stop + 0.0 * (self.parts[1] + len(self.odd))

    def jitted(value):
        return jax.jit(lambda: BEHIND["stop"] * value)()

    stored = json.loads(json.dumps(fingerprint.describe(Stops())))
    assert fingerprint.same(stored, Stops())
    BEHIND["stop"] = 100.0
    assert not fingerprint.same(stored, Stops())
    BEHIND["stop"] = 1.0


BEHIND = {"stop": 1.0}


def test_ctrl_c_says_how_to_go_on_whatever_a_library_makes_of_it(tmp_path, monkeypatch, capsys):
    from nestbed.faces.cli import train as command

    def broken_off(*_):
        monkeypatch.setattr(interrupts, "_asked", True)
        raise RuntimeError("tracing failed")

    monkeypatch.setattr(command, "_train", broken_off)
    with pytest.raises(SystemExit):
        command.train("linear_pendulum", out=tmp_path / "run", quiet=True)
    assert "--resume" in capsys.readouterr().err
