"""Ctrl-C: obeyed wherever it lands, and nothing is lost by it."""

import gc
import os
import signal
import sys
import time
import weakref

import jax
import pytest

import nestbed as nb
import stopping
from children import NESTBED, run, running
from nestbed.faces.cli.train import train
from nestbed.numerics import interrupts
from toys import TRAINING, LinearLeak

LEAK = LinearLeak()
RANDOM = nb.policies.Random(LEAK)


@pytest.fixture
def installed(monkeypatch):
    """Obey Ctrl-C as the command line does, for one test."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    monkeypatch.setattr(interrupts, "_asked", False)
    monkeypatch.setattr(interrupts, "_working", False)
    interrupts.install()
    yield
    signal.signal(signal.SIGINT, before)


def press():
    signal.raise_signal(signal.SIGINT)


class Finalised:
    def __del__(self):
        press()


def in_collection():
    def callback(phase, info):
        if phase == "start":
            press()

    gc.callbacks.append(callback)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(callback)


def in_finalisation():
    Finalised()


def in_weak_reference():
    held = Finalised.__new__(type("Held", (), {}))
    kept = weakref.ref(held, lambda _: press())
    del held
    assert kept() is None


def in_import():
    """As jax and matplotlib import parts of themselves when they are first needed."""
    sys.modules.pop("pressing", None)
    import pressing  # noqa: F401


@pytest.mark.parametrize("lands", [in_collection, in_finalisation, in_weak_reference, in_import])
def test_ctrl_c_that_python_drops_is_obeyed_at_the_next_turn(installed, capsys, monkeypatch, tmp_path, lands):
    (tmp_path / "pressing.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    monkeypatch.syspath_prepend(tmp_path)
    interrupts.check()
    lands()
    assert interrupts.asked()
    with pytest.raises(KeyboardInterrupt):
        interrupts.check()
    assert capsys.readouterr().err == ""


def test_elsewhere_it_is_obeyed_at_once(installed):
    with pytest.raises(KeyboardInterrupt):
        press()


@pytest.mark.parametrize(
    "work",
    [
        lambda place: nb.train(jax.random.key(0), LEAK, TRAINING),
        lambda place: nb.train(jax.random.key(0), LEAK, TRAINING, out=place, resume=True),
        lambda place: nb.eig(jax.random.key(0), LEAK, RANDOM, belief="exact"),
        lambda place: nb.spce(jax.random.key(0), LEAK, RANDOM, contrastive=10),
    ],
)
def test_every_loop_asks_at_each_turn(installed, monkeypatch, tmp_path, work):
    monkeypatch.setattr(interrupts, "_asked", True)
    with pytest.raises(KeyboardInterrupt):
        work(tmp_path)


def test_training_stops_between_iterations(installed, monkeypatch, tmp_path):
    def stop(run):
        monkeypatch.setattr(interrupts, "_asked", run.iteration == 2)

    with pytest.raises(KeyboardInterrupt):
        nb.train(jax.random.key(0), LEAK, TRAINING, out=tmp_path, progress=stop)
    assert nb.load_run(tmp_path, LEAK).iteration == 2


@pytest.mark.slow
def test_a_process_that_was_started_to_ignore_it_goes_on(tmp_path):
    method = ("--method", "score_climbing")
    arguments = ("train", stopping.TANK, "--out", tmp_path, *method, "--set", *stopping.FLAGS, "iterations=30")
    with running(*NESTBED, *arguments, interruptible=False) as process:
        while process.poll() is None and not (tmp_path / "metrics.jsonl").exists():
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=120)
    assert process.returncode == 0, told


SLOW = "import sys, time\nprint('importing', flush=True)\n"
CONVERTED = """
try:
    time.sleep(60)
except KeyboardInterrupt:
    print("as numpy does within jaxlib", file=sys.stderr)
    raise ImportError("initialisation failed")
"""


@pytest.mark.parametrize(
    ("module", "code"), [("cyclopts", "time.sleep(60)"), ("jax", "time.sleep(60)"), ("jax", CONVERTED)]
)
def test_ctrl_c_while_modules_are_imported_leaves_no_traceback(tmp_path, module, code):
    (tmp_path / f"{module}.py").write_text(SLOW + code)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    with running(*NESTBED, "show", "nowhere", env={**os.environ, "PYTHONPATH": path}) as process:
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (130, "nestbed: stopped\n")


def test_commands_that_are_suggested_can_be_pasted(tmp_path, capsys):
    out = tmp_path / "a folder; with 'quotes'"
    train(stopping.TANK, out=out, quiet=True, method="score_climbing", set=[*stopping.FLAGS, "iterations=1"])
    (suggested,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("Next: "))
    tried = run("/bin/sh", "-c", f'set -- {suggested.removeprefix("Next: ")}; printf "%s\\n" "$@"')
    assert tried.stdout.splitlines() == ["nestbed", "compare", stopping.TANK, str(out)]


@pytest.mark.slow
def test_sixty_interrupts_and_forty_kills_lose_nothing(tmp_path):
    counts = (int(os.environ.get(f"NESTBED_{name}", count)) for name, count in (("INTERRUPTS", 60), ("KILLS", 40)))
    told = stopping.hunt(*counts, tmp_path)
    print(dict(told), file=sys.stderr)
    assert not [what for what in stopping.BAD if told[what]], told
    assert not [what for what in told if "odd" in what], told
