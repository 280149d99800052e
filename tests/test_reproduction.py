"""The reproduction of the paper: cells are kept, tables are right, the report needs nothing else."""

import csv
import dataclasses
import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from paper import cells, published, report, tables
from paper.reproduce import Done, reproduce

import nestbed as nb
from nestbed.faces import terminal
from nestbed.runs import sources
from toys import TRAINING

SYSTEMS = ("linear_pendulum", "nonlinear_pendulum", "cart_pole", "double_link")


def counted(names, calls, settings=None):
    """Return cells that note when they are computed."""

    def cell(name):
        def compute(folder):
            calls.append(name)
            return {"value": len(name)}

        return cells.Cell(name, "score", "cart_pole", "random", 1.0, settings or {"size": 1}, compute)

    return [cell(name) for name in names]


def test_an_interrupted_reproduction_goes_on_without_repeating_a_cell(tmp_path):
    calls = []
    work = counted(["a/score", "b/score", "c/score"], calls)

    def stop(folder):
        raise KeyboardInterrupt

    cut = [work[0], dataclasses.replace(work[1], compute=stop), work[2]]
    with pytest.raises(KeyboardInterrupt):
        reproduce(cut, tmp_path, cells.FULL)
    assert calls == ["a/score"]
    told = []
    done = reproduce(work, tmp_path, cells.FULL, lambda cell, found: told.append((cell.name, found)))
    assert calls == ["a/score", "b/score", "c/score"]
    assert [d.fresh for d in done] == [False, True, True]
    assert [d.result["value"] for d in done] == [7, 7, 7]
    assert [name for name, found in told if found is None] == ["b/score", "c/score"]
    assert all(not d.fresh for d in reproduce(work, tmp_path, cells.FULL))


def test_a_cell_of_other_settings_or_damaged_is_computed_again(tmp_path):
    calls = []
    reproduce(counted(["a", "b"], calls), tmp_path, cells.FULL)
    (tmp_path / "cells" / "b.json").write_text('{"settings": {"size": 1}, "res')
    reproduce(counted(["a", "b"], calls), tmp_path, cells.FULL)
    assert calls == ["a", "b", "b"]
    reproduce(counted(["a", "b"], calls, {"size": 2}), tmp_path, cells.FULL)
    assert calls == ["a", "b", "b", "a", "b"]


def test_a_training_whose_folder_is_gone_is_done_again(tmp_path):
    calls = []
    (cell,) = counted(["a"], calls)
    cell = dataclasses.replace(cell, keeps=Path("trainings/a"))
    for _ in range(2):
        reproduce([cell], tmp_path, cells.FULL)
    assert calls == ["a", "a"]
    (tmp_path / "trainings" / "a").mkdir(parents=True)
    for name in ("run.json", "metrics.jsonl"):
        (tmp_path / "trainings" / "a" / name).write_text("{}")
    reproduce([cell], tmp_path, cells.FULL)
    assert calls == ["a", "a"]


def test_a_resumed_training_counts_all_its_seconds(tmp_path):
    (cell,) = counted(["a"], [])
    cell = dataclasses.replace(cell, compute=lambda folder: {"value": 1, "training_seconds": 100.0})
    (done,) = reproduce([cell], tmp_path, cells.FULL)
    assert done.seconds == 100.0
    assert done.result == {"value": 1}


def test_one_process_at_a_time(tmp_path):
    from nestbed.numerics import storage

    with storage.locked(tmp_path), pytest.raises(nb.NestbedError, match="another process"):
        reproduce(counted(["a"], []), tmp_path, cells.FULL)


