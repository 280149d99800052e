"""Pictures: nothing is cut off, no legend covers a curve, and names are drawn as they are written."""

import numpy as np
import numpyro.distributions as dist
import pytest
from matplotlib.figure import Figure

import layout
import nestbed as nb
from nestbed.evaluation.comparison import Comparison, PolicyEstimate
from nestbed.faces import figures
from nestbed.runs import fingerprint
from nestbed.runs.run import Log

LONG = "runs/a_rather_long_folder_name_of_a_training_with_learning_rate_0.001_and_eta_0.5/seed_3/policy_best.npz"
CURVE = np.column_stack([np.arange(25), np.linspace(0, 3, 25), np.full(25, 0.1)])
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
    "behind": lambda file: figures.learning_curve([log()], file, "Pendulum", figures.Behind("$theirs$", CURVE)),
}


@pytest.mark.parametrize("draw", DRAWN.values(), ids=DRAWN)
def test_nothing_is_cut_off_and_no_legend_covers_a_curve(draw, tmp_path, monkeypatch):
    layout.check(layout.saved(draw, tmp_path / "figure.png", monkeypatch))


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
