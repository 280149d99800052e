"""A program in fewer kinds of operations, all on flat arrays: what tables of C and ONNX are short for.

Whatever moves numbers about (slices, transposes, broadcasts) is an `Elements` with the places that are taken, found by
moving the places themselves.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np

from nestbed.exports.program import Constant, Operand, Operation, Program, Value
from nestbed.numerics.errors import NestbedError


@dataclass(frozen=True, eq=False)
class Elementwise:
    """A function of numbers, by name; inputs have the output's size or one number."""

    name: str
    inputs: tuple[Operand, ...]
    output: Value
    power: int = 0


@dataclass(frozen=True, eq=False)
class Elements:
    """Some elements of an input."""

    source: Operand
    places: np.ndarray
    output: Value


@dataclass(frozen=True, eq=False)
class Joined:
    """Inputs one after the other."""

    inputs: tuple[Operand, ...]
    output: Value


@dataclass(frozen=True, eq=False)
class Product:
    """A matrix, row by row, times vectors: out[m, n] = Σ_k left[m, k] · right[n, k]."""

    left: Operand
    right: Operand
    sizes: tuple[int, int, int]  # m, n, k
    output: Value


@dataclass(frozen=True, eq=False)
class Reduced:
    """Rows of an input, each made one number by a function of two."""

    name: str
    source: Operand
    width: int
    output: Value


@dataclass(frozen=True, eq=False)
class Window:
    """Elements from a place that is known when the step runs, moved to where all of them are in the source."""

    source: Operand
    starts: tuple[tuple[Operand, int, int], ...]  # for each axis where, at most where, and how many elements on one is
    places: np.ndarray  # from there
    output: Value


Flat = Elementwise | Elements | Joined | Product | Reduced | Window

ELEMENTWISE = frozenset(
    (
        *("abs", "add", "div", "integer_pow", "mul", "neg", "pow", "rem", "rsqrt", "sign", "sqrt", "square", "sub"),
        *("acos", "asin", "atan", "atan2", "cos", "cosh", "erf", "exp", "expm1", "log", "log1p", "logistic", "sin"),
        *("sinh", "tan", "tanh", "ceil", "clamp", "floor", "max", "min", "convert_element_type", "is_finite"),
        *("and", "eq", "ge", "gt", "le", "lt", "ne", "not", "or", "select_n", "xor"),
    )
)
MOVED = frozenset({"broadcast_in_dim", "expand_dims", "reshape", "rev", "slice", "squeeze", "transpose"})
"""Primitives that only take elements of one array to other places."""
REDUCED = {"reduce_sum": "add", "reduce_max": "max", "reduce_min": "min", "reduce_and": "and", "reduce_or": "or"}


def flattened(program: Program, form: str) -> list[Flat]:
    """Return the operations of a program in their few kinds, or say which of them has none."""
    found: list[Flat] = []
    for each in program.operations:
        name = each.primitive.name
        if name in ELEMENTWISE:
            found.append(Elementwise(name, each.inputs, each.outputs[0], each.params.get("y", 0)))
        elif name in MOVED:
            found.append(Elements(each.inputs[0], _moved(each)[0], each.outputs[0]))
        elif name == "split":
            parts = zip(_moved(each), each.outputs, strict=True)
            found += [Elements(each.inputs[0], places, output) for places, output in parts]
        elif name in SPECIAL:
            found += SPECIAL[name](each)
        elif name in REDUCED:
            found += _reduced(each)
        else:
            raise no_entry(name, form)
    return found


def no_entry(name: str, form: str) -> NestbedError:
    """Return what to say of a primitive that a form has nothing for."""
    return NestbedError(
        f"the policy uses jax's {name!r}, for which the export to {form} has no entry; write that part of it with "
        "sums, products, elementary functions, slices and where, or export it as jax, which has all of them."
    )


