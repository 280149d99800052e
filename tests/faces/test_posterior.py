"""`nestbed posterior`: from CSV files to sentences, figures and one page, and a sentence for every mistake."""

import csv
import json
import re

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import layout
import nestbed as nb
from nestbed.evaluation.posterior import Course, Posterior
from nestbed.evaluation.records import Measured
from nestbed.faces import findings, fits, netcdf
from nestbed.faces.cli import measured

SYSTEM = '''
import numpyro.distributions as dist
import nestbed as nb


class Tank(nb.System):
    """A level behind a gauge; only the product of gain and valve acts."""

    state = ("level",)
    designs = nb.Box(flow=(-1.0, 1.0))
    prior = {"rate": dist.LogNormal(-0.7, 0.2), "gain": dist.LogNormal(0.0, 0.2), "valve": dist.LogNormal(0.0, 0.2)}
    start = {"level": dist.Normal(0.0, 0.3)}
    sensors = {"gauge": 0.1}
    step, diffusion, integrator = 0.5, (0.05,), "euler"
    units = {"rate": "1/s", "gauge": "m", "level": "m", "time": "s"}

    def drift(self, x, u, theta):
        return theta.gain * theta.valve * u.flow - theta.rate * x.level

    def observe(self, x, theta):
        return x.level
'''


