"""The signals that engineers use today, in the unit box: where the search starts, and what it must beat."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

from nestbed.model.system import BaseSystem
from nestbed.numerics.errors import NestbedError
from nestbed.policies.signals import Chirp, MaximumLength, Multisine, Replay

HOLDS = (1, 2, 3, 4, 6, 8, 12, 16, 25, 50, 100)
LEVELS = (-1.0, -0.5, 0.0, 0.5, 1.0)


def classical(system: BaseSystem, horizon: int) -> Float[np.ndarray, "K T du"]:
    """Return constants, chirps, multisines and binary signals of a shift register at several holds."""
    channels = len(system.design_names)
    found = [np.full((horizon, channels), level) for level in LEVELS]
    if channels > 1:
        corners = np.array(np.meshgrid(*[(-1.0, 1.0)] * min(channels, 4))).reshape(min(channels, 4), -1).T
        found += [np.resize(corner, (horizon, channels)) for corner in corners]
    signals = [system.designs.unscale(signal.signal(horizon)) for signal in _signals(system, horizon)]
    return np.clip(np.stack([*found, *signals]), -1.0, 1.0)


def _signals(system: BaseSystem, horizon: int) -> Iterator[Replay]:
    top = 0.5 / system.step
    for high in (None, 0.4 * top, 0.1 * top):
        for kind in (Chirp, Multisine):
            try:
                yield kind(system, high=high, horizon=horizon)
            except NestbedError:  # a band that the horizon is too short for
                continue
    for hold in HOLDS:
        if hold <= max(1, horizon // 2):
            yield MaximumLength(system, hold=hold, horizon=horizon)


def random(seed: int, system: BaseSystem, horizon: int, count: int) -> Float[np.ndarray, "K T du"]:
    """Return sequences of random levels, most of them limits, held for different times."""
    drawn, channels = np.random.default_rng(seed), len(system.design_names)
    found = []
    for i in range(count):
        hold = min(HOLDS[i % len(HOLDS)], horizon)
        rows = -(-horizon // hold)
        binary = i % 3 > 0
        values = drawn.choice([-1.0, 1.0], (rows, channels)) if binary else drawn.uniform(-1.0, 1.0, (rows, channels))
        found.append(np.repeat(values, hold, axis=0)[:horizon])
    return np.stack(found)
