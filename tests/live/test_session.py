"""Sessions: what goes out, what comes in, what is known, and what survives."""

import errno
import importlib.util
import random
import shutil
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special

import children
import nestbed as nb
from nestbed.live import journal as journals
from nestbed.live import keeping, reading
from nestbed.live.safety import Checked
from nestbed.live.session import _replaced
from nestbed.numerics import storage
from toys import Bounded, Counter, Leak, LinearLeak

KEY = jax.random.key(0)
SIZES = {"horizon": 6, "particles": 64}


class Cart(nb.System):
    """A cart that is seen by its position alone and cannot stop at once."""

    state = ("place", "speed")
    designs = nb.Box(push=(-1.0, 1.0))
    prior = {"mass": dist.LogNormal(0.0, 0.2)}
    start = {"place": dist.Normal(0.0, 0.05)}
    sensors = {"place": 0.01}
    limits = {"place": (-0.5, 0.5)}
    step, diffusion, integrator = 0.2, (0.0, 0.02), "euler"
    defaults = nb.Defaults(horizon=12)

    def drift(self, x, u, theta):
        return x.speed, u.push / theta.mass


def run(session, rig, steps):
    """Go on for some steps; the rig is where it was."""
    for _ in range(steps):
        session.update(rig.apply(session.suggest()))
    return session


def facts(session):
    """Return all that must not depend on having been stopped."""
    rows = [(each.applied.tolist(), each.observation.tolist(), each.gain) for each in session.history]
    return rows, session.posterior.mean, session.posterior.sd, session.warnings, session.suggest().tolist()


def test_a_session_in_a_few_lines():
    system = Leak()
    rig = nb.rigs.Simulated(system, KEY, {"rate": 1.5})
    session = nb.Session(system, nb.policies.PRBS(system), KEY, **SIZES)
    session.update(rig.reset())
    first = session.suggest()
    assert np.array_equal(first, session.suggest())
    assert first.shape == (1,)
    run(session, rig, 6)
    assert session.step == 6
    assert len(session.history) == 6
    low, high = session.posterior.quantiles([0.025, 0.975])["rate"]
    assert low < session.posterior.mean["rate"] < high
    assert session.posterior.sd["rate"] < 0.7
    assert "all 6 experiments are done" in session.done
    assert session.warnings == []


