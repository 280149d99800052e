"""`nestbed report`: what a folder holds, read without touching it, on one page."""

import json

import jax
import numpy as np
import pytest

import nestbed as nb
from nestbed.faces import accounts, descriptions, page
from nestbed.faces.page import Section, as_html
from nestbed.live import head, journal, reading
from tests import toys

LINES = [
    {"kind": "first", "y": [0.5], "time": 1.0, "clock": 1.7e9},
    {"kind": "suggest", "u": [2.0], "why": ""},
    {"kind": "update", "y": [0.75], "time": 1.2, "clock": 1.7e9 + 1},
    {"kind": "suggest", "u": [3.0], "why": "the limit of speed would be broken"},
    {"kind": "update", "y": [None], "time": 1.4, "applied": [2.5], "clock": 1.7e9 + 2},
    {"kind": "restart", "y": [0.0], "clock": 1.7e9 + 3},
    {"kind": "rest"},
    {"kind": "update", "y": [0.125], "time": 1.6, "clock": 1.7e9 + 60},
    {"kind": "extend", "horizon": 20},
    {"kind": "abort", "why": "the <motor> is hot"},
]


@pytest.fixture
def session(tmp_path):
    """The folder of a session whose last line is being written."""
    system, key = toys.Bounded(), jax.random.key(4)
    facts = head.describe(system, {"name": "PRBS", "numbers": "0"}, key, particles=512, gaps=True, horizon=12)
    (tmp_path / "session.json").write_text(json.dumps({"format": journal.FORMAT, **facts}))
    (tmp_path / "journal.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in LINES) + '{"kind": "upd')
    return tmp_path


def test_a_session_is_read_as_it_was_and_left_as_it_is(session):
    kept = reading.read(session, toys.Bounded())
    assert (kept.policy, kept.horizon, kept.experiments, kept.aborted) == ("PRBS", 20, 3, "the <motor> is hot")
    first, second = kept.records
    np.testing.assert_array_equal(first.observations, [[0.5], [0.75], [np.nan]])
    np.testing.assert_array_equal(first.designs, [[2.0], [2.5]])
    np.testing.assert_array_equal(first.times, [1.0, 1.2, 1.4])
    np.testing.assert_array_equal(second.designs, [[0.0]])
    np.testing.assert_array_equal(second.times, [1.4, 1.6])
    assert kept.changed == ["experiment 1: the limit of speed would be broken"]
    np.testing.assert_array_equal(jax.random.key_data(kept.key), jax.random.key_data(jax.random.key(4)))
    assert (session / "journal.jsonl").read_text().endswith('{"kind": "upd')


def test_the_page_of_a_session_says_what_was_done(session):
    text = accounts.session(reading.read(session, toys.Bounded()), None, [])
    assert "<b>3</b> of 20 experiments were done on Bounded, with designs by PRBS" in text
    assert "They began on 14 November 2023 at 22:13 and ended on 14 November 2023 at 22:14 (UTC)" in text
    assert "The session was ended: the &lt;motor&gt; is hot." in text
    assert "not measured" in text
    assert "LogNormal(0, 0.3)" in text
    assert "return theta.drive * u.force - theta.drag * x.speed" in text


def test_a_damaged_session_gets_a_sentence(session):
    file = session / "journal.jsonl"
    file.write_text(file.read_text().replace('"u": [2.0]', '"v": [2.0]'))
    with pytest.raises(nb.NestbedError, match=r"is damaged .*'u'.*restore it from a copy"):
        reading.read(session, toys.Bounded())


def test_a_system_is_described_with_all_that_it_is_made_from():
    for name in nb.systems.SYSTEMS:
        system = nb.systems.load(name)
        section = descriptions.system(system)
        cells = {cell for grid in section.grids for row in grid.rows for cell in row}
        assert {*system.parameter_names, *system.design_names, *system.observation_names, *system.state_names} <= cells
        assert f"class {type(system).__name__}(" in section.code
        assert "def drift" in section.code
    heater = descriptions.system(nb.systems.load("heater"))
    assert ("temperature", "K", "0.05", "0.32") in heater.grids[2].rows
    assert ("heater", "K", "–", "60") in heater.grids[-1].rows


def test_pages_are_whole_harmless_and_for_every_screen():
    text = as_html("<a>", [Section("One & two", ["`x < y` **is** so"], code="if a < b: pass")])
    assert "<code>x &lt; y</code> <b>is</b> so" in text
    assert "<code>if a &lt; b: pass</code>" in text
    assert "<title>&lt;a&gt;</title>" in text
    assert "http" not in text
    for asked in ("prefers-color-scheme: dark", "@media print", 'name="viewport"'):
        assert asked in text
    assert "```\nif a < b: pass\n```" in page.markdown("t", [Section("s", code="if a < b: pass")], None)


@pytest.mark.parametrize("name", ["nothing", "empty"])
def test_a_place_that_holds_none_of_them_gets_a_sentence(name, command, tmp_path):
    (tmp_path / "empty").mkdir()
    told = {"nothing": "there is no folder", "empty": "there is no run in"}[name]
    refused = command("report", tmp_path / name)
    assert refused.returncode == 2
    assert told in refused.stderr


@pytest.mark.slow
def test_a_run_and_a_session_are_reported_by_the_command(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sizes = ["iterations=1", "trajectories=8", "particles=8", "policy.encoder=[6]", "policy.head=[4]", "belief=exact"]
    train = ["train", "linear_pendulum", "--method", "score_climbing", "--out", "run", "--quiet"]
    assert command(*train, "--set", *sizes).returncode == 0
    assert command("report", "run").returncode == 0
    text = (tmp_path / "run" / "report.html").read_text()
    assert text.count("data:image/png;base64,") == 2
    assert "After 1 of 1 iterations of score_climbing" in text
    assert "policy.encoder" in text
    drive = ["run", "prbs", "--system", "linear_pendulum", "--horizon", 4, "--out", "live"]
    assert command(*drive).returncode == 0
    whole = (tmp_path / "live" / "report.html").read_text()
    assert command("report", "live", "--out", "again.html").returncode == 0
    assert (tmp_path / "again.html").read_text() == whole
    assert "<b>4</b> of 4 experiments were done on LinearPendulum" in whole
