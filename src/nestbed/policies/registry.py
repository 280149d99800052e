"""The policies to compare with, by name."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nestbed.numerics.registry import Entry, Registry

if TYPE_CHECKING:
    from nestbed.model.system import BaseSystem
    from nestbed.policies.base import Policy


@dataclass(frozen=True)
class Baseline(Entry):
    """A policy that is not trained, with what it is made with."""

    options: dict[str, Any] = field(default_factory=dict)
    timed: bool = False  # whether it is made for a number of experiments

    def make(self, system: "BaseSystem", horizon: int) -> "Policy":
        """Return the policy for a system and a number of experiments."""
        length = {"horizon": horizon} if self.timed else {}
        return self.load()(system, **self.options, **length)


BASELINES = Registry(
    "baseline",
    Baseline("random", "nestbed.policies.random:Random", "uniform designs"),
    Baseline("prbs", "nestbed.policies.prbs:PRBS", "limits by coin toss, all channels together"),
    Baseline("prbs_independent", "nestbed.policies.prbs:PRBS", "a coin for each channel", {"channels": "independent"}),
    Baseline(
        "maximum_length",
        "nestbed.policies.signals:MaximumLength",
        "binary signal of a shift register, each value held for 4 experiments",
        timed=True,
    ),
    Baseline("constant", "nestbed.policies.signals:Constant", "the same design always, the best of a few levels"),
    Baseline("chirp", "nestbed.policies.signals:Chirp", "sine of rising frequency", timed=True),
    Baseline("multisine", "nestbed.policies.signals:Multisine", "sum of sines, Schroeder's phases", timed=True),
    Baseline(
        "myopic",
        "nestbed.policies.myopic:Myopic",
        "one step ahead, sampled, as the paper has it",
        {"belief": None},
        timed=True,
    ),
    Baseline(
        "greedy",
        "nestbed.policies.greedy:Greedy",
        "the highest expected gain of the next experiment",
        {"belief": None},
        timed=True,
    ),
)


def baseline(name: str, system: "BaseSystem", horizon: int | None = None) -> "Policy":
    """Return the policy of that name, made for a system and a number of experiments."""
    return BASELINES.find(name).make(system, system.horizon if horizon is None else horizon)
