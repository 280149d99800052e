"""All that a session needs, compiled before it is needed, by going through a few experiments of the model's own."""

import numpy as np

from nestbed.evaluation import explaining
from nestbed.live import following, given, outlook, safety, watching
from nestbed.live.knowledge import Knowledge
from nestbed.live.state import State, plain


def warm(state: State, risk: float) -> None:
    """Go through what a step does, beside the session, which stays as it is."""
    trial = state.fresh()
    trial.gaps = state.gaps or (state.following is not None and not state.following.even)
    trial.happen({"kind": "first", "y": plain(trial.typical()), "time": 0.0})
    for _ in range(2):
        _step(trial, risk)
    given.first(state.system, trial.typical())
    now = trial.following
    assert now is not None
    known = Knowledge(state.system, now)
    _ = known.sd, known.states
    going = outlook.going(state.system, trial.policy, trial.carry, trial.previous)
    outlook.outlook(trial.key(2), now, going, max(1, state.horizon - state.step))
    noise = np.random.default_rng(0).standard_normal((watching.FIRST, len(state.system.observation_names)))
    explaining.explain(state.system.observation_names, noise, state.alarm)


def _step(trial: State, risk: float) -> None:
    """Do one experiment in which the model is right, and the design that was wanted is not safe."""
    now, system = trial.following, trial.system
    assert now is not None
    u = safety.nearest_safe(trial.key(2), now, trial.choose(), trial.previous, -1.0 if system.limits else risk).u
    trial.happen({"kind": "suggest", "u": plain(u), "why": ""})
    y = following.expected(now, u)
    trial.happen({"kind": "update", "y": plain(y), "time": trial.times[-1] + system.step})
