"""Policies: history to design, one experiment at a time."""

from typing import TYPE_CHECKING, Any

from nestbed.numerics.lazy import exported
from nestbed.policies.registry import BASELINES, baseline

if TYPE_CHECKING:
    from nestbed.policies.base import Policy
    from nestbed.policies.compliant import Compliant
    from nestbed.policies.feedback import Feedback
    from nestbed.policies.greedy import Greedy
    from nestbed.policies.myopic import Myopic
    from nestbed.policies.prbs import PRBS
    from nestbed.policies.random import Random
    from nestbed.policies.recurrent import Recurrent
    from nestbed.policies.replan import Replan
    from nestbed.policies.signals import Chirp, Constant, MaximumLength, Multisine, Replay

_HOMES = {
    "Policy": "base",
    "Compliant": "compliant",
    "Greedy": "greedy",
    "Myopic": "myopic",
    "PRBS": "prbs",
    "Random": "random",
    "Recurrent": "recurrent",
    "Chirp": "signals",
    "Constant": "signals",
    "MaximumLength": "signals",
    "Multisine": "signals",
    "Replan": "replan",
    "Replay": "signals",
    "Feedback": "feedback",
}

__all__ = [
    "BASELINES",
    "PRBS",
    "Chirp",
    "Compliant",
    "Constant",
    "Feedback",
    "Greedy",
    "MaximumLength",
    "Multisine",
    "Myopic",
    "Policy",
    "Random",
    "Recurrent",
    "Replan",
    "Replay",
    "baseline",
]


def __getattr__(name: str) -> Any:
    return exported(__name__, name, _HOMES)


def __dir__() -> list[str]:
    return __all__
