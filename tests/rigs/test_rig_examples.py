"""The rigs of examples/rigs: each is what its system says, and a session learns from it."""

from pathlib import Path

import jax
import numpy as np
import pytest

import nestbed as nb
from nestbed.rigs.loading import load

PLACE = Path(__file__).parents[2] / "examples" / "rigs"
KEY = jax.random.key(0)
EXAMPLES = pytest.mark.parametrize(
    ("file", "name", "maker", "package"),
    [
        ("gymnasium_pendulum.py", "GymPendulum", "rig", "gymnasium"),
        ("mujoco_pendulum.py", "Swing", "rig", "mujoco"),
        ("temperature_lab.py", "Lab", "emulator", "tclab"),
    ],
)
TRUTH = {
    "GymPendulum": {"mass": 1.2, "length": 0.9},
    "Swing": {"mass": 1.3, "length": 0.6, "damping": 0.3},
    "Lab": {"gain": 255 / 5720, "loss": 1 / 20, "exchange": 1 / 100, "lag": 1 / 140, "offset": 0.0},
}
"""What the rigs really have."""


def made(file, name, maker):
    system = nb.systems.load(f"{PLACE / file}:{name}")
    inputs = np.tile(np.repeat([system.designs.high, system.designs.low], 3, axis=0), (2, 1))
    return system, load(f"{PLACE / file}:{maker}", system, KEY), inputs


def followed(system, theta, x, inputs, parts):
    """Return what the equations show after each input, in so many Euler steps each."""
    rates = jax.jit(lambda x, u: system.rates(x, u, theta))
    shown = []
    for u in inputs:
        for _ in range(parts):
            x = tuple(a + system.step / parts * b for a, b in zip(x, rates(x, tuple(u)), strict=True))
        named, values = system.State(*x), system.Theta(*theta)
        shown.append(system.observe(named, values) if hasattr(system, "observe") else x[: len(system.sensors)])
    return np.array(shown, float).reshape(len(inputs), -1)


@EXAMPLES
def test_the_rig_is_what_its_system_says(file, name, maker, package):
    """With its true parameters, within six standard deviations of the readings."""
    pytest.importorskip(package)
    system, rig, inputs = made(file, name, maker)
    first = rig.reset()
    start = rig.environment.unwrapped.state if name == "GymPendulum" else np.zeros(len(system.state))
    seen = np.array([rig.apply(u) for u in inputs])
    theta = tuple(TRUTH[name][each] for each in system.parameter_names)
    expected = followed(system, theta, tuple(start), inputs, 1 if name == "GymPendulum" else 100)
    steps = np.array([system.resolution.get(each, 0.0) for each in system.sensors])
    assert np.isfinite(first).all()
    assert (np.abs(seen - expected) < 6.0 * np.array([*system.sensors.values()]) + 0.5 * steps).all()


@pytest.mark.slow
@EXAMPLES
def test_a_session_learns_from_the_rig(file, name, maker, package):
    """A held binary signal: readings are explained, and something is gained."""
    pytest.importorskip(package)
    system, rig, inputs = made(file, name, maker)
    session = nb.Session(system.replace(limits={}), inputs, KEY, particles=64)
    session.update(rig.reset())
    while session.done is None:
        session.update(rig.apply(session.suggest()))
    assert session.warnings == []
    assert session.gain > 0.5