def test_cells_hang_on_all_that_decides_their_numbers(full_plan):
    by = {cell.name: cell for cell in full_plan}
    assert cells.config("linear_pendulum", "io_smc2_exact", cells.FULL).belief == "exact"
    assert cells.config("linear_pendulum", "io_smc2", cells.FULL).belief == "ibis"
    assert by["cart_pole/io_smc2/particles_64"].settings["seed"] == 0
    cart = nb.systems.load("cart_pole")
    slews = [
        cells._policy(None, "cart_pole", cart, name, None, cells.FULL).potential.slew_penalty
        for name in ("myopic", "myopic_no_slew")
    ]
    assert [float(slew) for slew in slews] == [0.1, 0.0]
    heavier = type("CartPole", (type(cart),), {"defaults": dataclasses.replace(cart.defaults, eta=0.5)})()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells.systems, "load", lambda name: heavier)
        (changed,) = [c for c in cells.plan(("cart_pole",), cells.FULL, 1) if c.name == "cart_pole/random/score"]
    assert changed.settings["system"] != by[changed.name].settings["system"]


def change(home, module, before, after):
    file = home / module
    assert before in file.read_text()
    file.write_text(file.read_text().replace(before, after))


def changed_cells(home, patch):
    """Return the names of the cells that would be computed again if these were the sources, by kind."""
    now = {cell.name: cell.settings for cell in cells.plan(SYSTEMS, cells.FULL, 1)}
    patch.setattr(sources, "HOME", home)
    plan = cells.plan(SYSTEMS, cells.FULL, 1)
    return {cell.name for cell in plan if cell.settings != now[cell.name]}, {cell.name for cell in plan}


@pytest.fixture
def home(tmp_path):
    return Path(shutil.copytree(sources.HOME, tmp_path / "nestbed", ignore=shutil.ignore_patterns("__pycache__")))


@pytest.mark.parametrize(
    ("module", "before", "after"),
    [
        ("belief/base.py", "        return ", "        return 2.0 * "),
        ("smc/sweep.py", "jnp.zeros", "jnp.ones"),
        ("evaluation/comparison.py", "float(values.mean())", "float(values.max())"),
        ("belief/__init__.py", "particles", "particles "),
        ("reproduction/cells.py", "SEED = 2024", "SEED = 2024 + 0"),
    ],
)
def test_cells_of_changed_sources_are_computed_again(home, monkeypatch, module, before, after):
    """A changed gain, filter or score leaves no old number standing; a blank more changes nothing."""
    change(home, module, before, after)
    again, every = changed_cells(home, monkeypatch)
    scores = {name for name in every if name.endswith("/score")}
    assert not again if after.strip() == before else scores <= again


def test_only_cells_that_hang_on_a_source_are_computed_again(home, monkeypatch):
    change(home, "policies/prbs.py", "return ", "return 1 * ")
    again, every = changed_cells(home, monkeypatch)
    assert again == {name for name in every if "idad" not in name and "io_smc2" not in name}


def test_a_system_has_sources_of_its_own(home, monkeypatch):
    change(home, "systems/cart_pole.py", "return ", "return 1 * ")
    again, every = changed_cells(home, monkeypatch)
    assert again == {name for name in every if name.startswith("cart_pole/")}


def test_comments_docstrings_and_faces_change_no_cell(home, monkeypatch):
    for module in ("belief/ibis.py", "training/score_climbing.py", "policies/prbs.py"):
        change(home, module, '"""\n', ' Anew."""\n\n# a comment\n')
    change(home, "reproduction/report.py", "return ", "return 1 * ")
    for module in ("cli.py", "terminal.py", "figures.py", "runs.py", "reproduction/pictures.py"):
        (home / module).write_text("")
    assert changed_cells(home, monkeypatch)[0] == set()