@pytest.mark.parametrize("gaps", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_what_sensors_will_show_is_the_mixture_over_particles(gaps):
    session = nb.Session(Leak(), Counter(), KEY, gaps=gaps, **SIZES)
    assert session.first is None
    session.update([1.0])
    assert session.first.tolist() == [1.0]
    u, known = session.suggest(), session.posterior
    mean, low, high = known.predicted(u, [0.025, 0.975])["level"]
    means = 1.0 + 0.5 * (u[0] - np.asarray(known.belief.theta[0]))
    for value, share in ((low, 0.025), (high, 0.975)):
        assert known.weights @ special.ndtr((value - means) / np.sqrt(0.125)) == pytest.approx(share, abs=1e-9)
    assert mean == pytest.approx(known.weights @ means, abs=1e-12)


@pytest.mark.slow
def test_what_is_known_is_what_the_record_says():
    """The same belief as `nb.posterior` with many particles of the whole record, by six Monte Carlo errors of 512."""
    system = LinearLeak()
    rig = nb.rigs.Simulated(system, KEY)
    session = nb.Session(system, Counter(), KEY, horizon=6)
    session.update(rig.reset())
    run(session, rig, 6)
    (record,) = session.records
    exact = nb.posterior(KEY, system, record.observations, record.designs, belief="exact")
    error = 6.0 * float(exact.covariance[0, 0]) ** 0.5 / np.sqrt(512 / 4)
    assert abs(session.posterior.mean["rate"] - float(exact.mean[0])) < error
    assert session.posterior.sd["rate"] == pytest.approx(float(exact.covariance[0, 0]) ** 0.5, rel=0.3)


def test_without_a_first_observation_the_start_counts():
    session = nb.Session(Leak(), Counter(), KEY, **SIZES)
    session.suggest()
    session.update([0.7])
    assert session.step == 1
    assert session.records[0].observations[:, 0].tolist() == [1.0, 0.7]
    hidden = nb.Session(Cart(), nb.policies.PRBS(Cart()), KEY, **SIZES)
    hidden.suggest()
    hidden.update([0.01])
    assert np.isnan(hidden.records[0].observations[0, 0])


@pytest.mark.slow
def test_gaps_uneven_times_and_other_designs_are_those_of_the_posterior():
    """Which takes the same rows at once; by six Monte Carlo errors."""
    system = Leak()
    session = nb.Session(system, Counter(), KEY, horizon=6)
    session.update([1.0])
    for y, applied, when in (
        (0.9, None, None),
        (np.nan, [0.5], None),
        (0.6, None, 1.9),
        (0.5, [-0.2], 2.4),
        (0.4, None, None),
    ):
        session.suggest()
        session.update([y], applied=applied, time=when)
    (record,) = session.records
    assert record.times.tolist() == [0.0, 0.5, 1.0, 1.9, 2.4, 2.9]
    assert record.designs[1].tolist() == [0.5]
    whole = nb.posterior(KEY, system, record.observations, record.designs, times=record.times, particles=4096)
    sd = float(whole.covariance[0, 0]) ** 0.5
    assert abs(session.posterior.mean["rate"] - float(whole.mean[0])) < 6.0 * sd / np.sqrt(512 / 4)


def test_limits_are_kept_by_what_cannot_stop_at_once():
    """Full push leads beyond in six steps; the session brakes in time, and says so."""
    system = Cart()
    full = nb.policies.Constant(system, 1.0)
    rig = nb.rigs.Simulated(system, KEY, {"mass": 1.1})
    session = nb.Session(system, full, KEY, particles=64)
    session.update(rig.reset())
    places = []
    for _ in range(12):
        session.update(rig.apply(session.suggest()))
        places.append(rig.states["place"])
    assert max(places) < 0.5
    assert "the limit of place would be broken" in session.warnings[0]
    alone = nb.rigs.Simulated(system, KEY, {"mass": 1.1})
    alone.reset()
    for _ in range(12):
        alone.apply([1.0])
    assert alone.states["place"] > 0.5


def test_the_risk_is_that_of_the_whole_session(tmp_path):
    """Each experiment has an even share of what those before it left, whatever stopped the session meanwhile."""
    system, risk, steps = Cart(), 0.05, 8
    rig = nb.rigs.Simulated(system, KEY, {"mass": 1.1})
    given = {"directory": tmp_path, "particles": 64, "risk": risk}
    with nb.Session(system, nb.policies.Constant(system, 1.0), KEY, **given) as session:
        session.update(rig.reset())
        run(session, rig, steps)
        taken = [entry["risk"] for entry in session._journal.entries if entry["kind"] == "suggest"]
    for t, each in enumerate(taken):
        assert each <= (risk - sum(taken[:t])) / (system.horizon - t + 1)
    assert 0.0 < sum(taken) < risk
    for kept in (True, False):
        if not kept:
            (tmp_path / keeping.FILE).unlink()
        with nb.Session(system, nb.policies.Constant(system, 1.0), KEY, **given) as session:
            assert session._state.risked == pytest.approx(sum(taken))
            assert session._state.allowance(risk) == pytest.approx((risk - sum(taken)) / (system.horizon - steps + 1))
    session._state.horizon = 108
    assert session._state.allowance(risk) == pytest.approx((risk - sum(taken)) / 101)
    session._state.risked = 1.0
    assert session._state.allowance(risk) == 0.0


def test_designs_keep_box_and_slew():
    system = Bounded(limits={})
    session = nb.Session(system, nb.policies.Constant(system, 1.0), KEY, **SIZES)
    session.update([0.0])
    assert session.suggest().tolist() == [3.0]
    session.update([0.1])
    assert session.suggest().tolist() == [4.0]


def test_aborting_ends_it_for_good(tmp_path):
    session = nb.Session(Leak(), Counter(), KEY, directory=tmp_path, **SIZES)
    session.suggest()
    assert session.abort("smoke").tolist() == [0.0]
    session.update([0.8])
    session.close()
    again = nb.Session(Leak(), Counter(), KEY, directory=tmp_path, **SIZES)
    assert again.suggest().tolist() == [0.0]
    assert again.step == 1
    assert "smoke" in again.done


def test_a_watchdog_puts_the_rig_at_rest(monkeypatch):
    session = nb.Session(Leak(), nb.policies.Constant(Leak(), 1.0), KEY, watchdog=5.0, **SIZES)
    session.update([1.0])
    assert session.suggest().tolist() == [1.0]
    now = time.monotonic()
    monkeypatch.setattr("nestbed.live.session.clocks.monotonic", lambda: now + 6.0)
    monkeypatch.setattr("nestbed.live.session.clocks.time", lambda: 0.0)  # a clock that is set does not matter
    assert session.suggest().tolist() == [0.0]
    assert "no measurement for 5 s" in session.warnings[0]
    session.update([0.9])
    assert session.history[-1].applied.tolist() == [0.0]
    assert session.suggest().tolist() == [1.0]


@pytest.mark.slow
def test_stopping_when_little_is_left_to_gain():
    system = Leak()
    session = nb.Session(system, nb.policies.PRBS(system), KEY, stop_below=50.0, **SIZES)
    session.update([1.0])
    assert "expected to gain" in session.done
    session.stop_below = None
    assert session.done is None
    session.target_sd = {"rate": 10.0}
    assert "as well as was asked for" in session.done
    left = session.expected_gain()
    assert 0.0 < left.next < left.remaining


def test_the_horizon_may_be_extended(tmp_path):
    rig = nb.rigs.Simulated(Leak(), KEY)
    session = nb.Session(Leak(), Counter(), KEY, directory=tmp_path, horizon=2, particles=64)
    session.update(rig.reset())
    run(session, rig, 2)
    assert session.done
    session.extend(4)
    assert session.done is None
    run(session, rig, 2)
    session.close()
    assert nb.Session(Leak(), Counter(), KEY, directory=tmp_path, horizon=2, particles=64).horizon == 4


@pytest.mark.slow
def test_a_restart_begins_another_record():
    rig = nb.rigs.Simulated(Leak(), KEY)
    session = nb.Session(Leak(), Counter(), KEY, **SIZES)
    session.update(rig.reset())
    run(session, rig, 2)
    session.restart(rig.reset())
    run(session, rig, 2)
    one, two = session.records
    assert (len(one.designs), len(two.designs)) == (2, 2)
    whole = nb.posterior(KEY, Leak(), [one.observations, two.observations], [one.designs, two.designs], particles=4096)
    sd = float(whole.covariance[0, 0]) ** 0.5
    assert abs(session.posterior.mean["rate"] - float(whole.mean[0])) < 6.0 * sd / np.sqrt(64 / 4)


@pytest.mark.slow
def test_later_comes_to_the_same():
    rig, other = (nb.rigs.Simulated(Leak(), KEY) for _ in range(2))
    now = nb.Session(Leak(), Counter(), KEY, **SIZES)
    later = nb.Session(Leak(), Counter(), KEY, posterior="later", **SIZES)
    now.update(rig.reset())
    later.update(other.reset())
    run(now, rig, 5)
    run(later, other, 5)
    later.catch_up()
    assert facts(now) == facts(later)
    later.close()


class Stop(BaseException):
    """Stands for a process that is killed."""


def killed_at(monkeypatch, moment, torn):
    """Let the write of that number end the process: before it, in the middle of it, or after it."""
    count = [0]
    append, write = storage.append, storage.write

    def failing(function):
        def call(file, data, **options):
            count[0] += 1
            if count[0] == moment:
                if torn == "middle" and function is append:
                    append(file, data[: len(data) // 2])
                if torn == "after":
                    function(file, data, **options)
                raise Stop
            return function(file, data, **options)

        return call

    monkeypatch.setattr(storage, "append", failing(append))
    monkeypatch.setattr(storage, "write", failing(write))


def test_nothing_is_lost_wherever_a_process_ends(tmp_path, monkeypatch):
    """Ended at each of its writes, before, within and after it, a session goes on to the same end."""

    def session(folder):
        return nb.Session(Leak(), Counter(), KEY, directory=folder, **SIZES)

    rows = [0.9, 0.7, 0.8, 0.5]

    def through(folder):
        """Give each measurement that is not known yet, as one who retries what was not confirmed."""
        now = session(folder)
        try:
            if not now.records and now._state.first is None:
                now.update([1.0])
            while now.step < len(rows):
                now.suggest()
                now.update([rows[now.step]])
            return facts(now)
        finally:
            now.close()

    whole = through(tmp_path / "whole")
    monkeypatch.setattr("nestbed.live.session.EVERY", 3)
    moments = [(moment, torn) for moment in range(2, 11) for torn in ("before", "middle", "after")]
    for moment, torn in random.Random(0).sample(moments, 12):
        folder = tmp_path / f"{moment}_{torn}"
        with monkeypatch.context() as patch:
            killed_at(patch, moment, torn)
            with pytest.raises(Stop):
                through(folder)
        assert through(folder) == whole


def test_a_full_disk_is_told_and_the_session_goes_on(tmp_path, monkeypatch):
    session = nb.Session(Leak(), Counter(), KEY, directory=tmp_path, **SIZES)
    session.update([1.0])
    session.suggest()
    append = storage.append

    def full(file, data, flush):
        append(file, data[: len(data) // 2], flush)  # what a full disk leaves
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(storage, "append", full)
        session.update([0.9])
        session.suggest()
        session.update([0.7])
    assert [words for words in session.warnings if "goes on in memory" in words]
    assert len([words for words in session.warnings if "goes on in memory" in words]) == 1
    session.suggest()
    session.update([0.8])
    known = facts(session)
    session.close()
    again = nb.Session(Leak(), Counter(), KEY, directory=tmp_path, **SIZES)
    assert facts(again)[0] == known[0]
    assert not (tmp_path / journals.LINES).read_bytes().endswith(b"}{")


def test_a_folder_is_of_one_session(tmp_path):
    session = nb.Session(Leak(), Counter(), KEY, directory=tmp_path, **SIZES)
    with pytest.raises(nb.NestbedError, match="another process"):
        nb.Session(Leak(), Counter(), KEY, directory=tmp_path, **SIZES)
    session.close()
    with pytest.raises(nb.NestbedError, match="begun with key"):
        nb.Session(Leak(), Counter(), jax.random.key(1), directory=tmp_path, **SIZES)
    with pytest.raises(nb.NestbedError, match="has changed"):
        nb.Session(Leak(step=0.25), Counter(), KEY, directory=tmp_path, **SIZES)


def test_a_session_of_another_version_is_refused(tmp_path):
    nb.Session(Leak(), Counter(), KEY, directory=tmp_path, **SIZES).close()
    file, form = tmp_path / journals.HEAD, journals.FORMAT
    file.write_text(file.read_text().replace(f'"format": {form}', f'"format": {form - 1}'))
    with pytest.raises(nb.NestbedError, match=f"of format {form - 1}, but this version of nestbed has format {form}"):
        nb.Session(Leak(), Counter(), KEY, directory=tmp_path, **SIZES)


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b'{"kind": "dance"}',
        b'{"kind": "update"}',
        b'{"kind": "update", "y": [1, 2], "clock": 0, "time": 9}',
        b'{"kind": "suggest", "u": [null], "why": ""}',
        b'{"kind": "suggest", "u": [0.1], "why": "", "risk": "x"}',
        b'{"kind": "extend", "horizon": -5}',
    ],
)
def test_lines_that_no_session_wrote_are_told_by_number(tmp_path, line):
    with nb.Session(Leak(), Counter(), KEY, directory=tmp_path, **SIZES) as session:
        session.update([1.0])
        session.suggest()
    (tmp_path / keeping.FILE).unlink(missing_ok=True)
    file = tmp_path / journals.LINES
    file.write_bytes(file.read_bytes() + line + b"\n")
    with pytest.raises(nb.NestbedError, match=r"line 3 of 3 in the journal of .* restore it from a copy"):
        nb.Session(Leak(), Counter(), KEY, directory=tmp_path, **SIZES)


def test_a_session_without_its_description_is_left_as_it_is(tmp_path):
    with nb.Session(Leak(), Counter(), KEY, directory=tmp_path, **SIZES) as session:
        session.update([1.0])
    head, lines = tmp_path / journals.HEAD, (tmp_path / journals.LINES).read_bytes()
    whole = head.read_text()
    for damage in (f'{{"format": {journals.FORMAT}}}', whole.replace('"horizon": 6', '"horizon": "six"')):
        head.write_text(damage)
        with pytest.raises(nb.NestbedError, match=r"is damaged .* restore it from a copy"):
            nb.Session(Leak(), Counter(), KEY, directory=tmp_path, **SIZES)
    head.unlink()
    with pytest.raises(nb.NestbedError, match="is missing; restore it"):
        nb.Session(Leak(), Counter(), KEY, directory=tmp_path, **SIZES)
    assert (tmp_path / journals.LINES).read_bytes() == lines
    head.write_text(whole)
    moved = shutil.move(tmp_path, f"{tmp_path}_elsewhere")
    assert nb.Session(Leak(), Counter(), KEY, directory=moved, **SIZES).records == []


SECOND = """
import sys, jax, nestbed as nb
from toys import Counter, Leak
try:
    nb.Session(Leak(), Counter(), jax.random.key(0), directory=sys.argv[1], horizon=6, particles=64)
except nb.NestbedError as error:
    print(error)
else:
    print("open")
"""


@pytest.mark.slow
def test_two_processes_do_not_share_a_folder(tmp_path):
    """The second is told, and gets it once the first is done or dead."""
    place, tests = tmp_path / "session", Path(__file__).parents[1]
    second = (sys.executable, "-c", SECOND, place)
    with nb.Session(Leak(), Counter(), KEY, directory=place, **SIZES) as session:
        session.update([1.0])
        assert "another process is at work in" in children.run(*second, cwd=tests).stdout
        session.suggest()
    assert children.run(*second, cwd=tests).stdout == "open\n"


def test_improbable_readings_are_told_by_name():
    rig = nb.rigs.Simulated(Leak(), KEY)
    session = nb.Session(Leak(), Counter(), KEY, **SIZES)
    session.update(rig.reset())
    run(session, rig, 4)
    session.suggest()
    session.update([40.0])
    assert "level is" in session.warnings[-1]
    assert session.history[-1].p[0] < 1e-9


def test_a_reading_that_nothing_explains_is_refused(tmp_path):
    """And leaves no trace: the same session without it goes on alike; a first one too."""
    rows = [0.9, 0.7, 0.8]
    ends = []
    for folder, slips in (("one", ()), ("two", (1e4, 1e300))):
        with nb.Session(Leak(), Counter(), KEY, directory=tmp_path / folder, **SIZES) as session:
            session.update([1.0])
            for y in rows:
                session.suggest()
                for slip in slips:
                    with pytest.raises(nb.NestbedError, match=r"level = .* no parameters of Leak explain it"):
                        session.update([slip])
                session.update([y])
            ends.append(facts(session))
    assert ends[0] == ends[1]
    with pytest.raises(nb.NestbedError, match="too much for its noise"):
        nb.Session(Leak(), Counter(), KEY, **SIZES).update([1e300])
    with pytest.raises(nb.NestbedError, match="from what Cart shows at first"):
        nb.Session(Cart(), nb.policies.PRBS(Cart()), KEY, **SIZES).update([1e3])
    with pytest.raises(nb.NestbedError, match=r"level = 1e\+06 at first is .* as what inputs and noise make of Leak"):
        nb.Session(Leak(), Counter(), KEY, **SIZES).update([1e6])
    nb.Session(Leak(), Counter(), KEY, **SIZES).update([50.0])  # a rig may begin elsewhere


@pytest.mark.parametrize("slip", [25.0, 300.0])
def test_a_slip_that_leads_astray_is_forgotten(tmp_path, slip):
    """Also once the session is opened again, by its journal or by the state that was kept, and in its record."""
    given = {"directory": tmp_path, "horizon": 12, "particles": 64}
    rig = nb.rigs.Simulated(Leak(), KEY)
    with nb.Session(Leak(), Counter(), KEY, **given) as session:
        session.update(rig.reset())
        run(session, rig, 1)
        session.update(rig.apply(session.suggest()) + slip)
        assert "level is" in session.warnings[-1]
        run(session, rig, 4)
        known = facts(session)
        assert any("in experiment 1, which counts as not measured" in words for words in session.warnings)
        assert [i for i, each in enumerate(session.history) if np.isnan(each.observation[0])] == [1]
        assert abs(session.gain) < 10.0
        truth, mean, sd = (part["rate"] for part in (rig.parameters, session.posterior.mean, session.posterior.sd))
        assert abs(mean - truth) < 4.0 * sd
        session.close()
    for kept in (True, False):
        if not kept:
            (tmp_path / keeping.FILE).unlink()
        else:
            assert np.isnan(reading.read(tmp_path, Leak()).records[0].observations[2, 0])
        with nb.Session(Leak(), Counter(), KEY, **given) as session:
            assert str(facts(session)) == str(known)


def test_a_slip_before_a_restart_is_forgotten_and_the_restart_is_not():
    """All is as if it had not been measured; nothing is called done before the next reading shows what it was."""
    ends = []
    for slip in (np.nan, 30.0):
        rig = nb.rigs.Simulated(Leak(), KEY)
        session = nb.Session(Leak(), Counter(), KEY, gaps=True, target_sd={"rate": 0.05}, **SIZES)
        session.update(rig.reset())
        run(session, rig, 1)
        session.suggest()
        session.update([slip])
        if slip > 0.0:
            assert session.posterior.sd["rate"] < 0.05
            assert session.done is None
        session.restart([20.0])
        for y in (10.0, 5.0, 2.5):
            session.suggest()
            session.update([y])
        assert np.isfinite(session.expected_gain().remaining)
        ends.append((session.posterior.mean["rate"], session.posterior.sd["rate"]))
        np.testing.assert_equal(session.measured(2), [slip])
        assert np.isnan(session.history[1].observation[0])
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-9)


@pytest.mark.slow
def test_where_the_belief_learns_later_such_a_reading_counts_as_not_measured(tmp_path):
    """Also once the session is opened again, by its journal or by the state that was kept."""
    given = {"directory": tmp_path, "posterior": "later", **SIZES}
    with nb.Session(Leak(), Counter(), KEY, **given) as session:
        session.update([1.0])
        for y in (0.9, 1e300, 0.8):
            session.suggest()
            session.update([y])
        session.catch_up()
        known = facts(session)
    assert "no parameters of Leak explain it" in session.warnings[0]
    assert "It counts as not measured." in session.warnings[0]
    for kept in (True, False):
        if not kept:
            (tmp_path / keeping.FILE).unlink()
        with nb.Session(Leak(), Counter(), KEY, **given) as session:
            assert np.isnan(session.history[1].observation[0])
            assert str(facts(session)) == str(known)
            assert np.isfinite(session.posterior.mean["rate"])


def test_designs_applied_outside_the_box_are_told_and_count():
    session = nb.Session(Leak(), Counter(), KEY, **SIZES)
    session.update([1.0])
    session.suggest()
    session.update([0.9], applied=[3.0])
    assert "experiment 0: flow = 3 was applied, outside the box from -1 to 1" in session.warnings[0]
    assert session.records[0].designs[0].tolist() == [3.0]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda s: s.update([1.0, 2.0]), "has 2 numbers, but there are 1: level"),
        (lambda s: s.update([np.inf]), "level = inf"),
        (lambda s: s.update(["a"]), "must be an array of numbers"),
        (lambda s: s.update([0.5], applied=[0.1], time=-1.0), "is not after that of the last observation"),
        (lambda s: s.update([0.5], applied=[0.1], time=np.nan), "must be a finite number"),
        (lambda s: s.update([0.5], applied=[np.nan]), "flow = nan"),
        (lambda s: s.update([0.5]), "no design was suggested since the last update"),
        (lambda s: s.extend(0), "must be a whole number of at least 1"),
        (lambda s: s.posterior.quantiles([2.0]), "give a list of probabilities"),
    ],
)
def test_mistakes_get_a_sentence_and_nothing_is_lost(call, told):
    session = nb.Session(Leak(), Counter(), KEY, **SIZES)
    session.update([1.0])
    with pytest.raises(nb.NestbedError, match=told):
        call(session)
    assert session.step == 0
    session.suggest()
    session.update([0.9])
    assert session.step == 1


