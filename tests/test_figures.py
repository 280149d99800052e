"""Pictures: nothing is cut off, no legend covers a curve, and names are drawn as they are written."""

import numpy as np
import numpyro.distributions as dist
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from paper import pictures, published, report
from paper.tables import Gain, Particles, Row

import nestbed as nb
from nestbed.evaluation.comparison import Comparison, PolicyEstimate
from nestbed.faces import figures
from nestbed.runs import fingerprint
from nestbed.runs.run import Log

LONG = "runs/a_rather_long_folder_name_of_a_training_with_learning_rate_0.001_and_eta_0.5/seed_3/policy_best.npz"
PENDULUM = nb.systems.load("linear_pendulum")


class Reactor(nb.System):
    """Four parameters with long names."""

    state = ("level", "temperature_of_the_coolant_at_the_outlet")
    designs = nb.Box(flow=(-1.0, 1.0), temperature_of_the_coolant_at_the_inlet=(0.0, 1.0))
    prior = {
        name: dist.Normal(0.0, 1.0)
        for name in (
            "reaction_rate_constant",
            "activation_energy_barrier",
            "heat_transfer_coefficient",
            "catalyst_deactivation_rate",
        )
    }
    units = {"flow": "$/h for $1", "level": "m"}
    diffusion = (0.1, 0.1)

    def drift(self, x, u, theta):
        return x.level, theta.reaction_rate_constant * x.level


def compared(*names):
    draw = np.random.default_rng(0)
    steps = [draw.exponential(0.1 * (1 + i), (8, 20)) for i in range(len(names))]
    return Comparison([PolicyEstimate(s.sum(1), steps=s, policy=n) for n, s in zip(names, steps, strict=True)])


def log(config=None, system=PENDULUM):
    rows = [{"iteration": i, "eig": 3.0 - 3.0 / (1 + i), "eig_error": 0.1} for i in range(25)]
    full = (config or nb.ScoreClimbingConfig(belief="exact")).resolve(system)
    return Log(full, rows, {"system": fingerprint.describe(system), "key": [0, 0]})


def row(policy, metric):
    return Row("cart_pole", policy, metric, 5, 9.0, 0.5, 0.1, 5, 8.0, 10.0, 9.1, 0.5, 0.1, 0.1, 1.0)


def draw_gains(file):
    sizes = [
        Gain(p, 5, np.linspace(0.1, 3, 50), np.full(50, 0.1), published.information_gain(p))
        for p in ("prbs", "io_smc2")
    ]
    pictures.published_gain(sizes, report.NAMES, file)


def draw_trajectory(file):
    pictures.trajectory(Reactor(), np.ones((51, 2)), np.ones((50, 2)), file, "Reactor")


def draw_particles(file):
    counts = (64, 1024, 8192)
    pictures.particle_sweep([Particles(n, (20.0, 0.5), (5.0, 0.1), np.log1p(n), None, 1.0) for n in counts], file)


def draw(*names, title=None):
    return lambda file: figures.information_gain(compared(*names), Reactor(), file, title)


DRAWN = {
    "one": draw("trained"),
    "two": draw("trained", "random", title="my_reactor.py:Reactor"),
    "nine": draw(*(f"policy_{i}" for i in range(9))),
    "long": draw(LONG, f"{LONG}_again", title=LONG),
    "strange": draw("cost_$5_vs_$10", "_old", r"\$x$", title="a$b_c$"),
    "curve": lambda file: figures.learning_curve([log()], file, log().title),
    "idad": lambda file: figures.learning_curve([log(nb.IDADConfig())], file, log(nb.IDADConfig()).title),
    "curves": lambda file: figures.learning_curve([log(), log()], file, "$two$_of them"),
    "groups": lambda file: pictures.learning_curves(
        {"IO-SMC²": [log()], "exact $a$": [log(), log()]}, file, "Pendulum"
    ),
    "policies": lambda file: pictures.policies(
        [row(p, m) for p in report.NAMES for m in ("eig", "spce")], report.NAMES, file, "Cart-pole"
    ),
    "gains": draw_gains,
    "trajectory": draw_trajectory,
    "particles": draw_particles,
}


@pytest.fixture(params=DRAWN)
def figure(request, tmp_path, monkeypatch):
    """Return a figure as it was saved."""
    kept = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (kept.append(self), save(self, *a, **k)))
    DRAWN[request.param](tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes()[1:4] == b"PNG"
    FigureCanvasAgg(kept[0]).draw()  # at its own resolution, so that extents can be compared
    return kept[0]


def test_nothing_is_cut_off_and_no_legend_covers_a_curve(figure):
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes if axes.get_legend())]
    assert legends
    texts = [figure._suptitle, *(text for legend in legends for text in legend.get_texts())]
    whole = figure.bbox.expanded(1.001, 1.001)
    for text in texts:
        extent = text.get_window_extent()
        assert whole.x0 <= extent.x0 < extent.x1 <= whole.x1, text.get_text()
        assert whole.y0 <= extent.y0 < extent.y1 <= whole.y1, text.get_text()
    for axes in figure.axes:
        for drawn in (*legends, figure._suptitle):
            assert not drawn.get_window_extent().overlaps(axes.bbox)
        assert axes.bbox.height > 0.25 * figure.bbox.height
        assert axes.bbox.width > 0.45 * figure.bbox.width
    for text in texts:
        assert not text._preprocess_math(text.get_text())[1], "a name is taken for a formula"


def test_every_policy_is_in_the_legend_under_its_name(tmp_path, monkeypatch):
    kept = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: kept.append(self))
    DRAWN["strange"](tmp_path / "figure.png")
    told = [text._preprocess_math(text.get_text())[0] for text in kept[0].legends[0].get_texts()]
    assert [name.split(":")[0].strip() for name in told] == ["cost_$5_vs_$10", "_old", r"\$x$"]
    assert kept[0]._suptitle._preprocess_math(kept[0]._suptitle.get_text())[0].startswith("a$b_c$: what each policy")


def test_text_that_is_too_long_is_cut_with_a_mark():
    told = figures.wrapped("word " * 500, 3.0, 10.0, lines=3)
    assert len(told.splitlines()) == 3
    assert told.endswith("…")
    assert figures.wrapped("short\nlines", 3.0, 10.0) == "short\nlines"
