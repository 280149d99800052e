"""The policies to compare with, by name."""

from collections.abc import Callable
from typing import Any

from nestbed import belief as beliefs
from nestbed.errors import NestbedError, did_you_mean
from nestbed.policies.greedy import Greedy
from nestbed.policies.myopic import Myopic
from nestbed.policies.prbs import PRBS
from nestbed.policies.random import Random
from nestbed.policies.signals import Chirp, MaximumLength, Multisine
from nestbed.system import BaseSystem

Maker = Callable[[BaseSystem, int], Any]

BASELINES: dict[str, tuple[str, Maker]] = {
    "random": ("uniform designs", lambda system, horizon: Random(system)),
    "prbs": ("limits by coin toss, all channels together", lambda system, horizon: PRBS(system)),
    "prbs_independent": ("a coin for each channel", lambda system, horizon: PRBS(system, channels="independent")),
    "maximum_length": (
        "binary signal of a shift register, each value held for 4 experiments",
        lambda system, horizon: MaximumLength(system, horizon=horizon),
    ),
    "chirp": ("sine of rising frequency", lambda system, horizon: Chirp(system, horizon=horizon)),
    "multisine": ("sum of sines, Schroeder's phases", lambda system, horizon: Multisine(system, horizon=horizon)),
    "myopic": (
        "one step ahead, sampled, as the paper has it",
        lambda system, horizon: Myopic(system, belief=beliefs.simplest(system), horizon=horizon),
    ),
    "greedy": (
        "the highest expected gain of the next experiment",
        lambda system, horizon: Greedy(system, belief=beliefs.simplest(system), horizon=horizon),
    ),
}
"""What each is, and how it is made for a system and a number of experiments."""


def baseline(name: str, system: BaseSystem, horizon: int | None = None) -> Any:
    """Return the policy of that name."""
    if str(name) not in BASELINES:
        raise NestbedError(f"there is no baseline {name!r}; {did_you_mean(str(name), BASELINES)}.")
    _, make = BASELINES[str(name)]
    return make(system, system.horizon if horizon is None else horizon)
