"""Elementwise primitives as C99 expressions, by type: all of them defined in C, and what they are in jax.

Whole numbers wrap around, NaN goes where jax lets it go, and becomes 0 as a whole number.
"""

from typing import Any

import numpy as np

from nestbed.exports.arrays import Elementwise, no_entry

TYPES = {"float64": "real", "float32": "float", "int32": "int32_t", "int64": "int64_t", "uint32": "uint32_t"}
TYPES |= {"uint8": "uint8_t", "bool": "unsigned char"}
"""`real` is double, or float where the file is compiled so."""
FLOATING = frozenset({"real", "float"})
UNSIGNED = {"int32_t": "uint32_t", "int64_t": "uint64_t"}
WHOLE = {"int32_of": ("int32_t", 31), "int64_of": ("int64_t", 63), "uint32_of": ("uint32_t", 32)}
WHOLE |= {"uint8_of": ("uint8_t", 8)}
"""Functions that make a number a whole one, with the type and its bits but that of the sign."""
ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
LOGICAL, BITWISE = {"and": "&&", "or": "||", "xor": "!="}, {"and": "&", "or": "|", "xor": "^"}
LIBRARY = {"abs": "fabs", "rem": "fmod", "pow": "pow", "sqrt": "sqrt", "erf": "erf", "floor": "floor", "ceil": "ceil"}
LIBRARY |= {
    "exp": "exp",
    "expm1": "expm1",
    "log": "log",
    "log1p": "log1p",
    "sinh": "sinh",
    "cosh": "cosh",
    "tanh": "tanh",
}
LIBRARY |= {name: name for name in ("sin", "cos", "tan", "asin", "acos", "atan", "atan2")}
"""Functions of math.h."""
OWN = {
    "max": "{t} a, {t} b) {{ return a > b{nan} ? a : b; }}",
    "min": "{t} a, {t} b) {{ return a < b{nan} ? a : b; }}",
    "clamp": "{t} low, {t} x, {t} high) {{ return x < low ? low : x > high ? high : x; }}",
    "sign": "{t} x) {{ return x > 0 ? 1 : x < 0 ? -1 : x; }}",
    "square": "{t} x) {{ return {squared}; }}",
    "logistic": "{t} x) {{ return 1 / (1 + {exp}(-x)); }}",
    "rsqrt": "{t} x) {{ return 1 / {sqrt}(x); }}",
    "integer_pow": "{t} x, int power)\n{{\n    {t} y = 1;\n    for (int i = abs(power); i > 0; --i) {{\n"
    "        y = {times};\n    }}\n    return power < 0 ? 1 / y : y;\n}}",
    "div": "{t} a, {t} b) {{ return b == 0 ? ({t})-1 : {negative}a / b; }}",
    "rem": "{t} a, {t} b) {{ return b == 0 ? a : {nothing}a % b; }}",
}
"""Functions that are written into the file where they are used."""


def own_function(name: str, kind: str) -> str:
    """Return a function of the file's own for a type."""
    words = {
        "nan": " || isnan(a)" if kind in FLOATING else "",
        "exp": library("exp", kind),
        "sqrt": library("sqrt", kind),
        "squared": bare(arithmetic("*", ["x", "x"], kind)),
        "times": bare(arithmetic("*", ["y", "x"], kind)),
        "negative": f"b == -1 ? {_negative('a', kind)} : " if kind in UNSIGNED else "",
        "nothing": "b == -1 ? 0 : " if kind in UNSIGNED else "",
    }
    if name in WHOLE:
        return _whole(name, kind)
    return f"static inline {kind} {called(name, kind)}({OWN[name].format(t=kind, **words)}"


def _whole(name: str, kind: str) -> str:
    """Return a function that makes a number a whole one: the nearest towards 0 that there is, and 0 of NaN."""
    result, bits = WHOLE[name]
    text, end = result.removesuffix("_t").upper(), f"{2**bits}.0"
    end = f"R({end})" if kind == "real" else f"{end}f"
    least, below = (f"-{end}", f"x < 0 ? {text}_MIN : 0") if result in UNSIGNED else ("0", "0")
    return (
        f"static inline {result} {called(name, kind)}({kind} x)\n{{\n"
        f"    return x >= {end} ? {text}_MAX : x >= {least} ? ({result})x : {below};\n}}"
    )