def simulated(file, count, key):
    """Write a record in millimetres, with uneven times and gaps."""
    draw = np.random.default_rng(key)
    times = np.append(0.0, np.cumsum(draw.uniform(0.25, 0.7, count)))
    flow = np.repeat(draw.choice([-1.0, 1.0], count // 4 + 1), 4)[: count + 1]
    level, rows = draw.normal(0.0, 0.3), []
    for t in range(count + 1):
        shown = f"{1000 * (level + 0.1 * draw.standard_normal()):.1f}"
        rows.append([f"{times[t]:.4f}", ("", "NaN", "NA", shown, shown, shown, shown)[t % 7], f"{flow[t]:g}"])
        for h in [np.diff(times)[t] / 10] * 10 if t < count else ():
            level += h * (1.1 * flow[t] - 0.55 * level) + 0.05 * np.sqrt(h) * draw.standard_normal()
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows([["Time", "mm", "valve position"], *rows])
    return file


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tank")
    (folder / "tank.py").write_text(SYSTEM)
    simulated(folder / "one.csv", 40, 1)
    simulated(folder / "two.csv", 25, 2)
    return folder


@pytest.fixture
def nestbed(command, place, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    columns = ["--time", "Time", "--sensor", "gauge=mm*0.001", "--design", "flow=valve position"]

    def run(*files, more=(), columns=columns):
        return command("posterior", f"{place}/tank.py:Tank", *(place / file for file in files), *columns, *more)

    return run


def test_two_records_become_one_posterior_with_all_its_files(nestbed, place, monkeypatch):
    monkeypatch.setattr(netcdf, "save", lambda found, file: False)
    told = nestbed("one.csv", "two.csv", more=["--particles", 256, "--out", place / "out"])
    assert told.returncode == 0, told.stderr
    assert told.stderr == "posterior, compiling at first …\n"
    assert max(len(line) for line in told.stdout.splitlines() if not line.startswith("Saved")) <= 80
    words = " ".join(told.stdout.split())
    assert "The model explains the data: none of 5 tests speaks against it" in words
    assert re.search(r"The data hardly tell (gain / valve|valve / gain) \((0.9|1.0)\d\)", words)
    assert "67 samples in 2 records" in words
    assert "pip install 'nestbed[arviz]'" in words
    assert re.search(r"At the end: level \S+ ± \S+ m\.", words)
    out = place / "out"
    assert {file.name for file in out.iterdir()} == {
        *("posterior.json", "draws.csv", "residuals.csv", "report.html"),
        *("marginals.png", "fit.png", "residuals.png"),
    }
    facts = json.loads((out / "posterior.json").read_text())
    rate = facts["parameters"][0]
    assert rate["unit"] == "1/s"
    assert abs(rate["posterior"]["mean"] - 0.55) < 5 * rate["posterior"]["sd"] < 0.5
    assert rate["quantiles"]["2.5 %"] < rate["posterior"]["mean"] < rate["quantiles"]["97.5 %"]
    assert facts["explanation"]["explains"]
    with (out / "draws.csv").open() as stream:
        draws = list(csv.DictReader(stream))
    assert len(draws) == 256
    assert np.mean([float(row["rate"]) for row in draws]) == pytest.approx(rate["posterior"]["mean"], rel=0.01)
    with (out / "residuals.csv").open() as stream:
        left = list(csv.DictReader(stream))
    assert len(left) == 65
    assert left[0]["gauge"] == ""
    assert float(left[-1]["time"]) > 0.0
    page = (out / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 3
    assert not re.search(r'(src|href)="(?!data:|#)', page)
    assert "none of 5 tests speaks against it" in page


def without(place, name, change):
    """Write the first record again, changed row by row."""
    rows = [line.split(",") for line in (place / "one.csv").read_text().splitlines()]
    (place / name).write_text("\n".join(",".join(row) for row in change(rows)))
    return name


CHANGES = {
    "text.csv": (
        lambda rows: [*rows[:4], [rows[4][0], "high", rows[4][2]], *rows[5:]],
        "has 'high' in line 5 of column",
    ),
    "back.csv": (lambda rows: [*rows[:4], rows[3], *rows[4:]], "back.csv: the times of the record do not rise"),
    "none.csv": (
        lambda rows: [rows[0], *([a, "", c] for a, _, c in rows[1:])],
        "none.csv: the record has no measurement",
    ),
    "short.csv": (lambda rows: rows[:2], "has 1 row below its names"),
    "bare.csv": (lambda rows: rows[1:], "begins with numbers"),
    "comma.csv": (
        lambda rows: [rows[0], *(",".join(row).replace(".", ",").split(",") for row in rows[1:])],
        "cells in",
    ),
    "double.csv": (lambda rows: [[*rows[0], "mm"], *([*row, "1"] for row in rows[1:])], "more than one column 'mm'"),
    "empty.csv": (lambda rows: [], "has 0 rows below its names"),
    "still.csv": (lambda rows: [*rows[:3], [*rows[3][:2], ""], *rows[4:]], "every design must be known"),
}


@pytest.mark.parametrize(("name", "change", "told"), [(name, *rest) for name, rest in CHANGES.items()], ids=CHANGES)
def test_a_file_that_cannot_be_used_is_told_by_name(nestbed, place, name, change, told):
    result = nestbed(without(place, name, change))
    assert result.returncode == 2
    assert told in result.stderr
    assert name in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ([], "has no column 'gauge' for gauge; known: Time, mm, valve position"),
        (["--sensor", "gauge=mmm*2", "--design", "flow=mm"], "has no column 'mmm' for gauge; did you mean 'mm'?"),
        (["--sensor", "gage=mm"], "Tank has no sensor or design 'gage'; did you mean 'gauge'?"),
        (["--sensor", "mm"], "got 'mm'; write name=column"),
        (["--sensor", "gauge=mm", "--sensor", "gauge=Time"], "gauge is both mm and Time; give one column for it"),
        (["--sensor", "gauge=mm^2"], "units are converted as in mm*0.001+273.15, mm/60 or mm-first"),
        (["--sensor", "gauge=mm/0", "--design", "flow=mm"], "got 'mm/0' for gauge; divide by a number that is not 0"),
        (["--sensor", "gauge=mm+first", "--design", "flow=mm"], "write mm-first"),
        (["--sensor", "gauge=mm", "--design", "flow=mm", "--time", "time"], "did you mean 'Time'?"),
    ],
)
def test_a_column_that_is_not_there_is_told_with_those_that_are(nestbed, columns, told):
    result = nestbed("one.csv", columns=columns)
    assert result.returncode == 2
    assert told in result.stderr


def test_files_are_needed_and_must_be_there(nestbed):
    assert "needs the files of one record or more" in nestbed().stderr
    assert "there is no file" in nestbed("three.csv").stderr


def test_units_are_converted_as_written(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("\ufeffU;T-1;T\n1,5;;2\n2,5;4;3\n")
    sheet = measured._sheet(file)
    for written, wanted in {
        "U": [1.5, 2.5],
        "U*2": [3.0, 5.0],
        "U*-1e-3+1": [0.9985, 0.9975],
        "U/2-0.5": [0.25, 0.75],
        "U-0.5": [1.0, 2.0],
        "U-first": [0.0, 1.0],
        "T-1": [np.nan, 4.0],
        "T-1-first": [np.nan, 0.0],
        "T-2": [0.0, 1.0],
    }.items():
        np.testing.assert_allclose(measured._values(sheet, "x", written), wanted, rtol=1e-12, err_msg=written)


@pytest.mark.parametrize(
    ("cells", "written", "wanted"),
    [
        (["2024-01-31 07:30:00", "2024-01-31T07:30:01.5", "2024-02-01"], "when", [0.0, 1.5, 59400.0]),
        (["2024-01-31T07:30:00Z", "", "2024-01-31T09:30:00+01:00"], "when/60", [0.0, np.nan, 60.0]),
        (["20240131", "20240132", "20240133"], "when-first", [0.0, 1.0, 2.0]),
    ],
)
def test_times_may_be_dates(tmp_path, cells, written, wanted):
    file = tmp_path / "a.csv"
    file.write_text("when,y\n" + "".join(f"{cell},1\n" for cell in cells))
    np.testing.assert_allclose(measured._times(measured._sheet(file), written), wanted, rtol=1e-9)


@pytest.mark.parametrize("cells", [["31.01.2024 07:30", "31.01.2024 07:31"], ["2024-01-31 07:30Z", "2024-01-31 07:31"]])
def test_dates_in_another_form_or_two_forms_are_told(tmp_path, cells):
    file = tmp_path / "a.csv"
    file.write_text("when,y\n" + "".join(f"{cell},1\n" for cell in cells))
    with pytest.raises(nb.NestbedError, match="dates with times of day in one form"):
        measured._times(measured._sheet(file), "when")


def test_samples_many_steps_apart_are_told_beforehand(tmp_path):
    """Times in another unit than the model's would otherwise only take long and fit nothing."""
    file = tmp_path / "a.csv"
    file.write_text("ms,temperature,power\n" + "".join(f"{1000 * t},1,50\n" for t in range(5)))
    with pytest.warns(UserWarning, match=r"1000 apart, which is 100 steps of Heater \(step = 10\)"):
        measured.read(nb.systems.load("heater"), [file], "ms", [])
    measured.read(nb.systems.load("heater"), [file], "ms/1000", [])


class Reactor(nb.System):
    """Names that are long, and units like formulas."""

    state = ("level", "temperature_of_the_coolant_at_the_outlet")
    designs = nb.Box(flow=(-1.0, 1.0), temperature_of_the_coolant_at_the_inlet=(0.0, 1.0))
    prior = {name: dist.Normal(0.0, 1.0) for name in ("reaction_rate_constant", "activation_energy_barrier", "k", "d")}
    units = {"flow": "$/h for $1", "level": "m"}
    diffusion = (0.1, 0.1)

    def drift(self, x, u, theta):
        return x.level, theta.reaction_rate_constant * x.level


def made(system):
    """Return findings about a system, made up."""
    draw = np.random.default_rng(0)
    d, states, seen = len(system.parameter_names), len(system.state_names), len(system.observation_names)
    theta = tuple(np.asarray(values[:64]) for values in system.parameters.draws)
    cloud = type("Cloud", (), {"theta": theta, "position": theta, "log_weights": np.full(64, -np.log(64)), "ess": 64.0})
    course = Course(*(np.abs(draw.standard_normal((21, n))) for n in (states, states, seen, seen)))
    result = Posterior(
        np.mean(theta, axis=1), np.cov(theta).reshape(d, d), np.zeros(20), np.zeros(20), 1.0, cloud(),
        draw.standard_normal((20, seen)), course,
    )  # fmt: skip
    record = Measured(draw.standard_normal((21, seen)), draw.standard_normal((20, len(system.design_names))))
    return findings.find(jax.random.key(0), system, result, [record], ["a_$rather$_long/name_of a file.csv"])


@pytest.mark.parametrize("draw", [fits.marginals, fits.fit, fits.residuals])
def test_names_are_drawn_as_they_are_and_nothing_is_cut_off(draw, tmp_path, monkeypatch):
    found = made(Reactor())
    figure = layout.saved(lambda file: draw(found, file), tmp_path / "figure.png", monkeypatch)
    whole = figure.bbox.expanded(1.001, 1.001)
    for text in (figure._suptitle, *(text for legend in figure.legends for text in legend.get_texts())):
        extent = text.get_window_extent()
        assert whole.x0 <= extent.x0 < extent.x1 <= whole.x1, text.get_text()
        assert not text._preprocess_math(text.get_text())[1]
    for axes in figure.axes:
        for drawn in (*figure.legends, figure._suptitle):
            assert not drawn.get_window_extent().overlaps(axes.bbox)


@pytest.mark.parametrize("wide", [1.0, 1e3])
def test_no_band_is_clipped(wide, tmp_path, monkeypatch):
    found = made(Reactor())
    found.posterior.course.expected_sd[1] = wide
    figure = layout.saved(lambda file: fits.fit(found, file), tmp_path / "figure.png", monkeypatch)
    bands = [(axes, each) for axes in figure.axes for each in axes.collections]
    assert len(bands) == 4
    for axes, each in bands:
        ends = each.get_paths()[0].vertices[:, 1]
        assert axes.get_ylim()[0] <= ends.min() < ends.max() <= axes.get_ylim()[1]


def test_arviz_reads_what_is_written(tmp_path):
    arviz = pytest.importorskip("arviz")
    found = made(nb.systems.load("nonlinear_pendulum"))
    assert netcdf.save(found, tmp_path / "posterior.nc")
    read = arviz.from_netcdf(str(tmp_path / "posterior.nc"))
    assert read.posterior["mass"].dims == ("chain", "draw")
    np.testing.assert_allclose(read.posterior["mass"].values[0], found.draws[:, 0])
    assert read.observed_data["angle"].shape == (21,)
    assert read.posterior_predictive["angle"].shape == (1, 1, 21)
