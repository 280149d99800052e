"""Whether improbable records are told, and how often others are."""

import numpy as np

from nestbed.live import watching


def alarms(residuals, horizon, alarm):
    """Return whether a session with these residuals is warned of at any time."""
    return any(watching.sentence(("a", "b"), residuals[: t + 1], horizon, alarm) for t in range(horizon))


def test_a_whole_session_of_the_model_is_warned_of_as_seldom_as_stated():
    """400 sessions of standard normal residuals, asked for 5 %: at most 34 alarms but for chance of 1 in 1000."""
    random = np.random.default_rng(0)
    found = sum(alarms(random.standard_normal((60, 2)), 60, 0.05) for _ in range(400))
    assert found <= 34


def test_shifts_and_outliers_are_told():
    random = np.random.default_rng(1)
    residuals = random.standard_normal((60, 2))
    residuals[30, 1] = 8.0
    assert "experiment 30: b is" in watching.sentence(("a", "b"), residuals[:31], 60, 0.01)
    shifted = random.standard_normal((60, 2)) + np.array([1.5, 0.0])
    assert alarms(shifted, 60, 0.01)


def test_looks_end_with_the_horizon():
    assert watching.looks(50) == [10, 15, 23, 34, 50]
    assert watching.looks(5) == [5]
