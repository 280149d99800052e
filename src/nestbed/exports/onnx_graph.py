"""A policy as ONNX: one step as a graph, what is carried among its inputs and outputs."""

import importlib.metadata
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from nestbed.exports.about import About, noise_names
from nestbed.exports.arrays import Elements, Elementwise, Flat, Joined, Product, Reduced, Window, flattened, no_entry
from nestbed.exports.program import Constant, Operand
from nestbed.numerics.errors import NestbedError

OPSET, IR = 17, 8
"""Versions of the operators and of the file: of 2022, so that runtimes know them."""
README = """
`policy.onnx` is one step as a graph (opset {opset}): carry_0, …, y, u_previous[, noise] → carry_0_next, …, u.
`policy.json`, also in the graph's metadata, has names, units and what a record begins with. It needs
`pip install onnxruntime`.

```python
import json

import numpy as np
import onnxruntime

about, check = json.load(open("policy.json")), json.load(open("check.json"))
policy = onnxruntime.InferenceSession("policy.onnx", providers=["CPUExecutionProvider"])

carry = [np.array(each["start"], each["type"]) for each in about["carry"]]  # the beginning of a record
kind = np.float32 if about["precision"] == "single" else np.float64
u = np.array([each["rest"] for each in about["u"]], kind)
off = 0.0
for t, y in enumerate(check["y"]):  # in their place, what your rig shows
    given = {{f"carry_{{i}}": each for i, each in enumerate(carry)}}
    given |= {{"y": np.array(y, kind), "u_previous": u{noise}}}  # u_previous: what was applied before
    *carry, u = policy.run(None, given)
    for value, known, each in zip(u, check["u"][t], about["u"]):
        off = max(off, 2.0 * abs(float(value) - known) / (each["high"] - each["low"]))
print(f"at most {{off:.1e}} of half the box off")
assert off < {tolerance}
```
"""

