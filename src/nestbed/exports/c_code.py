"""A program as loops of C99 over flat arrays: what is used once is written where it is used, the rest gets memory."""

import re
import textwrap
from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from nestbed.exports.arrays import Elements, Elementwise, Flat, Joined, Product, Reduced, Window, flattened, used
from nestbed.exports.c_expressions import TYPES, arithmetic, bare, digits, expression, literal, own_function
from nestbed.exports.program import Constant, Operand, Program, Value
from nestbed.numerics.errors import NestbedError

MANY = 2
"""Uses from which an array is kept in memory."""


class Place(NamedTuple):
    """Which element of an array: first + stride · i."""

    stride: int
    first: int

    def __str__(self) -> str:
        if self.stride == 0:
            return str(self.first)
        turn = "i" if self.stride == 1 else f"{self.stride} * i"
        return turn if self.first == 0 else f"{turn} + {self.first}"

    def within(self, outer: "Place") -> "Place":
        """Return the element of an array of which `outer` takes elements."""
        return Place(outer.stride * self.stride, outer.first + outer.stride * self.first)


EACH, ONLY = Place(1, 0), Place(0, 0)


@dataclass(frozen=True)
class Statement:
    """Lines of C, with @n@ for the array of that number, and which arrays they read and write."""

    text: str
    writes: int | None
    reads: frozenset[int]