def test_a_training_of_other_sources_is_thrown_away(tmp_path):
    """And only that one; a training of these sources goes on."""
    scale = dataclasses.replace(cells.QUICK, training=dataclasses.replace(TRAINING, iterations=1))
    system = nb.systems.load("linear_pendulum")
    asked = (tmp_path, "linear_pendulum", system, "io_smc2_exact", 0, scale)
    cells._trained(*asked)
    place = tmp_path / cells.training_folder(*asked[1:2], "io_smc2_exact", 0)
    for outside in (place / "mark", place.with_name("seed_1") / "mark"):
        outside.parent.mkdir(exist_ok=True)
        outside.write_text("")
    cells._trained(*asked)
    assert (place / "mark").exists()
    about = json.loads((place / "run.json").read_text())
    for stale in ({**about, "sources": "0123456789abcdef"}, {k: v for k, v in about.items() if k != "sources"}):
        (place / "mark").write_text("")
        (place / "run.json").write_text(json.dumps(stale))
        cells._trained(*asked)
        assert not (place / "mark").exists()
        assert json.loads((place / "run.json").read_text()) == about
    assert sorted(found.name for found in place.parent.iterdir()) == ["seed_0", "seed_1"]


def test_a_folder_is_of_one_scale(tmp_path):
    reproduce(counted(["a"], []), tmp_path, cells.QUICK)
    with pytest.raises(nb.NestbedError, match=r"holds a quick reproduction; choose another --out for a full one"):
        reproduce(counted(["a"], []), tmp_path, cells.FULL)
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(nb.NestbedError, match=r"plan.json is damaged"):
        reproduce(counted(["a"], []), tmp_path, cells.QUICK)


def test_a_full_disk_keeps_what_was_there(tmp_path, monkeypatch):
    from nestbed.numerics import storage

    calls = []
    reproduce(counted(["a"], calls), tmp_path, cells.FULL)

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(storage, "write", full)
        with pytest.raises(nb.NestbedError, match=r"could not save to .*: No space left on device"):
            reproduce(counted(["a", "b"], calls), tmp_path, cells.FULL)
    reproduce(counted(["a", "b"], calls), tmp_path, cells.FULL)
    assert calls == ["a", "b", "b"]


@pytest.fixture(scope="module")
def full_plan():
    return cells.plan(SYSTEMS, cells.FULL, 5)


def test_the_plan_has_every_number_of_the_paper(full_plan):
    names = {cell.name for cell in full_plan}
    assert len(names) == len(full_plan)
    for metric in ("eig", "spce"):
        for system, policy in published.policy_table(metric):
            scored = [c for c in full_plan if (c.kind, c.system, c.policy) == ("score", system, policy)]
            assert len(scored) == (5 if policy.startswith("io_smc2") else 1)
            assert all(c.settings["contrastive"] == 10**6 and c.settings["seeds"] == 25 for c in scored)
    assert {c.settings["particles"] for c in full_plan if c.kind == "particles"} == set(published.particle_sweep())
    assert {c.system for c in full_plan if c.kind == "trajectory"} == set(SYSTEMS[1:])
    assert {c.policy for c in full_plan if c.kind == "gain"} == {"random", "prbs", "io_smc2", "io_smc2_exact"}


def test_what_a_cell_needs_comes_before_it(full_plan):
    for i, cell in enumerate(full_plan):
        if cell.seed is not None and cell.kind != "training":
            before = {c.name for c in full_plan[:i]}
            assert f"{cell.system}/{cell.policy}/seed_{cell.seed}/training" in before


def test_more_trainings_only_add_cells():
    few, many = (cells.plan(("double_link",), cells.FULL, count) for count in (1, 2))
    kept = {cell.name: cell.settings for cell in many}
    assert all(kept[cell.name] == cell.settings for cell in few)


