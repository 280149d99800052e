"""`python -m paper`: one sentence for a mistake, and a report at the end."""

import json
import sys

import pytest

from paper import cli, reproduce


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["pendulum"], "nestbed: the paper has no system 'pendulum'; did you mean 'linear_pendulum'? Known: "),
        (["all", "--seeds", "0"], "nestbed: seeds is 0, but it must be"),
        (["all", "--quik"], "nestbed: Unknown option: --quik"),
        ([], "nestbed: "),
    ],
)
def test_wrong_arguments_get_a_sentence(monkeypatch, capsys, arguments, complaint):
    monkeypatch.setattr(sys, "argv", ["paper", *arguments])
    monkeypatch.setattr("warnings.showwarning", None)  # is put back
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    shown = capsys.readouterr().err
    assert shown.startswith(complaint)
    assert shown.count("\n") == 1


def test_ctrl_c_tells_how_to_go_on(monkeypatch, capsys, tmp_path):
    def stop(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(reproduce, "reproduce", stop)
    monkeypatch.setattr(sys, "argv", ["paper", "linear_pendulum", "--out", str(tmp_path / "a b")])
    with pytest.raises(SystemExit) as stopped:
        cli.reproduce(["linear_pendulum"], out=tmp_path / "a b")
    assert stopped.value.code == 130
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"nestbed: stopped; finished cells are kept in {tmp_path / 'a b'}. Continue with"
    assert second == f"  python -m paper linear_pendulum --out '{tmp_path / 'a b'}'"


@pytest.mark.slow
def test_a_quick_reproduction_of_one_system_ends_in_a_report(tmp_path, capsys):
    cli.reproduce(["linear_pendulum"], quick=True, out=tmp_path)
    stored = json.loads((tmp_path / "cells" / "linear_pendulum" / "prbs" / "estimate.json").read_text())
    assert stored["result"]["eig"]["mean"] == pytest.approx(2.26, abs=5 * stored["result"]["eig"]["standard_error"])
    assert (tmp_path / "figures" / "linear_pendulum_training.png").exists()
    cli.reproduce(["linear_pendulum"], quick=True, out=tmp_path)
    assert capsys.readouterr().err.count("kept from before") == 13
