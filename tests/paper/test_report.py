"""The report needs nothing else, and says what the tables say."""

import csv
import re

import pytest

from made_up import invented
from paper import published, report, tables, terminal
from paper.studies import FULL


@pytest.fixture(scope="module")
def page(full_plan, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "_logs", lambda *arguments: [])
        return report.write(invented(full_plan, shift=1.0), FULL, tmp_path_factory.mktemp("report"))


def test_the_report_needs_nothing_else(page):
    text = page.read_text()
    assert not re.findall(r'(?:src|href)="(?!data:image/png;base64,|#)', text)
    assert "http" not in re.sub(r"base64,[^\"]*", "", text)
    assert "<script" not in text
    titles = ("Linear pendulum", "Double link", "IO-SMC²", "Greedy", "What it cost")
    for word in (*titles, "beyond three", "without the penalty it gains", "jax 0."):
        assert word in text


def test_every_number_is_in_the_csv_files_too(page):
    with (page.parent / "policy_tables.csv").open() as stream:
        held = {(row["system"], row["policy"], row["metric"]): row for row in csv.DictReader(stream)}
    for metric in ("eig", "spce"):
        for place, (mean, sd) in published.policy_table(metric).items():
            assert float(held[*place, metric]["paper_mean"]) == mean
            assert float(held[*place, metric]["paper_sd"]) == sd
    for name, lines in (("information_gain_linear_pendulum", 200), ("cart_pole_particle_sweep", 8), ("cells", 111)):
        assert len((page.parent / f"{name}.csv").read_text().splitlines()) == lines + 1
    markdown = (page.parent / "report.md").read_text()
    pictures = re.findall(r"!\[[^]]*\]\(([^)]*)\)", markdown)
    assert len(pictures) == 4 + 1 + 3 + 1  # without learning curves here
    assert all((page.parent / picture).read_bytes()[1:4] == b"PNG" for picture in pictures)


def test_the_terminal_shows_the_cells_the_time_left_and_the_result(full_plan, capsys):
    done = invented(full_plan, shift=1.0)
    done[1] = done[1]._replace(fresh=False)
    with terminal.Reproducing(full_plan) as watch:
        for each in done:
            watch(each.cell, None)
            watch(each.cell, each)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "cell 1/111  linear_pendulum/io_smc2/seed_0/training …"
    assert lines[1].startswith("cell 1/111  linear_pendulum/io_smc2/seed_0/training  2.0 s  ")
    assert "kept from before" in lines[3]
    assert lines[-1].endswith("0 s left")
    terminal.reproduced(tables.estimates(done), report.NAMES)
    shown = " ".join(capsys.readouterr().out.split())
    assert "A quick reproduction" not in shown
    assert "Random 1.45 ± 0.08 1.37 +3.5 1.79 ± 0.35 1.44 +3.5" in shown
