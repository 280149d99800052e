"""The paper's figures: nothing is cut off, and the paper's curve is behind ours only where the two can be compared."""

import numpy as np
import pytest

import layout
from nestbed import systems
from nestbed.runs import fingerprint
from nestbed.runs.run import Log
from paper import pictures, published, report
from paper.studies import FULL, QUICK
from paper.tables import Gain, Particles, Row


def log(scale=FULL):
    rows = [{"iteration": i, "eig": 3.0 - 3.0 / (1 + i), "eig_error": 0.1} for i in range(25)]
    about = {"system": fingerprint.describe(systems.load("linear_pendulum")), "key": [0, 0]}
    return Log(scale.config("linear_pendulum", "io_smc2_exact"), rows, about)


def row(policy, metric):
    return Row("cart_pole", policy, metric, 5, 9.0, 0.5, 0.1, 5, 8.0, 10.0, 9.1, 0.5, 0.1, 0.1, 1.0)


def draw_policies(file):
    rows = [row(policy, metric) for policy in report.NAMES for metric in ("eig", "spce")]
    pictures.policies(rows, report.NAMES, file, "Cart-pole")


def draw_curves(file, scale=FULL):
    pictures.learning_curves({"IO-SMC²": [log(scale)], "exact $a$": [log(scale), log(scale)]}, file, "Pendulum")


def draw_gains(file):
    gains = [
        Gain(policy, 5, np.linspace(0.1, 3, 50), np.full(50, 0.1), published.information_gain(policy))
        for policy in ("prbs", "io_smc2")
    ]
    pictures.information_gain(gains, report.NAMES, file)


def draw_trajectory(file):
    pictures.trajectory(systems.load("double_link"), np.ones((51, 4)), np.ones((50, 2)), file, "Double link")


def draw_particles(file):
    rows = [Particles(count, (20.0, 0.5), (5.0, 0.1), np.log1p(count), None, 1.0) for count in (64, 1024, 8192)]
    pictures.particle_study(rows, file)


@pytest.mark.parametrize("draw", [draw_policies, draw_curves, draw_gains, draw_trajectory, draw_particles])
def test_nothing_is_cut_off_and_no_legend_covers_a_curve(draw, tmp_path, monkeypatch):
    layout.check(layout.saved(draw, tmp_path / "figure.png", monkeypatch))


@pytest.mark.parametrize(("scale", "curves"), [(FULL, 2), (QUICK, 0)])
def test_the_papers_curve_is_drawn_where_settings_are_its_own(scale, curves, tmp_path, monkeypatch):
    figure = layout.saved(lambda file: draw_curves(file, scale), tmp_path / "figure.png", monkeypatch)
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    assert sum("paper" in text for text in shown) == curves
