"""The design box: named designs, each with a lower and an upper limit."""

import math
from typing import Any

import numpy as np

from nestbed.numerics.errors import NestbedError


class Box:
    """Named designs with their limits, for example `Box(torque=(-1.0, 1.0))`.

    Designs are vectors in the order of `names`, in their own units, on the last axis of an array.
    """

    def __init__(self, **limits: tuple[float, float]):
        if not limits:
            raise NestbedError("Box() got no designs; name at least one, as in Box(torque=(-1.0, 1.0)).")
        for name, pair in limits.items():
            try:
                low, high = (float(value) for value in pair)
                if isinstance(pair, str) or any(isinstance(value, str) for value in pair):
                    raise TypeError
            except (TypeError, ValueError):
                raise NestbedError(
                    f"design {name!r} got the limits {pair!r}; give two numbers, as in {name}=(-1.0, 1.0)."
                ) from None
            if not (math.isfinite(low) and math.isfinite(high)):
                raise NestbedError(f"design {name!r} got the limits ({low}, {high}); both must be finite.")
            if low == high:
                raise NestbedError(
                    f"design {name!r} got the limits ({low}, {high}); leave a constant out of the designs."
                )
            if low > high:
                raise NestbedError(
                    f"design {name!r} got the lower limit {low} and the upper limit {high}; the lower one must "
                    f"be less than the upper one, so write {name}=({high}, {low}) if they are swapped."
                )
        self.names = tuple(limits)
        self.low = tuple(float(low) for low, _ in limits.values())
        self.high = tuple(float(high) for _, high in limits.values())

    def sample(self, key: Any, shape: tuple[int, ...] = ()) -> Any:
        """Draw uniform designs with a jax key: an array of shape (*shape, number of designs)."""
        from nestbed.numerics import noise

        uniforms = noise.uniforms(noise.as_key(key), (*shape, len(self.names)))
        return np.array(self.low) + np.subtract(self.high, self.low) * uniforms

    def clip(self, designs: Any) -> Any:
        """Return the nearest designs within the limits."""
        values = np.asarray(designs) if isinstance(designs, list | tuple) else designs
        return values.clip(np.array(self.low), np.array(self.high))

    def contains(self, designs: Any, slack: float = 1e-6) -> Any:
        """Return for each number whether it is within its limits, but for a share `slack` of their distance.

        What is not a number is not.
        """
        reach = slack * np.subtract(self.high, self.low)
        return (designs >= self.low - reach) & (designs <= self.high + reach)

    def scale(self, unit: Any) -> Any:
        """Return designs from numbers in ±1: −1 is the lower limit, 1 the upper one, 0 the middle."""
        middle, half = 0.5 * np.add(self.high, self.low), 0.5 * np.subtract(self.high, self.low)
        return middle + half * unit

    def unscale(self, designs: Any) -> Any:
        """Return numbers in ±1 from designs: the inverse of `scale`."""
        middle, half = 0.5 * np.add(self.high, self.low), 0.5 * np.subtract(self.high, self.low)
        return (designs - middle) / half

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Box) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.names, self.low, self.high))

    def __repr__(self) -> str:
        limits = zip(self.names, self.low, self.high, strict=True)
        return f"Box({', '.join(f'{name}=({low}, {high})' for name, low, high in limits)})"
