"""One step of a policy as a plain list of array operations: what all forms of export are written from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Value:
    """An array that is known when the step runs."""

    shape: tuple[int, ...]
    dtype: Any

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return int(np.prod(self.shape, dtype=int))


@dataclass(frozen=True, eq=False)
class Constant:
    """An array that is known now; of the same numbers there is one."""

    array: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self.array.shape

    @property
    def dtype(self) -> Any:
        """Its type."""
        return self.array.dtype

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return self.array.size


Operand = Value | Constant


@dataclass(frozen=True, eq=False)
class Operation:
    """A primitive of jax on arrays."""

    primitive: Any
    inputs: tuple[Operand, ...]
    outputs: tuple[Value, ...]
    params: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Program:
    """(carry, y, u_previous, noise) → (carry, u): operations in order."""

    carry: tuple[Value, ...]
    y: Value
    u_previous: Value
    noise: tuple[Value, ...]  # standard normal numbers, once for each draw of the policy
    operations: tuple[Operation, ...]
    carry_next: tuple[Operand, ...]
    u: Operand
    start: tuple[np.ndarray, ...]  # of the carry

    @property
    def inputs(self) -> tuple[Value, ...]:
        """What a step is given, in order."""
        return (*self.carry, self.y, self.u_previous, *self.noise)

    @property
    def outputs(self) -> tuple[Operand, ...]:
        """What a step returns, in order."""
        return (*self.carry_next, self.u)

    @property
    def adapts(self) -> bool:
        """Whether designs hang on what is seen."""
        return any(self.y in operation.inputs for operation in self.operations) or self.u is self.y

    @property
    def single(self) -> bool:
        """Whether all of it is in single precision."""
        return bool(self.u.dtype == np.float32)

    def step(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the outputs for these inputs, by jax's own primitives."""
        known = dict(zip(self.inputs, inputs, strict=True))

        def read(operand: Operand) -> Any:
            return operand.array if isinstance(operand, Constant) else known[operand]

        for each in self.operations:
            found = each.primitive.bind(*map(read, each.inputs), **each.params)
            known |= dict(zip(each.outputs, found if each.primitive.multiple_results else [found], strict=True))
        return [read(each) for each in self.outputs]
