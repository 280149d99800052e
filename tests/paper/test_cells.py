"""The plan has every number of the paper, and each cell hangs on all that decides it."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nestbed import policies, systems
from nestbed.numerics.registry import Entry
from nestbed.runs import sources
from nestbed.runs.run import fresh
from nestbed.systems import SYSTEMS as BUILT_IN
from nestbed.training.registry import trainer
from paper import cells, numbers, published
from paper.cells import plan
from paper.studies import FULL, OTHERS, PUBLISHED, QUICK, SYSTEMS


def test_the_plan_has_every_number_of_the_paper(full_plan):
    names = {cell.name for cell in full_plan}
    assert len(names) == len(full_plan)
    for metric in ("eig", "spce"):
        for system, policy in published.policy_table(metric):
            found = [c for c in full_plan if (c.kind, c.system, c.policy) == ("estimate", system, policy)]
            assert len(found) == (5 if policy.startswith("io_smc2") else 1)
            given = [cell.settings["given"] for cell in found]
            assert all(each["contrastive"] == 10**6 and each["seeds"] == 25 for each in given)
    counts = {c.settings["given"]["particles"] for c in full_plan if c.kind == "particles"}
    assert counts == set(published.particle_sweep())
    assert {c.system for c in full_plan if c.kind == "trajectory"} == set(SYSTEMS) - {"linear_pendulum"}
    assert {c.policy for c in full_plan if c.kind == "gain"} == {"random", "prbs", "io_smc2", "io_smc2_exact"}
    assert {c.policy for c in full_plan} == {*PUBLISHED, *OTHERS}


def test_what_a_cell_needs_comes_before_it(full_plan):
    for i, cell in enumerate(full_plan):
        if cell.seed is not None and cell.kind != "training":
            before = {c.training for c in full_plan[:i] if c.kind == "training"}
            assert cell.training in before


def test_more_trainings_only_add_cells():
    few, many = (plan(("double_link",), FULL, count) for count in (1, 2))
    kept = {cell.name: cell.settings for cell in many}
    assert all(kept[cell.name] == cell.settings for cell in few)


def test_a_fifth_built_in_system_changes_nothing(full_plan):
    with BUILT_IN.having(Entry("fifth", "toys:Leak", "none of the paper's")):
        assert "fifth" in BUILT_IN
        assert plan(tuple(SYSTEMS), FULL, 5) == full_plan


def test_settings_are_those_of_the_paper(full_plan):
    assert FULL.config("linear_pendulum", "io_smc2_exact").belief == "exact"
    assert FULL.config("linear_pendulum", "io_smc2").belief == "ibis"
    by = {cell.name: cell for cell in full_plan}
    assert by["cart_pole/io_smc2/seed_0/particles_64"].seed == 0
    system = systems.load("cart_pole")
    myopic = [by[f"cart_pole/{name}/estimate"] for name in ("myopic", "myopic_no_slew")]
    slews = [numbers.policy(cell, system, Path()).potential.slew_penalty for cell in myopic]
    assert [float(slew) for slew in slews] == [0.1, 0.0]


def test_cells_hang_on_their_system(full_plan, monkeypatch):
    cart = systems.load("cart_pole")
    heavier = type("CartPole", (type(cart),), {"defaults": dataclasses.replace(cart.defaults, eta=0.5)})()
    monkeypatch.setattr(cells.systems, "load", lambda name: heavier)
    by = {cell.name: cell.settings for cell in full_plan}
    assert all(cell.settings["system"] != by[cell.name]["system"] for cell in plan(("cart_pole",), FULL, 1))


@pytest.fixture
def again(full_plan, tmp_path, monkeypatch):
    """Return how to change some sources and learn which cells would be computed again, of all there are."""

    def computed(change, *modules):
        copies = {}
        for number, file in enumerate(sources.HOME / module for module in modules):
            copies[file] = tmp_path / f"{number}_{file.name}"
            copies[file].write_text(change(file.read_text()))
        read = sources._read
        monkeypatch.setattr(sources, "_read", lambda file, name: read(copies.get(file, file), name))
        now = {cell.name: cell.settings for cell in full_plan}
        return {cell.name for cell in plan(tuple(SYSTEMS), FULL, 5) if cell.settings != now[cell.name]}, set(now)

    return computed


def spoiled(text):
    return re.sub(r"\breturn\b", "return None;", text)


def documented(text):
    return text.replace('"""\n', ' Anew."""\n\n# a comment\n')


@pytest.mark.parametrize(
    "module",
    [
        "belief/base.py",
        "belief/exact.py",
        "belief/ibis.py",
        "belief/learning.py",
        "belief/making.py",
        "likelihood/history.py",
        "likelihood/observed.py",
        "model/system.py",
        "numerics/jax_settings.py",
        "numerics/resampling.py",
        "policies/recurrent.py",
    ],
)
def test_every_cell_of_changed_sources_is_computed_again(again, module):
    """A changed gain, filter or likelihood leaves no old number standing."""
    found, every = again(spoiled, module)
    assert found == every


@pytest.mark.parametrize(
    ("module", "hangs"),
    [
        ("policies/prbs.py", lambda name: "seed_" not in name),
        ("training/gradient.py", lambda name: "seed_" in name),
        ("training/score_climbing.py", lambda name: "seed_" in name),
        ("evaluation/comparison.py", lambda name: not name.endswith("/training")),
        ("systems/cart_pole.py", lambda name: name.startswith("cart_pole/")),
    ],
)
def test_only_cells_that_hang_on_a_source_are_computed_again(again, module, hangs):
    found, every = again(spoiled, module)
    assert found == {name for name in every if hangs(name)}


def test_comments_and_docstrings_change_no_cell(again):
    assert again(documented, "belief/ibis.py", "training/score_climbing.py", "policies/prbs.py")[0] == set()


def test_faces_storage_and_lists_of_systems_change_no_cell(again):
    shown = [file.relative_to(sources.HOME) for file in (sources.HOME / "faces").rglob("*.py")]
    kept = ("runs/folder.py", "numerics/storage.py", "systems/registry.py", "systems/__init__.py")
    assert again(lambda text: "", *shown, *kept)[0] == set()


def test_every_module_is_behind_some_cell_or_known_to_be_behind_none():
    """A new module must not slip out of the digests."""
    every = {
        ".".join(("nestbed", *file.relative_to(sources.HOME).with_suffix("").parts)).removesuffix(".__init__")
        for file in sources.HOME.rglob("*.py")
    }
    loaded = [systems.load(name) for name in SYSTEMS]
    roots = {root for system in loaded for trained in (True, False) for root in cells._roots(system, True, trained)}
    left = every - set(sources.modules(*roots)) - sources.NUMBERLESS
    # of no table of the paper
    floors = (
        "nestbed.faces",
        "nestbed.live",
        "nestbed.exports",
        "nestbed.planning",
        "nestbed.rigs",
    )  # of no table of the paper
    shown = {name for name in left if name.startswith(floors)}
    assert left - shown == {
        *("nestbed.evaluation.posterior", "nestbed.evaluation.records", "nestbed.training.toml"),
        *("nestbed.evaluation.explaining", "nestbed.evaluation.inferring", "nestbed.numerics.combinations"),
        *("nestbed.training.pathwise", "nestbed.training.pathwise_config", "nestbed.information.smoothness"),
        *("nestbed.training.ascent", "nestbed.training.verdict"),
        *("nestbed.systems.heater", "nestbed.systems.loading", "nestbed.systems.registry"),
        *("nestbed.evaluation.inference_data", "nestbed.evaluation.rounding", "nestbed.numerics.tails"),
    }


def test_cells_hang_on_how_they_are_computed(full_plan, tmp_path, monkeypatch):
    copy = tmp_path / "numbers.py"
    shutil.copy(cells.NUMBERS, copy)
    monkeypatch.setattr(cells, "NUMBERS", copy)
    assert plan(tuple(SYSTEMS), FULL, 5) == full_plan
    other = tmp_path / "other" / "numbers.py"
    other.parent.mkdir()
    other.write_text(copy.read_text().replace("SEED = 2024", "SEED = 2025"))
    monkeypatch.setattr(cells, "NUMBERS", other)
    assert all(a.settings != b.settings for a, b in zip(plan(tuple(SYSTEMS), FULL, 5), full_plan, strict=True))


@pytest.mark.parametrize("begun", ["0123456789abcdef", None])
def test_a_training_of_other_sources_is_thrown_away(full_plan, tmp_path, monkeypatch, begun):
    """And only that one; a training of these sources goes on."""
    (cell, *_) = [cell for cell in full_plan if cell.policy == "io_smc2_exact"]
    system, place = systems.load(cell.system), tmp_path / cell.training
    config = FULL.config(cell.system, cell.policy)
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), trainer(system, config).template())
    row = {"iteration": 0, "eig": 1.0, "eig_error": 0.1, "seconds": 1.0}
    fresh(jax.random.key(0), system, config, blank, row).save(place)
    beside = place.with_name("seed_1")
    beside.mkdir()
    asked = []
    monkeypatch.setattr(numbers, "train", lambda key, system, config, **where: asked.append((config, where)))
    numbers.trained(cell, system, tmp_path)
    assert asked == [(config, {"out": place, "resume": True})]
    assert (place / "run.json").exists()
    about = json.loads((place / "run.json").read_text())
    (place / "run.json").write_text(json.dumps({**about, "sources": begun}))
    numbers.trained(cell, system, tmp_path)
    assert list(place.parent.iterdir()) == [beside]


@pytest.mark.slow
def test_figures_of_the_cart_pole_get_their_numbers(tmp_path, monkeypatch):
    """Its trajectory and its study of particles, with a policy that needs no training."""
    monkeypatch.setattr(numbers, "policy", lambda cell, system, folder: policies.Random(system))
    scale = dataclasses.replace(QUICK, estimates=2, particles=(16,))
    record, study = (
        next(numbers.compute(cell, tmp_path) for cell in plan(("cart_pole",), scale, 1) if cell.kind == kind)
        for kind in ("trajectory", "particles")
    )
    assert np.shape(record["observations"]) == (51, 4)
    assert np.shape(record["designs"]) == (50, 1)
    for found in study.values():
        assert set(found) == {"mean", "sd", "standard_error"}
        assert np.isfinite([*found.values()]).all()
    assert study["spce"]["mean"] <= np.log(17) + 1e-9