@pytest.mark.slow
def test_posteriors_become_priors():
    rig = nb.rigs.Simulated(Leak(), KEY)
    session = nb.Session(Leak(), Counter(), KEY, **SIZES)
    session.update(rig.reset())
    run(session, rig, 5)
    later = Leak().after(session.posterior)
    (low, high), draws = session.posterior.quantiles([0.05, 0.95])["rate"], np.asarray(later.parameters.draws[0])
    assert low < np.median(draws) < high
    drawn = session.posterior.samples(KEY, 1000)["rate"]
    assert abs(drawn.mean() - session.posterior.mean["rate"]) < 6.0 * session.posterior.sd["rate"] / np.sqrt(1000)
    assert jnp.isfinite(drawn).all()


def test_another_policy_is_refused(tmp_path):
    one, other = np.linspace(-1.0, 1.0, 6)[:, None], np.linspace(1.0, -1.0, 6)[:, None]
    nb.Session(Leak(), one, KEY, directory=tmp_path, particles=64).close()
    for policy in (other, Counter()):
        with pytest.raises(nb.NestbedError, match="was begun with policy = Replay"):
            nb.Session(Leak(), policy, KEY, directory=tmp_path, horizon=6, particles=64)
    nb.Session(Leak(), one, KEY, directory=tmp_path, particles=64).close()


