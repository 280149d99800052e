"""Sessions as JSON: each step counts once, whatever is sent again, and all of them outlive the server."""

import asyncio
import errno
import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from clients import START, begin, design, measure, patiently, sentence, stop, until, watching
from nestbed.faces.server import desk
from nestbed.faces.server.refusal import RefusedError
from nestbed.numerics import storage


def test_a_session_from_design_to_design(serve):
    client = serve()
    path = begin(client)
    first = design(client, path)
    assert first["step"] == 1
    assert first["done"] is None
    assert design(client, path) == first
    told = measure(client, path, 1)
    assert told.status_code == 200
    assert measure(client, path, 1).json() == told.json()
    assert "with other numbers" in sentence(measure(client, path, 1, 1.2), 409)
    assert "step 2 is awaited" in sentence(measure(client, path, 3), 409)
    assert "step 2 is awaited" in sentence(measure(client, path, 0, 0.5), 409)
    assert design(client, path)["step"] == 2
    assert measure(client, path, 2, applied={"pump": 0.5}, time=1.0).status_code == 200
    assert measure(client, path, 2).json() == measure(client, path, 2, time=1.0).json()
    sentence(measure(client, path, 2, applied={"pump": 0.4}), 409)
    sentence(measure(client, path, 2, time=1.1), 409)
    known = client.get(f"{path}/posterior").json()
    assert known["step"] == 2
    assert [each["name"] for each in known["parameters"]] == ["pump", "leak"]
    rows = until(lambda: client.get(f"{path}/course").json(), lambda rows: len(rows) == 3)
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert rows[2]["u"] == {"pump": 0.5}
    assert rows[2]["y"] == {"level": 1.1}
    assert rows[0]["next"]["level"][1] < rows[0]["next"]["level"][0] < rows[0]["next"]["level"][2]
    lines = client.get(f"{path}/record.csv").text.splitlines()
    assert lines[0] == "record,time,level,pump"
    assert len(lines) == 4


def test_a_first_measurement_is_that_of_step_0(serve):
    client = serve()
    path = begin(client, first := "with_first")
    assert first in path
    answer = measure(client, path, 0, 0.9)
    assert answer.json()["gain"] == 0.0
    assert measure(client, path, 0, 0.9).json() == answer.json()
    sentence(measure(client, path, 0, 0.8), 409)
    assert design(client, path)["step"] == 1


def test_a_server_that_is_started_again_goes_on(serve, tmp_path):
    client = serve()
    path = begin(client)
    design(client, path)
    told = measure(client, path, 1).json()
    wanted = design(client, path)
    stop(client)
    with (tmp_path / "sessions" / "one" / "course.jsonl").open("a") as stream:
        stream.write('{"step": 2, "gai')  # killed in the middle of a line
    again = serve()
    (listed,) = again.get("/sessions").json()
    assert (listed["id"], listed["state"], listed["step"]) == ("one", "closed", 1)
    assert design(again, path) == wanted
    assert measure(again, path, 1).json() == told
    sentence(measure(again, path, 1, 1.2), 409)
    assert [row["step"] for row in again.get(f"{path}/course").json()] == [0, 1]
    assert begin(again) == path
    assert "other settings" in sentence(again.post("/sessions", json={"id": "one", "system": "heater"}), 409)


def test_what_the_disk_does_not_take_is_not_confirmed(serve, tmp_path, monkeypatch):
    client = serve()
    path = begin(client)
    design(client, path)
    append = storage.append

    def full(file, data, flush=True):
        if file.name == "journal.jsonl":
            raise OSError(errno.ENOSPC, "No space left on device")
        append(file, data, flush)

    body = {"step": 1, "y": {"level": 1.1}}
    journal = tmp_path / "sessions" / "one" / "journal.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(storage, "append", full)
        for _ in range(2):
            assert "takes nothing more" in sentence(client.post(f"{path}/measurements", json=body), 503)
    assert '"update"' not in journal.read_text()
    assert client.post(f"{path}/measurements", json=body).status_code == 200
    assert '"update"' in journal.read_text()
    assert measure(client, path, 2).status_code == 200