class Writer:
    """The statements of a program."""

    def __init__(self, program: Program, names: dict[Value, str]):
        self.names = names  # of inputs
        self.nodes = flattened(program, "c")
        check_types(self.nodes, program)
        self.made = {node.output: node for node in self.nodes}
        self.uses = _uses(self.nodes, program)
        self.numbers: dict[Value, int] = {}
        self.scalars: dict[Value, str] = {}
        self.tables: dict[int, tuple[str, str]] = {}
        self.functions: set[tuple[str, str]] = set()
        self.statements: list[Statement] = []
        self.copies: list[Statement] = []
        for node in self.nodes:
            if not self._inline(node.output):
                self._write(node)

    def copied(self, operand: Operand, target: str) -> None:
        """Copy an output to where it belongs, when all that is read has been read."""
        text = self.at(operand, EACH)
        if any(re.search(rf"(?<![\w>]){re.escape(name)}\[", text) for name in self.names.values()):
            copy = Value(operand.shape, operand.dtype)
            self._number(copy)
            self._loop(copy, text)
            text = self.at(copy, EACH)
        self.copies.append(Statement(looped(operand.size, target, text), None, _read(text)))

    def at(self, operand: Operand, place: Place) -> str:
        """Return an element of an operand as an expression."""
        place = place if operand.size > 1 else ONLY
        if isinstance(operand, Constant):
            return self._constant(operand, place)
        if operand in self.names:
            return f"{self.names[operand]}[{place}]"
        if operand in self.scalars:
            return self.scalars[operand]
        if operand in self.numbers:
            return f"@{self.numbers[operand]}@[{place}]"
        node = self.made[operand]
        if isinstance(node, Elements):
            outer = _affine(node.places)
            assert outer is not None
            return self.at(node.source, place.within(outer))
        assert isinstance(node, Elementwise)
        return expression(node, [self.at(each, place) for each in node.inputs], self.functions)

    def _inline(self, value: Value) -> bool:
        node = self.made[value]
        if isinstance(node, Elements):
            return _affine(node.places) is not None
        return isinstance(node, Elementwise) and self.uses[value] < MANY

    def _constant(self, operand: Constant, place: Place) -> str:
        numbers = operand.array.ravel()
        same = numbers[:1].tobytes() * numbers.size == numbers.tobytes()
        if same or place.stride == 0:
            return literal(numbers[place.first if not same else 0])
        return f"{self._table(operand)}[{place}]"

    def _table(self, operand: Constant) -> str:
        """Return the name of a constant array."""
        if id(operand) not in self.tables:
            name, numbers = f"c{len(self.tables)}", operand.array.ravel()
            shape = " × ".join(map(str, operand.shape)).replace("×", "x")
            listed = textwrap.fill(
                ", ".join(map(digits, numbers)), 116, initial_indent="    ", subsequent_indent="    "
            )
            head = f"static const {TYPES[str(operand.dtype)]} {name}[{numbers.size}] = {{ /* {shape} */"
            self.tables[id(operand)] = name, f"{head}\n{listed}\n}};"
        return self.tables[id(operand)][0]

    def _number(self, value: Value) -> int:
        return self.numbers.setdefault(value, len(self.numbers))

    def _write(self, node: Flat) -> None:
        output = node.output
        if isinstance(node, Elementwise) and output.size == 1:
            name = f"s{len(self.scalars)}"
            self._say(f"const {TYPES[str(output.dtype)]} {name} = {bare(self._element(node))};", None)
            self.scalars[output] = name
        elif isinstance(node, Elementwise):
            text = self._element(node)
            self._number(output)
            self._loop(output, text)
        elif isinstance(node, Joined):
            self._join(node)
        elif isinstance(node, Product):
            self._product(node)
        elif isinstance(node, Reduced):
            self._reduce(node)
        else:
            self._take(node)

    def _element(self, node: Elementwise) -> str:
        place = EACH if node.output.size > 1 else ONLY
        return expression(node, [self.at(each, place) for each in node.inputs], self.functions)

    def _say(self, text: str, writes: Value | None) -> None:
        target = None if writes is None else self.numbers[writes]
        self.statements.append(Statement(text, target, _read(text) - {target}))

    def _loop(self, output: Value, text: str) -> None:
        self._say(looped(output.size, f"@{self.numbers[output]}@", bare(text)), output)

    def _join(self, node: Joined) -> None:
        target, first, lines = f"@{self._number(node.output)}@", 0, []
        for each in node.inputs:
            text = bare(self.at(each, EACH if each.size > 1 else ONLY))
            lines.append(looped(each.size, target, text, first))
            first += each.size
        self._say("\n".join(lines), node.output)

    def _product(self, node: Product) -> None:
        rows, columns, width = node.sizes
        left, right = (self._whole(each) for each in (node.left, node.right))
        kind, target = TYPES[str(node.output.dtype)], f"@{self._number(node.output)}@"
        row, column = ("i", "") if columns == 1 else (f"(i / {columns})", f"(i % {columns}) * {width} + ")
        pair = [f"{left}[{row} * {width} + k]", f"{right}[{column}k]"]
        more = arithmetic("+", ["sum", arithmetic("*", pair, kind)], kind)
        self._say(
            f"for (int i = 0; i < {rows * columns}; ++i) {{\n    {kind} sum = 0;\n"
            f"    for (int k = 0; k < {width}; ++k) {{\n"
            f"        sum = {bare(more)};\n    }}\n    {target}[i] = sum;\n}}",
            node.output,
        )

    def _reduce(self, node: Reduced) -> None:
        source, target = self._whole(node.source), f"@{self._number(node.output)}@"
        kind = TYPES[str(node.output.dtype)]
        pair = Elementwise(node.name, (node.output, node.output), node.output)
        text = expression(pair, ["found", f"{source}[i * {node.width} + k]"], self.functions)
        self._say(
            f"for (int i = 0; i < {node.output.size}; ++i) {{\n    {kind} found = {source}[i * {node.width}];\n"
            f"    for (int k = 1; k < {node.width}; ++k) {{\n        found = {bare(text)};\n    }}\n"
            f"    {target}[i] = found;\n}}",
            node.output,
        )

    def _take(self, node: Elements | Window) -> None:
        source, place = self._whole(node.source), _affine(node.places)
        target = f"@{self._number(node.output)}@"
        inner = str(place)
        if place is None:
            inner = f"{self._table(Constant(node.places.astype(np.int32)))}[i]"
        if isinstance(node, Elements):
            self._loop(node.output, f"{source}[{inner}]")
            return
        starts = [f"{stride} * ({self._clamped(start, most)})" for start, most, stride in node.starts]
        loop = looped(node.output.size, target, f"{source}[start + {inner}]")
        body = textwrap.indent(f"const int32_t start = {' + '.join(starts)};\n{loop}", "    ")
        self._say(f"{{\n{body}\n}}", node.output)

    def _clamped(self, start: Operand, most: int) -> str:
        text = self.at(start, ONLY)
        return f"{text} < 0 ? 0 : {text} > {most} ? {most} : {text}"

    def _whole(self, operand: Operand) -> str:
        """Return the name of an array of which any element may be read."""
        if isinstance(operand, Constant):
            return self._table(operand)
        found = self.at(operand, EACH if operand.size > 1 else ONLY)
        if re.fullmatch(r"[\w@>-]+\[[i0]\]", found):
            return found[: found.rindex("[")]
        copy = Value(operand.shape, operand.dtype)
        self._number(copy)
        self._loop(copy, found)
        return f"@{self.numbers[copy]}@"