SWING = """
import jax.numpy as jnp

class Swing:
    {words}
    def init(self):
        return jnp.zeros(())

    def step(self, key, carry, y, u_previous):
        return carry + 1.0, {value} * jnp.cos(carry)[None]  {remark}
"""


def test_what_a_session_has_gained_is_read_from_its_folder(tmp_path):
    with nb.Session(Leak(), nb.policies.PRBS(Leak()), KEY, directory=tmp_path, **SIZES) as session:
        rig = nb.rigs.Simulated(Leak(), KEY)
        session.update(rig.reset())
        run(session, rig, 2)
        assert reading.read(tmp_path, Leak()).gain is None  # it is kept in the end
    assert reading.read(tmp_path, Leak()).gain == session.gain != 0.0


def test_a_changed_design_is_told_where_it_can_be_seen():
    """By four digits; one that stays as it is although limits are in danger is no change."""

    def told(wanted, u, given):
        return _replaced(cart, Checked(np.array([u]), 0.3, given, 0.0, "place"), np.array([wanted]), 0.01)

    cart = Cart()
    assert "changed: push 1 → 0.5." in told(1.0, 0.5, 0.001)
    assert told(1.00001, 1.0, 0.001) == ""
    assert "probability 0.2, and no other design that was tried breaks it less often" in told(1.00001, 1.0, 0.2)


