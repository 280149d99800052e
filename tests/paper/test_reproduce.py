"""Cells are computed once each, kept whole, and gone on with."""

from pathlib import Path

import pytest

from made_up import cell, counting
from nestbed import NestbedError
from nestbed.numerics import interrupts, storage
from paper import report
from paper.reproduce import reproduce
from paper.studies import FULL, QUICK


def run(names, folder, calls, scale=FULL, **settings):
    return reproduce([cell(name, size=1, **settings) for name in names], folder, scale, compute=counting(calls))


def test_an_interrupted_reproduction_goes_on_without_repeating_a_cell(tmp_path):
    calls, seen = [], []
    work = [cell(name) for name in "abc"]

    def stopped(cell, folder):
        if cell.name == "b":
            raise KeyboardInterrupt
        return counting(calls)(cell, folder)

    with pytest.raises(KeyboardInterrupt):
        reproduce(work, tmp_path, FULL, compute=stopped)
    assert calls == ["a"]
    done = reproduce(work, tmp_path, FULL, lambda cell, found: seen.append((cell.name, found)), counting(calls))
    assert calls == ["a", "b", "c"]
    assert [each.fresh for each in done] == [False, True, True]
    assert [each.result["value"] for each in done] == [1, 1, 1]
    assert [name for name, found in seen if found is None] == ["b", "c"]
    assert all(not each.fresh for each in reproduce(work, tmp_path, FULL, compute=counting(calls)))


def test_a_cell_of_other_settings_or_damaged_is_computed_again(tmp_path):
    calls = []
    run("ab", tmp_path, calls)
    (tmp_path / "cells" / "b.json").write_text('{"settings": {"size": 1}, "res')
    run("ab", tmp_path, calls)
    assert calls == ["a", "b", "b"]
    run("ab", tmp_path, calls, sources="others")
    assert calls == ["a", "b", "b", "a", "b"]


def test_a_training_whose_folder_is_gone_is_done_again(tmp_path):
    calls = []
    training = cell("a", "training", seed=3)
    for _ in range(2):
        reproduce([training], tmp_path, FULL, compute=counting(calls))
    assert calls == ["a", "a"]
    place = tmp_path / "trainings" / "cart_pole_random" / "seed_3"
    place.mkdir(parents=True)
    for name in ("run.json", "metrics.jsonl"):
        (place / name).write_text("{}")
    reproduce([training], tmp_path, FULL, compute=counting(calls))
    assert calls == ["a", "a"]


def test_a_resumed_training_counts_all_its_seconds(tmp_path):
    (done,) = reproduce([cell("a")], tmp_path, FULL, compute=lambda *_: {"value": 1, "training_seconds": 100.0})
    assert done.seconds == 100.0
    assert done.result == {"value": 1}


def test_one_process_at_a_time(tmp_path):
    with storage.locked(tmp_path), pytest.raises(NestbedError, match="another process"):
        run("a", tmp_path, [])


def test_ctrl_c_is_obeyed_before_each_cell(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(interrupts, "_asked", True)
    with pytest.raises(KeyboardInterrupt):
        run("a", tmp_path, calls)
    assert not calls


def test_a_folder_is_of_one_scale(tmp_path):
    run("a", tmp_path, [], QUICK)
    with pytest.raises(NestbedError, match=r"holds a quick reproduction; choose another --out for a full one"):
        run("a", tmp_path, [])
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(NestbedError, match=r"plan.json is damaged"):
        run("a", tmp_path, [], QUICK)


def test_a_full_disk_keeps_what_was_there(tmp_path, monkeypatch):
    calls = []
    run("a", tmp_path, calls)

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(storage, "write", full)
        with pytest.raises(NestbedError, match=r"could not save to .*: No space left on device"):
            run("ab", tmp_path, calls)
    run("ab", tmp_path, calls)
    assert calls == ["a", "b", "b"]


@pytest.fixture
def outside(tmp_path):
    place = tmp_path / "outside"
    place.mkdir()
    (place / "file").write_text("mine")
    return place


def contents(place):
    return {file: file.read_bytes() for file in Path(place).rglob("*")}


@pytest.mark.parametrize("name", ["cells", "trainings", "cells/a.json", "plan.json", ".lock"])
def test_a_reproduction_does_not_reach_out_of_its_folder(tmp_path, outside, name):
    place = tmp_path / "reproduction"
    (place / name).parent.mkdir(parents=True)
    (place / name).symlink_to(outside / "file" if "." in name else outside)
    before = contents(outside)
    with pytest.raises(NestbedError, match=f"{name} is a link"):
        run("a", place, [], seed=0)
    assert contents(outside) == before


def test_a_report_does_not_write_through_links(tmp_path, outside):
    place = tmp_path / "results"
    place.mkdir()
    (place / "figures").symlink_to(outside)
    before = contents(outside)
    with pytest.raises(NestbedError, match="figures is a link"):
        report.write([], QUICK, place)
    assert contents(outside) == before
