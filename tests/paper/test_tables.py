"""Numbers beside the published ones: differences, verdicts, and which are compared at all."""

import dataclasses
import math

import numpy as np
import pytest

import nestbed as nb
from made_up import invented
from nestbed.runs import fingerprint
from nestbed.runs.run import Log
from paper import published, tables
from paper.cells import plan
from paper.reproduce import reproduce
from paper.studies import FULL, QUICK, SYSTEMS


def test_differences_are_in_combined_standard_errors(full_plan):
    """A shift by one published sd is 5 errors of the paper's mean, 5 / √2 of both, less for the rounding."""
    rows = {(r.system, r.policy, r.metric): r for r in tables.estimates(invented(full_plan, shift=1.0))}
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
    fine, off, low = (tables.verdict(tables.estimates(invented(full_plan, shift))) for shift in (0.0, 1.0, -2.0))
    assert (fine.cells, fine.beyond_two, fine.beyond_three) == (24, [], [])
    assert len(off.beyond_three) > 20
    assert fine.below == off.below == []
    assert (low.trained, len(low.below)) == (10, 9)  # the cart-pole's saturated bound has no spread to shift by


def test_quick_estimates_are_not_compared_where_their_settings_differ():
    rows = tables.estimates(invented(plan(("linear_pendulum",), QUICK, 1)))
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


def test_the_papers_learning_curve_is_for_its_own_system_and_settings():
    system = nb.systems.load("linear_pendulum")
    own = Log(FULL.config("linear_pendulum", "io_smc2_exact"), [], {"system": fingerprint.describe(system)})
    assert tables.learning_curve(own).shape == (25, 3)
    for config in (QUICK.config("linear_pendulum", "io_smc2_exact"), FULL.config("linear_pendulum", "idad")):
        assert tables.learning_curve(dataclasses.replace(own, config=config)) is None
    for changed in ({"name": "cart_pole"}, {"name": "pendulum"}, {"settings": {}}):
        about = {"system": {**own.about["system"], **changed}}
        assert tables.learning_curve(dataclasses.replace(own, about=about)) is None


def test_published_copies_are_read_as_they_are():
    assert published.particle_sweep()[1024]["eig_mean"] == 21.29
    assert published.information_gain("greedy") is None
    np.testing.assert_array_equal(published.information_gain("random")[:, 0], np.arange(1, 47, 5))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:experiments gain about as much")  # as published
def test_published_tables(tmp_path):
    """Random and PRBS on all four systems, EIG and sPCE: none beyond three combined errors, at most one beyond two."""
    cells = [c for c in plan(tuple(SYSTEMS), FULL, 1) if c.kind == "estimate" and c.policy in ("random", "prbs")]
    judged = tables.verdict(tables.estimates(reproduce(cells, tmp_path, FULL)))
    assert judged.cells == 16
    assert not judged.beyond_three
    assert len(judged.beyond_two) <= 1
