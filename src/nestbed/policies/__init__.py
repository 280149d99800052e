"""Policies: history to design, one experiment at a time."""

from nestbed.policies.base import Policy
from nestbed.policies.prbs import PRBS
from nestbed.policies.random import Random
from nestbed.policies.recurrent import Recurrent

__all__ = ["PRBS", "Policy", "Random", "Recurrent"]