def test_a_policy_whose_code_has_changed_is_refused(tmp_path):
    """Other words in it are no change, nor is what else its file holds."""

    def given(name, value, words="", remark=""):
        file = tmp_path / f"{name}.py"
        file.write_text(SWING.format(words=words, value=value, remark=remark))
        return loaded(file)

    def loaded(file):
        spec = importlib.util.spec_from_file_location(file.stem, file)
        module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.Swing()

    nb.Session(Leak(), given("one", 0.5), KEY, directory=tmp_path, **SIZES).close()
    same = given("two", 0.5, '"""A swing."""', "# on and on")
    nb.Session(Leak(), same, KEY, directory=tmp_path, **SIZES).close()
    with pytest.raises(nb.NestbedError, match="was begun with policy = Swing"):
        nb.Session(Leak(), given("three", 0.6), KEY, directory=tmp_path, **SIZES)


@pytest.mark.filterwarnings("ignore")
def test_arviz_takes_what_is_known():
    pytest.importorskip("arviz")
    session = nb.Session(Leak(), Counter(), KEY, **SIZES)
    found = session.posterior.arviz(KEY, 100)
    assert found["posterior"]["rate"].shape == (1, 100)


class Pond(nb.System):
    """Oxygen that is used up unless air is brought in: rest breaks the limit, full power keeps it."""

    state = ("oxygen",)
    designs = nb.Box(air=(0.0, 1.0))
    prior = {"demand": dist.LogNormal(0.0, 0.1)}
    start = {"oxygen": 7.0}
    limits = {"oxygen": (6.0, None)}
    step, diffusion = 0.5, (0.02,)
    defaults = nb.Defaults(horizon=8)

    def drift(self, x, u, theta):
        return (u.air * (9.0 - x.oxygen) - theta.demand,)


def test_limits_are_kept_where_rest_breaks_them():
    system = Pond()
    rig = nb.rigs.Simulated(system, KEY, {"demand": 1.05})
    session = nb.Session(system, nb.policies.Constant(system, -1.0), KEY, particles=64)
    session.update(rig.reset())
    for _ in range(8):
        session.update(rig.apply(session.suggest()))
        assert rig.states["oxygen"] > 6.0
    assert session.warnings
    assert not [words for words in session.warnings if "even so" in words]


def test_limits_that_are_broken_at_the_start_are_told_and_left():
    system = Cart()
    session = nb.Session(system, nb.policies.Constant(system, 1.0), KEY, particles=64)
    session.update([0.7])
    assert session.suggest()[0] < 0.0  # back, as the wanted push leads further away
    assert "even so it may be broken" in session.warnings[0]
    assert session._state.risked < 0.01  # what cannot be helped takes nothing from later experiments