DIRECT = {
    **{"abs": "Abs", "acos": "Acos", "add": "Add", "and": "And", "asin": "Asin", "atan": "Atan", "ceil": "Ceil"},
    **{"cos": "Cos", "div": "Div", "eq": "Equal", "erf": "Erf", "exp": "Exp", "floor": "Floor"},
    **{"ge": "GreaterOrEqual", "gt": "Greater", "le": "LessOrEqual", "log": "Log", "logistic": "Sigmoid", "lt": "Less"},
    **{"mul": "Mul", "neg": "Neg", "not": "Not", "or": "Or", "pow": "Pow", "sign": "Sign", "sin": "Sin"},
    **{"sqrt": "Sqrt", "sub": "Sub", "tanh": "Tanh", "xor": "Xor"},
}
"""Operators that do what a primitive does."""
LATER = frozenset({"acos", "asin", "atan", "erf"})
"""Those that runtimes have in single precision only."""
WHOLE = frozenset({"abs", "add", "div", "eq", "ge", "gt", "le", "lt", "mul", "neg", "sign", "sub"})
"""Those that also take whole numbers."""
REDUCTIONS = {"add": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin"}


class Graph:
    """Nodes of a graph as they are added; arrays within it are flat."""

    def __init__(self, helper: Any, numpy_helper: Any):
        self.helper, self.numpy_helper = helper, numpy_helper
        self.nodes: list[Any] = []
        self.tables: list[Any] = []
        self.names: dict[Operand, str] = {}

    def name(self, operand: Operand) -> str:
        """Return what an operand is called; a constant becomes a table when it is first used."""
        if operand not in self.names:
            assert isinstance(operand, Constant)
            self.names[operand] = self.table(operand.array.reshape(-1))
        return self.names[operand]

    def table(self, array: Any) -> str:
        """Add a constant array and return its name."""
        name = f"c{len(self.tables)}"
        self.tables.append(self.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def node(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        name = f"v{len(self.nodes)}" if output is None else output
        self.nodes.append(self.helper.make_node(kind, [*inputs], [name], **attributes))
        return name

    def shaped(self, name: str, *shape: int, output: str | None = None) -> str:
        """Return an array in another shape."""
        return self.node("Reshape", name, self.table(np.array(shape, np.int64)), output=output)


def files(about: About) -> dict[str, bytes]:
    """Return the files by name."""
    try:
        import onnx
        from onnx import helper, numpy_helper
    except ImportError:
        raise NestbedError("the export to onnx needs the package onnx: pip install 'nestbed[export]'.") from None
    graph, program = Graph(helper, numpy_helper), about.program
    carried = [f"carry_{i}" for i in range(len(program.carry))]
    inputs = [*carried, "y", "u_previous", *noise_names(program)]
    outputs = [*(f"{name}_next" for name in carried), "u"]
    for value, name in zip(program.inputs, inputs, strict=True):
        graph.names[value] = graph.shaped(name, -1)
    for node in flattened(program, "onnx"):
        graph.names[node.output] = WRITTEN[type(node)](graph, node)
    for operand, name in zip(program.outputs, outputs, strict=True):
        graph.shaped(graph.name(operand), *operand.shape, output=name)

    def told(operands: Any, names: Any) -> list[Any]:
        return [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(each.dtype)), each.shape)
            for each, name in zip(operands, names, strict=True)
        ]

    facts = {**about.facts, **about.arguments, "opset": OPSET}
    whole = helper.make_graph(
        graph.nodes,
        "policy",
        told(program.inputs, inputs),
        told(program.outputs, outputs),
        graph.tables,
        doc_string="\n".join([about.title, *about.words, *about.lines]),
    )
    model = helper.make_model(
        whole,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR,
        producer_name="nestbed",
        producer_version=importlib.metadata.version("nestbed"),
    )
    helper.set_model_props(model, {"policy": json.dumps(facts, ensure_ascii=False)})
    onnx.checker.check_model(model, full_check=True)
    text = json.dumps(facts, indent=1, ensure_ascii=False) + "\n"
    return {"policy.onnx": model.SerializeToString(), "policy.json": text.encode()}


def check(about: About) -> dict[str, Any]:
    """Return a few steps to compare with."""
    return about.steps


def readme(about: About) -> str:
    """Return how to use them."""
    noise = "".join(f', "{name}": np.array(check["{name}"][t], kind)' for name in noise_names(about.program))
    return README.format(opset=OPSET, noise=noise, tolerance="1e-4" if about.single else "1e-6")


def _elementwise(graph: Graph, node: Elementwise) -> str:
    name, inputs = node.name, [graph.name(each) for each in node.inputs]
    kind = np.dtype(node.inputs[-1].dtype)
    if name in COMPOSED:
        return COMPOSED[name](graph, node, inputs)
    if name in LATER and kind == np.float64:
        raise no_entry(f"{name} in double precision", "onnx")  # which onnxruntime has not
    if name in DIRECT and (kind.kind in "fb" or name in WHOLE):
        return graph.node(DIRECT[name], *inputs)
    raise no_entry(name, "onnx")


def _larger(sign: str) -> Callable[[Graph, Elementwise, list[str]], str]:
    """Return how the larger or smaller of two is chosen; NaN in either stays."""

    def write(graph: Graph, node: Elementwise, inputs: list[str]) -> str:
        one, other = inputs
        first = graph.node(sign, one, other)
        if np.dtype(node.output.dtype).kind == "f":
            first = graph.node("Or", first, graph.node("IsNaN", one))
        return graph.node("Where", first, one, other)

    return write


def _chosen(graph: Graph, node: Elementwise, inputs: list[str]) -> str:
    if len(inputs) != 3 or node.inputs[0].dtype != bool:
        raise no_entry("select_n of several cases", "onnx")
    chosen, other, one = inputs
    if node.output.dtype != bool:
        return graph.node("Where", chosen, one, other)
    return graph.node("Or", graph.node("And", chosen, one), graph.node("And", graph.node("Not", chosen), other))


def _clamped(graph: Graph, node: Elementwise, inputs: list[str]) -> str:
    low, x, high = inputs
    above = graph.node("Where", graph.node("Less", x, low), low, x)
    return graph.node("Where", graph.node("Greater", above, high), high, above)


def _converted(graph: Graph, node: Elementwise, inputs: list[str]) -> str:
    kind = graph.helper.np_dtype_to_tensor_dtype(np.dtype(node.output.dtype))
    return graph.node("Cast", inputs[0], to=kind)


def _power(graph: Graph, node: Elementwise, inputs: list[str]) -> str:
    found = inputs[0]
    for _ in range(abs(node.power) - 1):
        found = graph.node("Mul", found, inputs[0])
    return graph.node("Reciprocal", found) if node.power < 0 else found


def _hyperbolic(sign: str) -> Callable[[Graph, Elementwise, list[str]], str]:
    """Return how half of eˣ ± e⁻ˣ is written: of doubles runtimes have no other."""

    def write(graph: Graph, node: Elementwise, inputs: list[str]) -> str:
        up, down = graph.node("Exp", *inputs), graph.node("Exp", graph.node("Neg", *inputs))
        half = graph.table(np.array([0.5], node.output.dtype))
        return graph.node("Mul", half, graph.node(sign, up, down))

    return write


def _finite(graph: Graph, node: Elementwise, inputs: list[str]) -> str:
    nothing = graph.node("Sub", inputs[0], inputs[0])  # NaN of what is infinite too
    return graph.node("Not", graph.node("IsNaN", nothing))


COMPOSED: dict[str, Callable[[Graph, Elementwise, list[str]], str]] = {
    "max": _larger("Greater"),
    "min": _larger("Less"),
    "select_n": _chosen,
    "clamp": _clamped,
    "convert_element_type": _converted,
    "integer_pow": _power,
    "is_finite": _finite,
    "cosh": _hyperbolic("Add"),
    "sinh": _hyperbolic("Sub"),
    "tan": lambda graph, node, inputs: graph.node("Div", graph.node("Sin", *inputs), graph.node("Cos", *inputs)),
    "ne": lambda graph, node, inputs: graph.node("Not", graph.node("Equal", *inputs)),
    "rem": lambda graph, node, inputs: graph.node("Mod", *inputs, fmod=1),
    "rsqrt": lambda graph, node, inputs: graph.node("Reciprocal", graph.node("Sqrt", *inputs)),
    "square": lambda graph, node, inputs: graph.node("Mul", inputs[0], inputs[0]),
}


def _elements(graph: Graph, node: Elements) -> str:
    source = graph.name(node.source)
    if np.array_equal(node.places, np.arange(node.source.size)):
        return source
    return graph.node("Gather", source, graph.table(node.places.astype(np.int64)))


def _joined(graph: Graph, node: Joined) -> str:
    return graph.node("Concat", *map(graph.name, node.inputs), axis=0)


def _product(graph: Graph, node: Product) -> str:
    rows, columns, width = node.sizes
    left = _matrix(graph, node.left, rows, width)
    if columns == 1:
        return graph.node("MatMul", left, graph.name(node.right))
    right = graph.node("Transpose", _matrix(graph, node.right, columns, width), perm=[1, 0])
    return graph.shaped(graph.node("MatMul", left, right), -1)


def _matrix(graph: Graph, operand: Operand, rows: int, width: int) -> str:
    if isinstance(operand, Constant):
        return graph.table(operand.array.reshape(rows, width))
    return graph.shaped(graph.name(operand), rows, width)


def _reduced(graph: Graph, node: Reduced) -> str:
    if node.name not in REDUCTIONS:
        raise no_entry(f"reduce_{node.name}", "onnx")
    rows = graph.shaped(graph.name(node.source), node.output.size, node.width)
    axes = np.array([1], np.int64)
    if node.name == "add":
        return graph.node("ReduceSum", rows, graph.table(axes), keepdims=0)
    found = graph.node(REDUCTIONS[node.name], rows, axes=[1], keepdims=0)
    if np.dtype(node.output.dtype).kind != "f":
        return found
    kinds = [graph.helper.np_dtype_to_tensor_dtype(np.dtype(each)) for each in (np.int32, bool)]
    unknown = graph.node("Cast", graph.node("IsNaN", rows), to=kinds[0])  # runtimes pass over some NaN
    unknown = graph.node("Cast", graph.node("ReduceMax", unknown, axes=[1], keepdims=0), to=kinds[1])
    return graph.node("Where", unknown, graph.table(np.array([np.nan], node.output.dtype)), found)


def _window(graph: Graph, node: Window) -> str:
    where = graph.table(node.places.astype(np.int64))
    for start, most, stride in node.starts:
        begun = graph.node("Cast", graph.name(start), to=graph.helper.np_dtype_to_tensor_dtype(np.dtype(np.int64)))
        limits = graph.table(np.array([0], np.int64)), graph.table(np.array([most], np.int64))
        within = graph.node("Min", graph.node("Max", begun, limits[0]), limits[1])
        where = graph.node("Add", where, graph.node("Mul", within, graph.table(np.array([stride], np.int64))))
    return graph.node("Gather", graph.name(node.source), where)


WRITTEN: dict[type[Flat], Callable[[Graph, Any], str]] = {
    Elementwise: _elementwise,
    Elements: _elements,
    Joined: _joined,
    Product: _product,
    Reduced: _reduced,
    Window: _window,
}
