"""What a session was expected to gain, and what random inputs would: the curves of certificates, computed once."""

import json
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from nestbed.faces.server.course import plain
from nestbed.numerics import storage
from nestbed.numerics.text import visible

if TYPE_CHECKING:
    from nestbed.faces.server.hosted import Hosted
    from nestbed.model.system import BaseSystem

FILE = "expected.json"
LARGEST = 2**24
"""Bytes that it may have."""
RECORDS, LONGEST = 256, 500
"""Simulated rigs of a certificate, and experiments of a curve, at most."""
RISK = 0.01
"""Probability with which random inputs may break a limit within the horizon."""
_known: dict[tuple[Any, ...], Any] = {}
_lock = threading.Lock()


def expect(hosted: "Hosted") -> None:
    """Find out, or read what was found out before, and tell the session."""
    file = hosted.folder / FILE
    try:
        found = storage.read_json(file, LARGEST)
    except storage.DAMAGES:
        hosted.expected = {"state": "computing"}
        hosted.version += 1
        try:
            found = plain(_computed(hosted))
            storage.write(file, json.dumps(found).encode())
        except Exception as error:
            found = {"state": "failed", "words": visible(str(error), keep="")}
    hosted.expected = found
    hosted.version += 1


def _computed(hosted: "Hosted") -> dict[str, Any]:
    import jax

    from nestbed.evaluation.violation import complying
    from nestbed.policies.registry import baseline

    offer = hosted.offers.find(hosted.facts.start)
    horizon = min(LONGEST, int(hosted.facts.start.get("horizon") or offer.horizon or offer.system.horizon))
    random: Any = baseline("random", offer.system, horizon)
    if offer.system.limits:
        random = complying(jax.random.key(0), offer.system, random, horizon, RISK)
    curves = {"random": _curve("random", offer.system, random, horizon)}
    words, policy = _stands_for(offer.policy, offer.system)
    if policy is not None and hosted.facts.source != "random":
        curves["policy"] = _curve(hosted.facts.source, offer.system, policy, horizon)
    return {"state": "known", "words": words, "records": RECORDS, "horizon": horizon, **curves}


def _stands_for(policy: Any, system: "BaseSystem") -> tuple[str, Any]:
    """Return what is simulated in place of a policy that would take too long, and a sentence on that."""
    from nestbed.policies.signals import Replay

    if hasattr(policy, "planned"):
        return "Expected is what its first plan gains, were it not made anew.", Replay(
            system, policy.planned(policy.init())
        )
    if type(policy).__name__ in ("Greedy", "Myopic"):
        return "What this policy gains takes too long to be computed beforehand, so only random inputs are shown.", None
    return "", policy


def _curve(name: str, system: "BaseSystem", policy: Any, horizon: int) -> dict[str, Any]:
    import jax

    from nestbed.evaluation.certificate import certificate

    key = name, system, horizon
    with _lock:
        if name in ("random", "prbs") and key in _known:
            return dict(_known[key])
    curve = certificate(jax.random.key(0), system, policy, horizon=horizon, records=RECORDS).curve
    reach = 1.96 * np.asarray(curve.standard_error)
    found = {
        "name": name,
        "mean": [0.0, *np.asarray(curve.mean).tolist()],
        "low": [0.0, *(np.asarray(curve.lower) - reach).tolist()],
        "high": [0.0, *(np.asarray(curve.upper) + reach).tolist()],
    }
    with _lock:
        _known[key] = found
    return found
