"""What a stranger adds: a file's worth of code and one entry, and everything follows that lists, makes or resumes."""

import dataclasses
from contextlib import ExitStack
from typing import ClassVar

import numpyro.distributions as dist
import pytest

import nestbed as nb
from nestbed.belief.exact import Exact
from nestbed.belief.registry import BELIEFS, BeliefEntry
from nestbed.faces.cli.registry import COMMANDS
from nestbed.numerics.registry import Entry
from nestbed.policies.registry import BASELINES, Baseline
from nestbed.systems.registry import SYSTEMS
from nestbed.training.config import option
from nestbed.training.registry import METHODS, Method
from nestbed.training.score_climbing import ScoreClimbing, ScoreClimbingConfig

# A system.


class Spring(nb.System):
    """A mass on a spring of unknown stiffness."""

    state = ("position",)
    designs = nb.Box(force=(-1.0, 1.0))
    prior = {"stiffness": dist.Normal(1.0, 0.7)}
    step, diffusion, noise_floor = 0.5, (0.5,), 0.0
    start = (1.0,)
    defaults = nb.Defaults(horizon=3, trajectories=12, particles=16, iterations=1)

    def drift(self, x, u, theta):
        return -theta.stiffness * x.position + u.force

    def features(self, x, u):
        return ((-x.position,),)


# A belief.


class Bold(Exact):
    """An exact belief that claims to know a limit."""

    kind = "bold"

    @property
    def most(self):
        return 12.5


# A baseline.


def steady(system, horizon, level):
    """Return the policy that repeats one design."""
    return nb.policies.Replay(system, [[level]] * horizon)


# A training method.


@dataclasses.dataclass(frozen=True)
class PatientConfig(ScoreClimbingConfig):
    """Score climbing with a setting of its own."""

    method: ClassVar[str] = "patient"
    patience: int = option(7, "how long to wait")


class Patient(ScoreClimbing):
    """Score climbing that reports how long it waited."""

    def iterate(self, key, state):
        state, row = super().iterate(key, state)
        return state, {**row, "waited": float(self.config.patience)}


# A command.


def greet(name: str, *, loudly: bool = False) -> None:
    """Greet somebody, at length.

    Parameters
    ----------
    name
        Whom to greet.
    loudly
        With emphasis.
    """
    print(f"hello {name}{'!' * loudly}")


def at(name):
    return f"{__name__}:{name}"


@pytest.fixture
def added():
    """Add one entry of each kind for a while."""
    legend = "EIG, and what the patient method waited"
    with ExitStack() as stack:
        for registry, entry in (
            (SYSTEMS, Entry("spring", at("Spring"), "a mass on a spring")),
            (BELIEFS, BeliefEntry("bold", at("Bold"), "claims a limit", "bold belief")),
            (BASELINES, Baseline("steady", at("steady"), "one design always", {"level": 0.5}, timed=True)),
            (METHODS, Method("patient", at("Patient"), "waits", config=at("PatientConfig"), legend=legend)),
            (COMMANDS, Entry("greet", at("greet"), "Greet somebody.")),
        ):
            stack.enter_context(registry.having(entry))
        yield


@pytest.fixture
def nestbed(command):
    """Return how to run the command line, and get what it printed without frames, on one line."""

    def run(*arguments, status=0):
        result = command(*arguments)
        assert result.returncode == status, result.stderr
        return " ".join((result.stderr if status else result.stdout).replace("│", " ").split())

    return run


def test_help_lists_what_was_added(added, nestbed):
    assert "greet Greet somebody." in nestbed("--help")
    assert "Greet somebody, at length." in nestbed("greet", "--help")
    train, compare, evaluate = (nestbed(command, "--help") for command in ("train", "compare", "evaluate"))
    assert "patient (waits)" in train
    assert "patient (waits)" in nestbed("config", "--help")
    for page in (compare, evaluate):
        assert "steady (one design always)" in page
        assert "bold (claims a limit)" in page
    for page in (train, compare, evaluate):
        assert "spring" in page


def test_help_lists_it_no_longer_when_it_is_gone(nestbed):
    pages = nestbed("--help") + nestbed("train", "--help") + nestbed("compare", "--help")
    for name in ("greet", "patient", "steady", "bold", "spring"):
        assert name not in pages


def test_an_added_command_runs(added, nestbed):
    assert nestbed("greet", "world", "--loudly") == "hello world!"


def test_an_added_system_is_listed_and_an_added_method_configured(added, nestbed):
    assert "stiffness" in nestbed("systems")
    settings = nestbed("config", "spring", "--method", "patient")
    assert 'method = "patient"' in settings
    assert "patience = 7 # how long to wait" in settings
    assert "bold (claims a limit)" in settings


def test_what_was_added_is_trained_resumed_shown_and_compared(added, nestbed, tmp_path):
    out = tmp_path / "run"
    small = ["policy.encoder=[6]", "policy.recurrent=[5]", "policy.head=[4]", "belief=bold", "patience=3"]
    train = ["train", "spring", "--out", out, "--quiet"]
    nestbed(*train, "--method", "patient", "--set", *small)
    assert (out / "curve.png").stat().st_size > 10_000
    assert "holds a run already; resume it or choose another (--resume continues it)." in nestbed(*train, status=2)
    nestbed(*train, "--resume", "--set", "iterations=2")
    run = nb.load_run(out)
    assert (type(run.system), type(run.config), run.iteration) == (Spring, PatientConfig, 2)
    assert [row.get("waited") for row in run.metrics] == [None, 3.0, 3.0]
    shown = nestbed("show", out)
    assert "waited" in shown
    assert "what the patient method waited" in shown
    sizes = ["--seeds", 2, "--trajectories", 2, "--belief", "bold"]
    compared = nestbed("compare", "spring", out, "--baselines", "steady", *sizes)
    assert "bold belief" in compared
    assert "1 run" in compared
    assert "2 steady" in compared
    assert "estimate, ≤ 12.50 a step" in nestbed("evaluate", out, "--contrastive", 0, *sizes)


def test_mistakes_name_what_was_added(added, nestbed):
    assert "did you mean 'spring'?" in nestbed("train", "sprinng", status=2)
    assert "did you mean 'patient'?" in nestbed("config", "spring", "--method", "pateint", status=2)
    assert "did you mean 'steady'?" in nestbed("compare", "spring", "--baselines", "stedy", status=2)
    assert "did you mean 'bold'?" in nestbed("compare", "spring", "--belief", "blod", status=2)
