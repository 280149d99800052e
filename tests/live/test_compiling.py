"""Nothing is compiled once a session is warm."""

import contextlib

import jax
import numpy as np
import pytest

import nestbed as nb
from toys import Counter, Leak

KEY = jax.random.key(0)


@contextlib.contextmanager
def compilations():
    """Count what is compiled meanwhile."""
    found = []

    def note(event, seconds, **_):
        if event.endswith("backend_compile_duration"):
            found.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    yield found
    jax.monitoring.unregister_event_duration_listener(note)


@pytest.mark.parametrize("gaps", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_nothing_is_compiled_once_a_session_is_warm(gaps, tmp_path):
    """Whatever is asked for at a step, the look at the whole record included."""
    readings = 1.0 + 0.5 * np.sin(np.arange(11))
    with nb.Session(Leak(), Counter(), KEY, directory=tmp_path, horizon=11, particles=63, gaps=gaps) as session:
        session.warm()
        assert session.step == 0
        assert not session.records
        with compilations() as found:
            session.update([1.0])
            for step, y in enumerate(readings):
                session.suggest()
                missing = gaps and step == 4
                session.update([np.nan if missing else y], time=session.time + (0.7 if gaps and step == 6 else 0.5))
                assert session.posterior.sd
                assert session.posterior.states
                session.posterior.quantiles([0.5])
            session.expected_gain()
        assert session.step == 11
    assert found == []
