"""Sessions that are really killed, by SIGKILL."""

import pytest

import killing


@pytest.mark.parametrize("kills", [2, pytest.param(100, marks=pytest.mark.slow)])
def test_killed_sessions_go_on_as_if_never_killed(tmp_path, kills):
    """At random moments, and before, within and after any write: nothing that was confirmed is lost."""
    told = killing.hunt(tmp_path, kills, seed=kills)
    assert (told.get("lost", 0), told.get("other end", 0)) == (0, 0), told