def _moved(operation: Operation) -> list[np.ndarray]:
    """Return where the elements of each output come from."""
    source = operation.inputs[0]
    places = np.arange(source.size, dtype=np.int32).reshape(source.shape)
    with jax.ensure_compile_time_eval():
        found = operation.primitive.bind(places, **operation.params)
    return [np.asarray(each).ravel() for each in (found if operation.primitive.multiple_results else [found])]


def _concatenated(operation: Operation) -> list[Flat]:
    sizes = np.cumsum([0, *(each.size for each in operation.inputs)])
    places = [
        np.arange(start, start + each.size, dtype=np.int32).reshape(each.shape)
        for start, each in zip(sizes, operation.inputs, strict=False)
    ]
    axis = int(operation.params["dimension" if operation.primitive.name == "concatenate" else "axis"])
    order = (np.concatenate if operation.primitive.name == "concatenate" else np.stack)(places, axis).ravel()
    output = operation.outputs[0]
    if np.array_equal(order, np.arange(len(order))):
        return [Joined(operation.inputs, output)]
    all_of_them = Value((int(sizes[-1]),), output.dtype)
    return [Joined(operation.inputs, all_of_them), Elements(all_of_them, order, output)]


def _rows(source: Operand, order: list[int]) -> tuple[list[Flat], Operand]:
    """Return an array with its axes in this order."""
    if order == sorted(order) or source.size == 0:
        return [], source
    if isinstance(source, Constant):
        return [], Constant(np.ascontiguousarray(source.array.transpose(order)))
    places = np.arange(source.size, dtype=np.int32).reshape(source.shape).transpose(order)
    turned = Value(places.shape, source.dtype)
    return [Elements(source, places.ravel(), turned)], turned


def _product(operation: Operation) -> list[Flat]:
    (left_axes, right_axes), batched = operation.params["dimension_numbers"]
    left, right = operation.inputs
    if any(batched):
        raise NestbedError("the policy multiplies several matrices at once, which has no export; write one product.")
    before: list[Flat] = []
    turned = []
    for source, axes in ((left, left_axes), (right, right_axes)):
        kept = [axis for axis in range(len(source.shape)) if axis not in axes]
        more, rows = _rows(source, [*kept, *axes])
        before += more
        turned.append(rows)
    width = int(np.prod([left.shape[axis] for axis in left_axes], dtype=int))
    sizes = left.size // width, right.size // width, width
    return [*before, Product(turned[0], turned[1], sizes, operation.outputs[0])]


def _reduced(operation: Operation) -> list[Flat]:
    source, axes = operation.inputs[0], operation.params["axes"]
    kept = [axis for axis in range(len(source.shape)) if axis not in axes]
    before, rows = _rows(source, [*kept, *axes])
    width = int(np.prod([source.shape[axis] for axis in axes], dtype=int))
    return [*before, Reduced(REDUCED[operation.primitive.name], rows, width, operation.outputs[0])]


def _window(operation: Operation) -> list[Flat]:
    source, *starts = operation.inputs
    sizes = operation.params["slice_sizes"]
    places = np.arange(source.size, dtype=np.int32).reshape(source.shape)[tuple(slice(size) for size in sizes)].ravel()
    strides = [int(np.prod(source.shape[axis + 1 :], dtype=int)) for axis in range(len(sizes))]
    where = zip(starts, source.shape, sizes, strides, strict=True)
    found = tuple((start, length - size, stride) for start, length, size, stride in where if length > size)
    if not found:
        return [Elements(source, places, operation.outputs[0])]
    return [Window(source, found, places, operation.outputs[0])]


SPECIAL: dict[str, Callable[[Operation], list[Flat]]] = {
    "concatenate": _concatenated,
    "stack": _concatenated,
    "dot_general": _product,
    "dynamic_slice": _window,
}


def used(operation: Flat) -> tuple[Operand, ...]:
    """Return what an operation reads."""
    if isinstance(operation, Elementwise | Joined):
        return operation.inputs
    if isinstance(operation, Product):
        return operation.left, operation.right
    return (operation.source, *(each[0] for each in getattr(operation, "starts", ())))