def looped(size: int, target: str, text: str, first: int = 0) -> str:
    """Return an assignment to each element of an array, or to the only one."""
    if size == 1:
        return f"{target}[{first}] = {text};"
    return f"for (int i = 0; i < {size}; ++i) {{\n    {target}[{Place(1, first)}] = {text};\n}}"


def _affine(places: Any) -> Place | None:
    """Return places that are evenly spaced."""
    if len(places) == 1:
        return Place(0, int(places[0]))
    stride = int(places[1]) - int(places[0])
    even = np.array_equal(places, places[0] + stride * np.arange(len(places)))
    return Place(stride, int(places[0])) if even else None


def _uses(nodes: list[Flat], program: Program) -> Counter[Operand]:
    """Return how often each array is read, counting what cannot be read where it is made as many."""
    found: Counter[Operand] = Counter()
    for each in program.outputs:
        found[each] += MANY
    for node in reversed(nodes):
        for each in used(node):
            if isinstance(node, Elements) and _affine(node.places) is not None:
                found[each] += found[node.output]
            elif isinstance(node, Joined) or (isinstance(node, Elementwise) and each.size == node.output.size):
                found[each] += 1
            else:
                found[each] += MANY
    return found


def _read(text: str) -> frozenset[int]:
    return frozenset(int(found) for found in re.findall(r"@(\d+)@", text))


def check_types(nodes: list[Flat], program: Program) -> None:
    """Raise if there are numbers of a type that C has none for."""
    for each in (*program.inputs, *program.outputs, *(part for node in nodes for part in (*used(node), node.output))):
        if str(each.dtype) not in TYPES:
            raise NestbedError(
                f"the policy has numbers of type {each.dtype}, which the export to c has none for; let it compute in "
                "float64, float32, int64, int32, uint32, uint8 or bool, or export it as jax, which has all of them."
            )


@dataclass(frozen=True)
class Code:
    """What a file is made of."""

    tables: list[str]
    functions: list[str]
    steps: list[str]
    memory: list[str]  # declarations of the arrays that a step works in, which are used again and again


def written(program: Program, names: dict[Value, str], targets: list[str]) -> Code:
    """Return a program as code that reads inputs by these names and leaves its outputs in the targets."""
    writer = Writer(program, names)
    for operand, target in zip(program.outputs, targets, strict=True):
        writer.copied(operand, target)
    statements = [*writer.statements, *writer.copies]
    kinds = {number: TYPES[str(value.dtype)] for value, number in writer.numbers.items()}
    sizes = {number: value.size for value, number in writer.numbers.items()}
    rooms, room_sizes = _rooms(statements, kinds, sizes)
    steps = [re.sub(r"@(\d+)@", lambda found: f"p->{rooms[int(found[1])]}", each.text) for each in statements]
    memory = [f"{kind} {name}[{size}];" for name, (kind, size) in room_sizes.items()]
    functions = [own_function(*each) for each in sorted(writer.functions)]
    return Code([text for _, text in writer.tables.values()], functions, steps, memory)


def _rooms(statements: list[Statement], kinds: dict[int, str], sizes: dict[int, int]) -> Any:
    """Return which memory each array has: that of others which are no longer read, where there is some."""
    last = {number: at for at, each in enumerate(statements) for number in each.reads}
    free: list[str] = []
    rooms: dict[int, str] = {}
    found: dict[str, tuple[str, int]] = {}
    for at, each in enumerate(statements):
        if each.writes is not None and each.writes not in rooms:
            kind, size = kinds[each.writes], sizes[each.writes]
            fitting = [room for room in free if found[room][0] == kind]
            room = max(fitting, key=lambda room: found[room][1], default=f"{kind[0]}{len(found)}")
            free = [other for other in free if other != room]
            found[room] = kind, max(size, found.get(room, (kind, 0))[1])
            rooms[each.writes] = room
        free += [rooms[number] for number in each.reads if last[number] == at]
    return rooms, found