def invented(plan, shift=0.0):
    """Return results that agree with the paper but for a shift in its sd."""
    done = []
    for cell in plan:
        result = {"eig": 1.0, "eig_error": 0.1}
        if cell.kind == "score":
            found = [
                published.policy_table(metric).get((cell.system, cell.policy), (9.0, 0.5)) for metric in ("eig", "spce")
            ]
            spreads = [(mean + shift * sd, sd, sd / 5) for mean, sd in [*found, (99.0, 1.0)]]
            if cell.seed is not None:
                spreads = [(mean + 0.1 * (cell.seed - 2), sd, error) for mean, sd, error in spreads]
            fields = ("mean", "sd", "standard_error")
            metrics = zip(("eig", "spce", "snmc"), spreads, strict=True)
            result = {metric: dict(zip(fields, spread, strict=True)) for metric, spread in metrics}
        elif cell.kind == "gain":
            shifted = np.linspace(0.05, 2.5, 50) + 0.1 * ((cell.seed or 2) - 2)
            result = {"mean": shifted.tolist(), "sd": [0.1] * 50}
        elif cell.kind == "trajectory":
            system = nb.systems.load(cell.system)
            shapes = (51, len(system.state_names)), (50, len(system.design_names))
            result = {"theta": [], "states": np.zeros(shapes[0]).tolist(), "designs": np.zeros(shapes[1]).tolist()}
        elif cell.kind == "particles":
            result = {"eig": {"mean": 20.0, "sd": 0.5}, "spce": {"mean": 5.0, "sd": 0.0}}
        done.append(Done(cell, result, 2.0, fresh=True, versions={"jax": "0.10.2"}))
    return done


def test_differences_are_in_combined_standard_errors(full_plan):
    """A shift by one published sd is 5 errors of the paper's mean, 5 / √2 of both, less for the rounding."""
    rows = {(r.system, r.policy, r.metric): r for r in tables.scores(invented(full_plan, shift=1.0))}
    row = rows["linear_pendulum", "random", "eig"]
    assert row.mean == pytest.approx(1.37 + 0.08)
    assert row.difference == pytest.approx(0.08 / math.sqrt(2 * (0.08 / 5) ** 2 + 0.01**2 / 12))
    assert row.difference_trained is None
    trained = rows["linear_pendulum", "io_smc2", "eig"]
    assert (trained.policies, trained.lowest, trained.highest) == pytest.approx((5, 3.68 - 0.2, 3.68 + 0.2))
    assert trained.sd == pytest.approx(np.std([-0.2, -0.1, 0, 0.1, 0.2], ddof=1))
    spread = published.training_curve("linear_pendulum", "ibis")[-1, 2]
    parts = (trained.sd / math.sqrt(5), 0.15 / 5, 0.01 / math.sqrt(12))
    assert trained.difference == pytest.approx(0.15 / math.hypot(*parts))
    assert trained.difference_trained == pytest.approx(0.15 / math.hypot(*parts, spread))
    assert rows["cart_pole", "chirp", "eig"].difference is None
    assert rows["cart_pole", "myopic_no_slew", "eig"].paper_mean == 16.53
    assert rows["cart_pole", "random", "snmc"].difference is None


def test_the_verdict_counts_what_is_off(full_plan):
    fine, off = (tables.verdict(tables.scores(invented(full_plan, shift))) for shift in (0.0, 1.0))
    assert (fine.cells, fine.beyond_two, fine.beyond_three) == (24, [], [])
    assert len(off.beyond_three) > 20
    low = tables.verdict(tables.scores(invented(full_plan, shift=-2.0)))
    assert fine.below == off.below == []
    assert (low.trained, len(low.below)) == (10, 9)  # the cart-pole's saturated bound has no spread to shift by


def test_quick_scores_are_not_compared_where_their_settings_differ():
    rows = tables.scores(invented(cells.plan(SYSTEMS[:1], cells.QUICK, 1)))
    compared = {(row.policy, row.metric) for row in rows if row.difference is not None}
    assert compared == {("random", "eig"), ("prbs", "eig"), ("myopic", "eig")}


def test_gains_of_trained_policies_are_pooled(full_plan):
    found = {gain.policy: gain for gain in tables.gains(invented(full_plan))}
    assert found["io_smc2"].policies == 5
    assert found["random"].policies == 0
    np.testing.assert_allclose(found["prbs"].paper[0, :2], (1, 0.5 * np.log(1.5)), rtol=1e-4)
    np.testing.assert_allclose(found["random"].sd, 0.1)
    between = np.var([0.0, -0.1, 0.0, 0.1, 0.2])  # seed 0 counts as 2 here
    np.testing.assert_allclose(found["io_smc2"].sd, np.sqrt(0.1**2 + between))


