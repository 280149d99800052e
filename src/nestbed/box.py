"""The design box: named designs, each with a lower and an upper limit."""

import math

from nestbed.errors import NestbedError


class Box:
    """Named designs with their limits, for example `Box(torque=(-1.0, 1.0))`."""

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

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Box) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.names, self.low, self.high))

    def __repr__(self) -> str:
        limits = zip(self.names, self.low, self.high, strict=True)
        return f"Box({', '.join(f'{name}=({low}, {high})' for name, low, high in limits)})"
