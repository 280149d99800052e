"""Rigs that others wrote: Gymnasium, MuJoCo and the temperature-control lab, and a system as an environment."""

import jax
import numpy as np
import pytest

import nestbed as nb
from nestbed import rigs
from nestbed.rigs import tclab as lab

PENDULUM = """
<mujoco><option timestep="0.01"/>
  <worldbody><body><joint name="hinge" type="hinge" axis="0 1 0" damping="0.1"/>
    <geom type="capsule" fromto="0 0 0 0 0 -1" size="0.05" mass="1"/></body></worldbody>
  <actuator><motor joint="hinge"/></actuator>
  <sensor><jointpos joint="hinge"/><jointvel joint="hinge"/></sensor>
</mujoco>
"""


@pytest.mark.filterwarnings("ignore:.*infinity")  # what is seen has no bounds
def test_a_system_is_an_environment():
    pytest.importorskip("gymnasium")
    from gymnasium.utils.env_checker import check_env

    check_env(rigs.Environment(nb.systems.load("nonlinear_pendulum"), horizon=3), skip_render_check=True)


def test_an_environment_is_a_rig():
    pytest.importorskip("gymnasium")
    rig = rigs.Gymnasium("Pendulum-v1", max_episode_steps=2)
    first = rig.reset()
    assert first.shape == (3,)
    assert np.hypot(*first[:2]) == pytest.approx(1.0, abs=1e-6)
    assert np.isfinite([rig.apply([1.0]) for _ in range(2)]).all()
    assert np.isnan(rig.apply([1.0])).all()  # the episode is over
    np.testing.assert_array_equal(rig.reset(), first)
    rig.close()


def test_discrete_actions_are_refused():
    pytest.importorskip("gymnasium")
    with pytest.raises(nb.NestbedError, match="needs continuous ones"):
        rigs.Gymnasium("CartPole-v1")


def test_simulated_sensors_show_the_steps_of_their_resolution():
    system = nb.systems.load("heater")
    rig = rigs.Simulated(system, jax.random.key(0))
    shown = np.array([rig.reset(), *(rig.apply([50.0]) for _ in range(5))]) / system.resolution["temperature"]
    np.testing.assert_allclose(shown, np.round(shown), atol=1e-9)


def test_a_mujoco_model_is_a_rig():
    """At rest nothing moves; a push for one step leaves a speed of about τ t / I, where I = m l² / 3, at its end."""
    pytest.importorskip("mujoco")
    rig = rigs.Mujoco(PENDULUM, 0.05)
    np.testing.assert_array_equal(rig.reset(), [0.0, 0.0])
    np.testing.assert_allclose(rig.apply([0.0]), 0.0, atol=1e-12)
    assert rig.apply([0.1])[1] == pytest.approx(0.1 * 0.05 * 3.0, rel=0.1)
    with pytest.raises(nb.NestbedError, match="no whole number"):
        rigs.Mujoco(PENDULUM, 0.055)


def test_the_emulated_heater_learns_from_a_session(capsys):
    """The emulator has other equations than the model; a few samples of full power, then what is known has grown."""
    pytest.importorskip("tclab")
    system, rig = nb.systems.load("heater"), rigs.TemperatureLab(emulated=True, seconds=10.0)
    session = nb.Session(system, np.full((4, 1), 80.0), jax.random.key(0), particles=64)
    session.update(rig.reset())
    while not session.done:
        session.update(rig.apply(session.suggest()), time=10.0 * (session.step + 1))
    rig.close()
    seen = session.records[0].observations[:, 0]
    assert (np.diff(seen) > 0.0).all()
    assert 3.0 < seen[-1] < 15.0
    assert session.gain > 0.0


def test_the_board_is_waited_for(monkeypatch):
    """Time is a clock's for the real board: samples are a step apart however long the caller took between them."""
    tclab = pytest.importorskip("tclab")
    now, slept = [100.0], []

    class Board:
        T1 = 21.0
        Q1 = staticmethod(lambda percent: percent)

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(tclab, "TCLab", Board)
    monkeypatch.setattr(lab.clocks, "monotonic", lambda: now[0])
    monkeypatch.setattr(lab.clocks, "sleep", sleep)
    rig = rigs.TemperatureLab(seconds=2.0)
    rig.reset()
    rig.apply([10.0])
    now[0] += 0.5
    rig.apply([10.0])
    assert slept == [2.0, 1.5]
