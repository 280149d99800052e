"""A session and a rig on a clock: what rigs may do, and what is left of a session then."""

import signal
import time

import jax
import numpy as np
import pytest

import nestbed as nb
from nestbed.live import driving
from nestbed.live.driving import drive
from nestbed.numerics import interrupts
from toys import Counter, Leak

KEY = jax.random.key(0)
SIZES = {"horizon": 6, "particles": 64}


@pytest.fixture(autouse=True)
def cold(monkeypatch):
    """Sessions are not warmed: each step compiles what it needs, once for all of these tests."""
    monkeypatch.setattr(nb.Session, "warm", lambda self: None)


class Rig:
    """A simulated rig that notes what it was told, and fails from some experiment on."""

    def __init__(self, fails_at=99, failure=lambda: None):
        self.rig, self.told, self.closed = nb.rigs.Simulated(Leak(), KEY), [], False
        self.fails_at, self.failure = fails_at, failure

    def reset(self):
        self.told = []
        return self.rig.reset()

    def apply(self, u):
        self.told.append(float(u[0]))
        if len(self.told) == self.fails_at:
            self.failure()
        return self.rig.apply(u)

    def close(self):
        self.closed = True


def raises():
    raise OSError("the cable is out")


def hangs():
    time.sleep(60.0)


def interrupted():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # processes in the background ignore it
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_session_is_driven_to_its_end_and_the_rig_left_at_rest():
    rig, seen = Rig(), []
    session = nb.Session(Leak(), Counter(), KEY, **SIZES)
    driven = drive(session, rig, watch=lambda now: seen.append(now.session.step))
    assert seen == [0, 1, 2, 3, 4, 5, 6]  # the first reading is none of an experiment
    assert session.records[0].observations[0, 0] == 1.0
    assert "all 6 experiments are done" in driven.ended
    assert rig.told[-1] == 0.0
    assert rig.closed


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (raises, r"the rig failed when it was given the design .*: OSError: the cable is out; nothing .* is lost"),
        (hangs, r"the rig did not answer for 0.2 s when it was given the design .*; nothing .* is lost"),
    ],
)
def test_rigs_that_fail_leave_a_session_that_goes_on(tmp_path, failure, words):
    with nb.Session(Leak(), Counter(), KEY, directory=tmp_path, **SIZES) as session:
        with pytest.raises(nb.NestbedError, match=words):
            drive(session, Rig(3, failure), wait=0.2)
        known = [each.observation.tolist() for each in session.history]
    assert len(known) == 2
    with nb.Session(Leak(), Counter(), KEY, directory=tmp_path, **SIZES) as again:
        assert [each.observation.tolist() for each in again.history] == known
        drive(again, Rig())
        assert again.step == 6
        assert [len(each.designs) for each in again.records] == [2, 4]


@pytest.mark.parametrize("answer", ["hot", [1.0 + 2.0j], {"level": 0.7}, ([0.7], 0.0, {})])
def test_what_is_no_reading_is_told(answer):
    """And the rig is let go, though its answer to the rest design is none either."""

    class Odd(Rig):
        def apply(self, u):
            super().apply(u)
            return answer if len(self.told) > 2 else [0.9]

    rig, session = Odd(), nb.Session(Leak(), Counter(), KEY, **SIZES)
    with pytest.raises(nb.NestbedError, match=r"the rig answered .* but it must return one number for each sensor"):
        drive(session, rig)
    assert (session.step, rig.told[-1], rig.closed) == (2, 0.0, True)
    assert session.warnings == []


@pytest.mark.parametrize("leaving", [KeyboardInterrupt, SystemExit])
def test_a_rig_that_leaves_at_rest_too_is_let_go(leaving):
    class Leaving(Rig):
        def apply(self, u):
            if len(self.told) > 1:
                raise leaving
            return super().apply(u)

    rig, session = Leaving(), nb.Session(Leak(), Counter(), KEY, **SIZES)
    with pytest.raises(leaving):
        drive(session, rig)
    assert rig.closed
    assert session.step == 2


def test_masked_readings_are_no_measurements():
    class Masked(Rig):
        def apply(self, u):
            return np.ma.masked_array(super().apply(u), [len(self.told) == 2])

    session = nb.Session(Leak(), Counter(), KEY, gaps=True, **SIZES)
    drive(session, Masked())
    assert np.isnan(session.records[0].observations[2, 0])


def test_ctrl_c_leaves_the_rig_at_rest():
    rig, session = Rig(3, interrupted), nb.Session(Leak(), Counter(), KEY, **SIZES)
    driven = drive(session, rig)
    assert driven.ended == "stopped by hand after 2 of 6 experiments; the session can go on."
    assert rig.told[-1] == 0.0
    assert rig.closed
    assert not interrupts.asked()


def test_late_samples_count_with_their_real_times(monkeypatch):
    """Of a clock that goes by what rigs take: the third sample is half a period late."""
    now = [0.0]
    monkeypatch.setattr(driving.clocks, "monotonic", lambda: now[0])
    monkeypatch.setattr(driving.clocks, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    rig = Rig(3, lambda: now.__setitem__(0, now[0] + 0.15))
    session = nb.Session(Leak(), Counter(), KEY, gaps=True, **SIZES)
    driven = drive(session, rig, rate=10.0)
    assert driven.late == 1
    np.testing.assert_allclose(np.diff(session.records[0].times) / Leak().step, [1.0, 1.0, 1.5, 1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("rig", "rate", "words"),
    [(Rig, None, "give an instance"), (object(), None, "needs the methods"), (Rig(), 0.0, "rate")],
)
def test_what_is_no_rig_is_told(rig, rate, words):
    with pytest.raises(nb.NestbedError, match=words):
        drive(nb.Session(Leak(), Counter(), KEY, **SIZES), rig, rate=rate)
