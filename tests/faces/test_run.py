"""`nestbed new`, `check` and `run`."""

import json
import signal

import pytest

import stopping
from nestbed.faces import sessions

RIG = '''
import jax, nestbed as nb
from nestbed.systems import load

class Rig(nb.rigs.Simulated):
    """A tank in another room, whose cable is out from the third experiment on while a file says so."""

    def __init__(self):
        super().__init__(load("{tank}"), jax.random.key(7))

    def apply(self, u):
        from pathlib import Path
        if self._done == 2 and Path("out").exists():
            raise OSError("the cable is out")
        return super().apply(u)
'''


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder to work in, with a rig; what is said of records takes long and is left out."""
    (tmp_path / "rig.py").write_text(RIG.format(tank=stopping.TANK))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sessions, "_told", lambda session, folder: [])
    return tmp_path


def rows(folder):
    return (folder / sessions.RECORD).read_text().splitlines()


def test_a_rig_that_fails_leaves_its_record(command, place):
    (place / "out").touch()
    failed = command("run", "prbs", "--system", stopping.TANK, "--rig", "rig.py:Rig", "--out", "here")
    assert failed.returncode == 2
    assert "the rig failed when it was given the design" in failed.stderr
    assert len(rows(place / "here")) == 4


@pytest.mark.slow
def test_a_session_that_was_cut_off_goes_on_with_the_same_command(command, place):
    words = ("run", "prbs", "--system", stopping.TANK, "--horizon", "4", "--rig", "rig.py:Rig", "--out", "here")
    (place / "out").touch()
    failed = command(*words)
    assert failed.returncode == 2
    assert "the rig failed when it was given the design" in failed.stderr
    assert failed.stderr.count("\n") < 6
    assert len(rows(place / "here")) == 4
    (place / "out").unlink()
    again = command(*words)
    assert again.returncode == 0, again.stderr
    assert "Going on after experiment 2 of 4." in again.stdout
    assert "All 4 experiments are done" in again.stdout
    assert [line.split(",")[0] for line in rows(place / "here")] == ["record", "0", "0", "0", "1", "1", "1"]
    kinds = [json.loads(line)["kind"] for line in (place / "here" / "journal.jsonl").read_text().splitlines()]
    assert kinds == ["first", *["suggest", "update"] * 2, "suggest", "restart", *["suggest", "update"] * 2]
    longer = command(*words[:5], "6", *words[6:])
    assert longer.returncode == 0, longer.stderr
    assert "All 6 experiments are done" in longer.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--rate", "20"), "a simulated rig keeps its own time"),
        (("--rig", "nowhere.py:Rig"), "there is no rig"),
        (("--rig", "rig.py:Other"), "has no 'Other'"),
        (("--theta", "leak"), "write name=value"),
        (("--risk", "2"), "must be a probability"),
    ],
)
def test_mistakes_get_a_sentence(command, place, options, words):
    failed = command("run", "prbs", "--system", stopping.TANK, *options)
    assert failed.returncode != 0
    assert words in failed.stderr


def test_a_system_of_ones_own_begins_with_a_template(command, place):
    assert command("new", "my_cart.py").returncode == 0
    again = command("new", "my_cart.py")
    assert "is there already" in again.stderr
    found = command("check", "my_cart.py:MyCart", "--seconds", "0")
    assert found.returncode == 0, found.stderr
    assert "✓ The drift is finite" in found.stdout
    assert (place / "checks" / "MyCart" / "prior.png").stat().st_size > 10_000


@pytest.mark.slow
def test_ctrl_c_leaves_a_record_and_its_page(tmp_path):
    """In a process of its own; the rig is slow, and stopped in the middle."""
    import children

    (tmp_path / "slow.py").write_text(
        RIG.format(tank=stopping.TANK).replace(
            "        from pathlib", "        import time; time.sleep(0.2)\n        from pathlib"
        )
    )
    words = ("run", "prbs", "--system", stopping.TANK, "--horizon", "300", "--rig", "slow.py:Rig", "--out", "here")
    journal = tmp_path / "here" / "journal.jsonl"
    with children.running(*children.NESTBED, *words, cwd=tmp_path) as process:
        while not journal.exists() or journal.read_text().count("update") < 5:
            assert process.poll() is None, process.communicate()
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=children.PATIENCE)
    assert process.returncode == 0, error
    assert "Stopped by hand after" in out
    assert (tmp_path / "here" / "report.html").exists()
    assert len(rows(tmp_path / "here")) >= 6