def test_of_sessions_there_is_no_room_for_nothing_is_kept(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(desk, "MOST_OPEN", 1)
    client = serve()
    begin(client, rig={"play": True, "rate": 0.01}, horizon=10_000)
    until(lambda: client.get("/sessions/one").json()["state"] == "playing")
    sentence(client.post("/sessions", json={"id": "two", **START, "rig": {"play": True}}), 429)
    assert not (tmp_path / "sessions" / "two").exists()
    stop(client)
    shutil.copytree(tmp_path / "sessions" / "one", tmp_path / "sessions" / "two")
    served = tmp_path / "sessions" / "two" / "served.json"
    served.write_text(served.read_text().replace('"one"', '"two"'))
    assert [each["id"] for each in serve().get("/sessions").json()] == ["one", "two"]


def test_a_session_that_makes_room_keeps_nobody_waiting(serve, monkeypatch):
    monkeypatch.setattr(desk, "MOST_OPEN", 1)
    client, gate = serve(), threading.Event()
    path = begin(client)
    wanted = design(client, path)
    work = client.app.state.desk.open["one"]._worker.submit(gate.wait, 120.0)
    other = begin(client, "two")
    design(client, other)
    assert client.get(path).json()["state"] == "preparing"  # it is opened again once it is closed
    assert not work.done()
    gate.set()
    assert design(client, path) == wanted


def test_a_measurement_that_is_taken_while_its_session_is_closed_is_answered(serve, monkeypatch):
    monkeypatch.setattr(desk, "MOST_OPEN", 1)
    client, gate = serve(), threading.Event()
    path = begin(client)
    design(client, path)
    hosted = client.app.state.desk.open["one"]
    hosted._worker.submit(gate.wait, 120.0)
    until(lambda: not hosted._worker._work_queue.qsize())
    with ThreadPoolExecutor(1) as sender:
        sent = sender.submit(client.post, f"{path}/measurements", json={"step": 1, "y": {"level": 1.1}})
        until(hosted._worker._work_queue.qsize)
        other = begin(client, "two")
        gate.set()
        answer = sent.result()
    assert answer.status_code == 200
    design(client, other)  # so that it may make room
    assert measure(client, path, 1).json() == answer.json()
    design(client, path)
    assert "next" in client.get(f"{path}/course").json()[-1]
    with pytest.raises(RefusedError, match="is being closed"):
        asyncio.run(hosted.run(hosted.design))


def test_a_session_whose_beginning_was_cut_off_begins_anew(serve, tmp_path):
    """By a kill between making its folder and writing down what it is; a folder of something else is left alone."""
    (tmp_path / "sessions" / "one").mkdir(parents=True)
    (tmp_path / "sessions" / "one" / ".served.json.0123456789abcdef.part").write_text("{")
    (tmp_path / "sessions" / "other").mkdir()
    (tmp_path / "sessions" / "other" / "notes.txt").write_text("mine")
    client = serve()
    begin(client)
    assert "something else" in sentence(client.post("/sessions", json={**START, "id": "other"}), 409)


def test_the_end_is_kept_before_anything_else_is_done(serve, tmp_path):
    client = serve()
    path = begin(client)
    design(client, path)
    measure(client, path, 1)
    ended = client.post(f"{path}/abort", json={"why": "smoke"})
    assert ended.json() == {"aborted": "smoke", "design": {"pump": 0.0}}
    assert json.loads((tmp_path / "sessions" / "one" / "served.json").read_text())["ending"] == "smoke"
    assert client.get(f"{path}/design").json()["design"] == {"pump": 0.0}
    assert "ended: smoke" in sentence(measure(client, path, 2), 409)
    stop(client)
    journal = tmp_path / "sessions" / "one" / "journal.jsonl"
    lines = [line for line in journal.read_text().splitlines() if '"abort"' not in line]
    journal.write_text("\n".join(lines) + "\n")  # as if it had been killed before the session knew
    again = serve()
    assert "ended: smoke" in design(again, path)["done"]
    until(lambda: '"abort"' in journal.read_text())


def test_a_simulated_rig_plays_by_itself_and_is_followed_by_hand(serve):
    client = serve()
    path = begin(client, rig={"theta": {"leak": 0.6}, "rate": 100.0})
    assert design(client, path)["step"] == 1
    assert client.get(path).json()["truth"] is None
    assert measure(client, path, 1).status_code == 200  # by hand in between
    assert client.post(f"{path}/rig", json={"play": True}).status_code == 200
    over = until(lambda: client.get(path).json(), lambda now: now["state"] == "done")
    assert over["step"] == 4
    assert begin(client, rig={"theta": {"leak": 0.6}, "rate": 5.0}) == path
    sentence(client.post("/sessions", json={**START, "id": "one", "rig": {"theta": {"leak": 0.7}}}), 409)
    assert over["truth"]["leak"] == 0.6
    assert "all 4 experiments are done" in over["done"]
    sentence(client.post(f"{path}/rig", json={"play": True}), 409)
    assert patiently(lambda: client.post(f"{path}/horizon", json={"horizon": 6})).json()["done"] is None
    client.post(f"{path}/rig", json={"play": True})
    until(lambda: client.get(path).json(), lambda now: now["step"] == 6)


def test_a_rig_goes_on_where_the_record_is(serve):
    """What a simulated rig shows hangs on the designs alone, so a new server shows what the old one would have."""
    client = serve()
    whole = begin(client, "whole", rig={"rate": 100.0, "play": True})
    until(lambda: client.get(whole).json(), lambda now: now["step"] == 4)
    cut = begin(client, "cut", horizon=2, rig={"rate": 100.0, "play": True})
    until(lambda: client.get(cut).json(), lambda now: now["step"] == 2)
    stop(client)
    again = serve()
    design(again, cut)
    patiently(lambda: again.post(f"{cut}/horizon", json={"horizon": 4}))
    again.post(f"{cut}/rig", json={"play": True})
    until(lambda: again.get(cut).json(), lambda now: now["step"] == 4)
    record = again.get(f"{cut}/record.csv").text
    assert len(record.splitlines()) == 6
    design(again, whole)
    assert record == again.get(f"{whole}/record.csv").text


def test_a_page_is_told_as_it_happens(serve):
    client = serve()
    path = begin(client)
    with watching(client, {"watch": "session", "id": "one"}) as socket:
        assert socket.receive_json()["first"]
        design(client, path)
        measure(client, path, 1)
        steps, known = [], []
        while steps != [0, 1] or known[-1:] != [1]:
            heard = socket.receive_json()
            steps += [line["step"] for line in heard.get("course", [])]
            known += [heard["posterior"]["step"]] if heard["kind"] == "posterior" else []
            assert steps in ([], [0], [0, 1])
    with watching(client, {"watch": "session", "id": "../one"}) as socket:
        assert "no session" in socket.receive_json()["error"]


BAD = [
    ({"step": 1, "y": {"level": "high"}}, 422, "y.level"),
    ({"step": 1, "y": {"levle": 1.0}}, 422, "did you mean 'level'"),
    ({"step": 1, "y": {}}, 422, "is missing"),
    ({"step": 1, "y": {"level": 1e12}}, 422, "less than or equal"),
    ({"step": 1, "y": {"level": 5e8}}, 422, "standard deviations from what was predicted"),
    ({"step": 1, "y": {"level": True}}, 422, "y.level"),
    ({"step": "1", "y": {"level": 1.0}}, 422, "step"),
    ({"step": 1.0, "y": {"level": 1.0}}, 422, "step"),
    ({"step": -1, "y": {"level": 1.0}}, 422, "step"),
    ({"step": 1, "y": {"level": 1.0}, "u": 1}, 422, "u: extra"),
    ({"step": 1, "y": {"level": 1.0}, "applied": {"pmup": 1.0}}, 422, "did you mean 'pump'"),
    ({"step": 1, "y": {"level": 1.0}, "time": 1e8}, 422, "steps of the model"),
    ({"step": 1, "y": {"level": 1.0}, "time": -1.0}, 422, "is not after"),
    ([1], 422, "dictionary"),
]


def test_bad_measurements_get_a_sentence_and_lose_nothing(serve):
    client = serve()
    path = begin(client)
    wanted = design(client, path)
    for body, status, words in BAD:
        assert words in sentence(client.post(f"{path}/measurements", json=body), status), body
    kind = {"content-type": "application/json"}
    for text, status in ((b'{"step": 1, "y": {"level": NaN}}', 422), (b'{"step": 1, "y": {"level": 1e999}}', 422)):
        sentence(client.post(f"{path}/measurements", content=text, headers=kind), status)
    sentence(client.post(f"{path}/measurements", content=b"{" * 50_000, headers=kind), 422)
    assert design(client, path) == wanted
    assert measure(client, path, 1).status_code == 200


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"system": "tank"}, 404, "no system"),
        ({"system": f"{__file__}:Tank"}, 404, "named when"),
        ({"policy": "prsb"}, 404, "did you mean 'prbs'"),
        ({"run": "runs~x"}, 422, "one of system, run and design"),
        ({"system": None, "policy": None, "run": "../../etc"}, 404, "no run"),
        ({"id": "../up"}, 422, "id"),
        ({"id": "A"}, 422, "id"),
        ({"horizon": 10**9}, 422, "horizon"),
        ({"particles": 3}, 422, "particles"),
        ({"risk": 2.0}, 422, "risk"),
        ({"target_sd": {"laek": 0.1}}, 422, "did you mean 'leak'"),
        ({"rig": {"theta": {"laek": 0.1}}}, 422, "did you mean 'leak'"),
        ({"rig": {"rate": 0.0}}, 422, "rate"),
    ],
)
def test_sessions_that_cannot_be_get_a_sentence(serve, tmp_path, changes, status, words):
    client = serve()
    assert words in sentence(client.post("/sessions", json={**START, **changes}), status)
    assert not [*(tmp_path / "sessions").iterdir()]
