"""What a rig is."""

from abc import abstractmethod
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from nestbed.numerics.errors import NestbedError


@runtime_checkable
class Rig(Protocol):
    """A thing that takes a design and shows what sensors see one step later; it may also have `close()`."""

    @abstractmethod
    def reset(self) -> Any:
        """Bring the rig to its start and return the first observation."""

    @abstractmethod
    def apply(self, u: Float[np.ndarray, " du"]) -> Any:
        """Apply a design for one step and return what is seen then; NaN is not measured."""


def check(rig: Any) -> None:
    """Raise unless this is a rig."""
    if isinstance(rig, type):
        raise NestbedError(f"the rig is the class {rig.__name__}; give an instance of it.")
    if not isinstance(rig, Rig):
        raise NestbedError(
            f"the rig is a {type(rig).__name__}, but it needs the methods reset() -> y and apply(u) -> y."
        )


def extra(name: str, package: str) -> NestbedError:
    """Return what to say where an optional package is missing."""
    return NestbedError(f"this rig needs the package {package}: pip install 'nestbed[{name}]'.")
