"""Policies: history to design, one experiment at a time."""

from nestbed.policies.base import Policy
from nestbed.policies.baselines import BASELINES, baseline
from nestbed.policies.greedy import Greedy
from nestbed.policies.myopic import Myopic
from nestbed.policies.prbs import PRBS
from nestbed.policies.random import Random
from nestbed.policies.recurrent import Recurrent
from nestbed.policies.signals import Chirp, MaximumLength, Multisine, Replay

__all__ = [
    "BASELINES",
    "PRBS",
    "Chirp",
    "Greedy",
    "MaximumLength",
    "Multisine",
    "Myopic",
    "Policy",
    "Random",
    "Recurrent",
    "Replay",
    "baseline",
]
