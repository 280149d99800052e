"""Operations as they are added to a program: what is known already is computed, what is there already is not repeated.

A product with zeros is 0, so that noise without spread and feedback without a share are left out; NaN in what they are
multiplied by is left out with them.
"""

import math
from typing import Any

import jax
import numpy as np
from jax.extend.core import primitives

from nestbed.exports.program import Constant, Operand, Operation, Value

SINGLE = {np.dtype(np.float64): np.dtype(np.float32), np.dtype(np.int64): np.dtype(np.int32)}
"""Types in single precision."""
SAME = frozenset({"copy", "copy_p", "stop_gradient", "optimization_barrier"})
"""Primitives that return what they are given."""
NEUTRAL = {"add": 0, "sub": 0, "mul": 1, "div": 1, "and": True, "or": False}
"""By primitive, the second of two inputs that leaves the first as it is."""
ABSORBING = {"mul": 0, "rem": 1, "and": False, "or": True}
"""By primitive, the input that decides the output alone: it is that, or, of a division by 1, what is left."""
ORDERED = frozenset({"sub", "div", "rem"})
"""Those of which only the second input does so."""
KINDS = {"rem": "iu", "and": "b", "or": "b"}
"""By primitive, the kinds of numbers that this is true of, if not of all: 1 leaves nothing of whole numbers alone."""


class Builder:
    """A program that grows, in double precision (as the policy computes) or all of it in single."""

    def __init__(self, single: bool = False):
        self.single = single
        self.operations: list[Operation] = []
        self.noise: list[Value] = []  # standard normal numbers, in place of those that are made from the key
        self._constants: dict[Any, Constant] = {}
        self._known: dict[Any, tuple[Operand, ...]] = {}
        self._from_key: set[Value] = set()

    def kind(self, dtype: Any) -> Any:
        """Return the type that stands for one of the policy."""
        return SINGLE.get(dtype, dtype) if self.single else dtype

    def constant(self, array: Any) -> Constant:
        """Return a constant."""
        found = np.asarray(array)
        found = found.astype(self.kind(found.dtype))
        mark = found.dtype, found.shape, found.tobytes()
        return self._constants.setdefault(mark, Constant(found))

    def value(self, shape: tuple[int, ...], dtype: Any, from_key: bool = False) -> Value:
        """Return what will be known when the step runs; `from_key`: random words and what is made of them."""
        made = Value(tuple(map(int, shape)), self.kind(dtype))
        if from_key:
            self._from_key.add(made)
        return made

    def add(self, primitive: Any, inputs: list[Operand], params: dict[str, Any], shapes: list[Any]) -> list[Operand]:
        """Return the outputs of a primitive, whose shapes and types are those of the policy."""
        name = primitive.name
        simple = self._simple(name, inputs, shapes)
        if simple is not None:
            return [simple]
        params = {key: self._typed(value) for key, value in params.items()}
        if all(isinstance(each, Constant) for each in inputs):
            return self._computed(primitive, inputs, params)
        mark = name, repr(sorted(params.items(), key=str)), tuple(map(id, inputs))
        if mark in self._known:
            return [*self._known[mark]]
        random = all(isinstance(each, Constant) or each in self._from_key for each in inputs)
        if name == "erf_inv" and random:  # here uniform numbers become normal ones, but for a factor of √2
            self.noise.append(self.value(shapes[0].shape, shapes[0].dtype))
            half = self.constant(np.full(shapes[0].shape, math.sqrt(0.5), shapes[0].dtype))
            self._known[mark] = tuple(self.add(primitives.mul_p, [self.noise[-1], half], {}, shapes))
            return [*self._known[mark]]
        outputs = [self.value(each.shape, each.dtype, random) for each in shapes]
        self.operations.append(Operation(primitive, tuple(inputs), tuple(outputs), params))
        self._known[mark] = tuple(outputs)
        return [*outputs]

    def _typed(self, value: Any) -> Any:
        is_type = isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic))
        return self.kind(np.dtype(value)) if is_type else value

    def _computed(self, primitive: Any, inputs: list[Operand], params: dict[str, Any]) -> list[Operand]:
        with jax.ensure_compile_time_eval():
            found = primitive.bind(*(each.array for each in inputs if isinstance(each, Constant)), **params)
        return [self.constant(each) for each in (found if primitive.multiple_results else [found])]

    def _simple(self, name: str, inputs: list[Operand], shapes: list[Any]) -> Operand | None:
        """Return what the output is without any operation, if that is so."""
        if name in SAME or (name == "convert_element_type" and inputs[0].dtype == self.kind(shapes[0].dtype)):
            return inputs[0]
        if name in ("reshape", "broadcast_in_dim", "squeeze") and inputs[0].shape == tuple(shapes[0].shape):
            return inputs[0]
        if name == "select_n" and isinstance(inputs[0], Constant) and inputs[0].size == 1:
            return inputs[1 + int(inputs[0].array)]
        return self._absorbed(name, inputs, shapes[0]) if name in NEUTRAL or name in ABSORBING else None

    def _absorbed(self, name: str, inputs: list[Operand], output: Any) -> Operand | None:
        """Return one of two inputs that the other does not change, or what the other alone makes of it."""
        if inputs[0].dtype.kind not in KINDS.get(name, inputs[0].dtype.kind):
            return None
        for other, one in (inputs, inputs[::-1]):
            if not isinstance(one, Constant) or not one.size or (one is inputs[0] and name in ORDERED):
                continue
            if name in NEUTRAL and other.shape == tuple(output.shape) and (one.array == NEUTRAL[name]).all():
                return other
            if name in ABSORBING and (one.array == ABSORBING[name]).all():
                return self.constant(np.full(output.shape, 0 if name == "rem" else ABSORBING[name], output.dtype))
        return None
