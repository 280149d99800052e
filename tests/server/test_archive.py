"""What a folder holds: found as it comes, read as it grows, and never run."""

import json

import jax
import pytest

import nestbed as nb
from clients import begin, design, sentence
from nestbed.faces.server import archive as archives
from nestbed.runs import folder as folders
from tank import Tank
from toys import TRAINING

LINE = '{{"iteration": {0}, "eig": 1.{0}, "eig_error": 0.1, "seconds": {0}.5}}\n'


def test_a_training_is_followed_while_it_goes_on(serve, tmp_path):
    client = serve()
    assert client.get("/runs").json() == []
    folder = tmp_path / "runs" / "tank"
    folder.mkdir(parents=True)
    folders.begin(folder, jax.random.key(0), Tank(), TRAINING.resolve(Tank()))
    assert "before its first iteration" in client.get("/runs").json()[0]["error"]
    with (folder / "metrics.jsonl").open("a") as stream:
        for i in range(3):
            stream.write(LINE.format(i))
        stream.write(LINE.format(3)[:10])  # in the middle of a line
        stream.flush()
        found = client.get("/runs/runs~tank").json()
        assert (found["system"], found["done"], found["total"], found["finished"]) == ("Tank", 2, 5, False)
        assert [row["eig"] for row in found["metrics"]] == [1.0, 1.1, 1.2]
        stream.write(LINE.format(3)[10:])
    assert client.get("/runs").json()[0]["done"] == 3


def test_a_table_that_is_none_keeps_no_other_from_being_listed(serve, tmp_path):
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "comparison.csv").write_text('"' + 200_000 * "x")
    assert "cannot be read" in serve().get("/comparisons").json()[0]["error"]


@pytest.mark.slow
def test_a_session_of_a_run(serve, tmp_path):
    client = serve()
    nb.train(jax.random.key(0), Tank(), TRAINING).save(tmp_path / "tank")
    path = begin(client, system=None, policy=None, run="tank", horizon=None)
    assert design(client, path)["step"] == 1
    assert client.get(path).json()["horizon"] == 3


def test_no_request_runs_a_file(serve, tmp_path):
    """A plan may name any system; only those that were named at the start, and built-in ones, are made."""
    trap = tmp_path / "trap.py"
    trap.write_text("from pathlib import Path\nPath(__file__).with_name('sprung').touch()\n")
    (tmp_path / "plan").mkdir()
    facts = {"system": f"{trap}:Trap", "policies": [], "draws": 1}
    (tmp_path / "plan" / "plan.json").write_text(json.dumps(facts))
    client = serve()
    answer = client.post("/sessions", json={"design": "plan"})
    assert "no system" in sentence(answer, 404)
    assert client.get("/designs").json()[0]["error"]
    sentence(client.get("/designs/plan"), 422)
    assert not (tmp_path / "sprung").exists()


def test_a_folder_is_not_left_through_a_link(tmp_path):
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    (outside / "run").mkdir(parents=True)
    (outside / "run" / "run.json").write_text("{}")
    inside.mkdir()
    (inside / "way").symlink_to(outside)
    assert archives.Archive(inside).places() == {}
    assert set(archives.Archive(tmp_path).places()) == {("run", "outside~run")}


def test_tables_of_comparisons(serve, tmp_path):
    (tmp_path / "comparison.csv").write_text("policy,eig_mean_nats\nprbs,1.5\n")
    client = serve()
    (one,) = client.get("/comparisons").json()
    assert one["rows"] == [["prbs", "1.5"]]
    assert client.get(f"/comparisons/{one['id']}").json() == one