@pytest.fixture(scope="module")
def page(full_plan, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "_logs", lambda *arguments: [])
        return report.write(invented(full_plan, shift=1.0), cells.FULL, folder)


def test_the_report_needs_nothing_else(page):
    text = page.read_text()
    assert not re.findall(r'(?:src|href)="(?!data:image/png;base64,|#)', text)
    assert "http" not in re.sub(r"base64,[^\"]*", "", text)
    assert "<script" not in text
    for word in (
        "Linear pendulum",
        "Double link",
        "IO-SMC²",
        "Greedy",
        "beyond three",
        "without the penalty it gains",
        "What it cost",
        "jax 0.",
    ):
        assert word in text


def test_every_number_is_in_the_csv_files_too(page):
    with (page.parent / "policy_tables.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    held = {(row["system"], row["policy"], row["metric"]): row for row in rows}
    for metric in ("eig", "spce"):
        for place, (mean, sd) in published.policy_table(metric).items():
            assert float(held[*place, metric]["paper_mean"]) == mean
            assert float(held[*place, metric]["paper_sd"]) == sd
    for name, lines in (("information_gain_linear_pendulum", 200), ("cart_pole_particle_sweep", 8), ("cells", 111)):
        assert len((page.parent / f"{name}.csv").read_text().splitlines()) == lines + 1
    markdown = (page.parent / "report.md").read_text()
    pictures = re.findall(r"!\[[^]]*\]\(([^)]*)\)", markdown)
    assert len(pictures) == 4 + 1 + 3 + 1  # without learning curves here
    assert all((page.parent / picture).read_bytes()[1:4] == b"PNG" for picture in pictures)


def test_the_terminal_tells_the_cells_the_time_left_and_the_result(full_plan, capsys):
    done = invented(full_plan, shift=1.0)
    done[1] = done[1]._replace(fresh=False)
    with terminal.Reproducing(full_plan) as watch:
        for each in done:
            watch(each.cell, None)
            watch(each.cell, each)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "cell 1/111  linear_pendulum/io_smc2/seed_0/training …"
    assert lines[1].startswith("cell 1/111  linear_pendulum/io_smc2/seed_0/training  2.0 s  ")
    assert "kept from before" in lines[3]
    assert lines[-1].endswith("0 s left")
    terminal.reproduced(tables.scores(done), report.NAMES)
    told = " ".join(capsys.readouterr().out.split())
    assert "A quick reproduction" not in told
    assert "Random 1.45 ± 0.08 1.37 +3.5 1.79 ± 0.35 1.44 +3.5" in told


def test_published_copies_are_read_as_they_are():
    assert published.particle_sweep()[1024]["eig_mean"] == 21.29
    assert published.information_gain("greedy") is None
    np.testing.assert_array_equal(published.information_gain("random")[:, 0], np.arange(1, 47, 5))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"systems": ["pendulum"]}, r"the paper has no system 'pendulum'; did you mean"),
        ({"systems": ["all"], "seeds": 0}, "seeds is 0"),
    ],
)
def test_wrong_arguments_of_reproduce_get_a_sentence(arguments, told):
    from nestbed.faces import cli

    with pytest.raises(nb.NestbedError, match=told):
        cli.reproduce(**arguments)


@pytest.mark.slow
def test_a_quick_reproduction_of_one_system_ends_in_a_report(tmp_path, capsys):
    from nestbed.faces import cli

    cli.reproduce(["linear_pendulum"], quick=True, out=tmp_path)
    stored = json.loads((tmp_path / "cells" / "linear_pendulum" / "prbs" / "score.json").read_text())
    assert stored["result"]["eig"]["mean"] == pytest.approx(2.26, abs=5 * stored["result"]["eig"]["standard_error"])
    assert (tmp_path / "figures" / "linear_pendulum_training.png").exists()
    cli.reproduce(["linear_pendulum"], quick=True, out=tmp_path)
    assert capsys.readouterr().err.count("kept from before") == 13
