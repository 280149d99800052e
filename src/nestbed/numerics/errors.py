"""Errors that say what was got, what was expected and what to do."""

import difflib
import sys
from collections.abc import Iterable


class NestbedError(ValueError):
    """Something the user gave cannot be used; the message is one clear sentence.

    A `topic` names what it is about, for whoever shows it and has advice of their own to add.
    """

    def __init__(self, message: str, topic: str | None = None):
        super().__init__(message)
        self.topic = topic


class NonFiniteError(NestbedError):
    """A weight became NaN or infinite; the message names the system, the step and the values behind it."""


def did_you_mean(got: str, known: Iterable[str]) -> str:
    """Return the known names, the closest one first if there is any near `got`."""
    known = list(known)
    close = difflib.get_close_matches(got, known, n=1)
    hint = f"did you mean {close[0]!r}? Known:" if close else "known:"
    return f"{hint} {', '.join(known)}"


def at_least_one(**counts: object) -> None:
    """Raise unless each named value is a whole number of at least 1."""
    for name, value in counts.items():
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or value < 1:  # type: ignore[operator]
            raise NestbedError(f"{name} is {value!r}, but it must be a whole number of at least 1.")


def at_least_zero(**values: object) -> None:
    """Raise unless each named value is a finite number of at least 0."""
    for name, value in values.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value <= sys.float_info.max:  # type: ignore[operator]
            raise NestbedError(f"{name} is {value!r}, but it must be a finite number of at least 0.")


def seed_from(first: int, count: int = 1) -> None:
    """Raise unless `count` seeds from the first on can all make a key."""
    if not 0 <= first <= 2**32 - count:
        raise NestbedError(f"the seed is {first}, but it must be a whole number from 0 to {2**32 - count}.")


OURS = ("nestbed.", "equinox.", "jax.", "beartype.", "jaxtyping.", "concurrent.", "threading")
"""Beginnings of the names of modules that no user wrote."""


def outside() -> int:
    """Return how many calls up the user's own code stands."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(OURS):
        frame, level = frame.f_back, level + 1
    return level