def called(name: str, kind: str) -> str:
    """Return what a function of the file's own is called."""
    return f"{name}_{kind.removesuffix('_t')}"


def library(name: str, kind: str) -> str:
    """Return the function of math.h for a type."""
    return f"REAL({name})" if kind == "real" else f"{name}f"


def literal(value: Any) -> str:
    """Return one number as it stands in an expression."""
    text = digits(value)
    return f"R({text})" if value.dtype == np.float64 else text


def digits(value: Any) -> str:
    """Return one number with as many digits as it takes."""
    if value.dtype.kind == "f":
        if not np.isfinite(value):
            return "NAN" if np.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
        text = str(value)
        text = text if "." in text or "e" in text else f"{text}.0"
        return f"{text}f" if value.dtype == np.float32 else text
    lowest = value.dtype.kind == "i" and value == np.iinfo(value.dtype).min
    return f"(-{np.iinfo(value.dtype).max} - 1)" if lowest else str(int(value))


def expression(node: Elementwise, inputs: list[str], used: set[tuple[str, str]]) -> str:
    """Return the expression for one element; the file's own functions that it calls are added to those used."""
    name, kind = node.name, TYPES[str(node.inputs[-1].dtype)]
    if name == "convert_element_type":
        return _converted(inputs[0], kind, TYPES[str(node.output.dtype)], used)
    if name == "select_n" and len(inputs) == 3 and node.inputs[0].dtype == bool:
        return f"({inputs[0]} ? {inputs[2]} : {inputs[1]})"
    if name in ARITHMETIC and (name != "div" or kind in FLOATING):
        return arithmetic(ARITHMETIC[name], inputs, kind)
    if name in COMPARED:
        return f"({inputs[0]} {COMPARED[name]} {inputs[1]})"
    if name in LOGICAL:
        return f"({inputs[0]} {(LOGICAL if kind == 'unsigned char' else BITWISE)[name]} {inputs[1]})"
    if name == "neg":
        return _negative(inputs[0], kind)
    if name == "not":
        sign = "!" if kind == "unsigned char" else "~"
        return f"(uint8_t)({sign}{inputs[0]})" if kind == "uint8_t" else f"({sign}{inputs[0]})"
    if name == "is_finite":
        return f"(isfinite({inputs[0]}) != 0)"
    if name in OWN and (name != "rem" or kind not in FLOATING):
        used.add((name, kind))
        power = [str(node.power)] if name == "integer_pow" else []
        return f"{called(name, kind)}({', '.join([*inputs, *power])})"
    if name in LIBRARY and kind in FLOATING:
        return f"{library(LIBRARY[name], kind)}({', '.join(inputs)})"
    raise no_entry(name, "c")


def arithmetic(sign: str, inputs: list[str], kind: str) -> str:
    """Return a sum, difference, product, or quotient that is no whole number."""
    if kind in UNSIGNED:  # without overflow, which C leaves undefined
        one, other = (f"({UNSIGNED[kind]}){each}" for each in inputs)
        return f"({kind})({one} {sign} {other})"
    if kind == "uint8_t":  # which C would let grow beyond 255
        return f"(uint8_t)({inputs[0]} {sign} {inputs[1]})"
    return f"({inputs[0]} {sign} {inputs[1]})"


def bare(text: str) -> str:
    """Return an expression without brackets around all of it."""
    depth = 0
    for i, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text[1:-1] if i == len(text) - 1 and text[0] == "(" else text
    return text


def _negative(value: str, kind: str) -> str:
    return f"(-{value})" if kind in FLOATING else arithmetic("-", ["0", value], kind)


def _converted(value: str, before: str, after: str, used: set[tuple[str, str]]) -> str:
    if after == "unsigned char":
        return f"({value} != 0)"
    if before not in FLOATING or after in FLOATING:
        return value if before == after else f"({after}){value}"
    name = f"{after.removesuffix('_t')}_of"
    used.add((name, before))
    return f"{called(name, before)}({value})"
