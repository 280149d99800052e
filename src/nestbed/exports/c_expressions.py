"""Elementwise primitives as C99 expressions, by type: whole numbers wrap around, NaN goes where jax lets it go."""

from typing import Any

import numpy as np

from nestbed.exports.arrays import Elementwise, no_entry

TYPES = {"float64": "real", "float32": "float", "int32": "int32_t", "int64": "int64_t", "uint32": "uint32_t"}
TYPES |= {"uint8": "uint8_t", "bool": "unsigned char"}
"""`real` is double, or float where the file is compiled so."""
FLOATING = frozenset({"real", "float"})
UNSIGNED = {"int32_t": "uint32_t", "int64_t": "uint64_t"}
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
    "square": "{t} x) {{ return x * x; }}",
    "logistic": "{t} x) {{ return 1 / (1 + {exp}(-x)); }}",
    "rsqrt": "{t} x) {{ return 1 / {sqrt}(x); }}",
    "integer_pow": "{t} x, int power)\n{{\n    {t} y = 1;\n    for (int i = abs(power); i > 0; --i) {{\n"
    "        y *= x;\n    }}\n    return power < 0 ? 1 / y : y;\n}}",
}
"""Functions that are written into the file where they are used."""


def own_function(name: str, kind: str) -> str:
    """Return a function of the file's own for a type."""
    words = {
        "nan": " || isnan(a)" if kind in FLOATING else "",
        "exp": library("exp", kind),
        "sqrt": library("sqrt", kind),
    }
    return f"static inline {kind} {called(name, kind)}({OWN[name].format(t=kind, **words)}"


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
        return _converted(inputs[0], kind, TYPES[str(node.output.dtype)])
    if name == "select_n" and len(inputs) == 3 and node.inputs[0].dtype == bool:
        return f"({inputs[0]} ? {inputs[2]} : {inputs[1]})"
    if name in ARITHMETIC:
        return _arithmetic(ARITHMETIC[name], inputs, kind)
    if name in COMPARED:
        return f"({inputs[0]} {COMPARED[name]} {inputs[1]})"
    if name in LOGICAL:
        return f"({inputs[0]} {(LOGICAL if kind == 'unsigned char' else BITWISE)[name]} {inputs[1]})"
    if name in ("neg", "not"):
        sign = "-" if name == "neg" else "!" if kind == "unsigned char" else "~"
        return f"(uint8_t)({sign}{inputs[0]})" if kind == "uint8_t" else f"({sign}{inputs[0]})"
    if name == "is_finite":
        return f"(isfinite({inputs[0]}) != 0)"
    if name == "rem" and kind not in FLOATING:
        return f"({inputs[0]} % {inputs[1]})"
    if name in OWN:
        used.add((name, kind))
        power = [str(node.power)] if name == "integer_pow" else []
        return f"{called(name, kind)}({', '.join([*inputs, *power])})"
    if name in LIBRARY and kind in FLOATING:
        return f"{library(LIBRARY[name], kind)}({', '.join(inputs)})"
    raise no_entry(name, "c")


def _arithmetic(sign: str, inputs: list[str], kind: str) -> str:
    """Return a sum, difference, product or quotient."""
    if kind in UNSIGNED and sign != "/":  # without overflow, which C leaves undefined
        one, other = (f"({UNSIGNED[kind]}){each}" for each in inputs)
        return f"({kind})({one} {sign} {other})"
    if kind == "uint8_t":  # which C would let grow beyond 255
        return f"(uint8_t)({inputs[0]} {sign} {inputs[1]})"
    return f"({inputs[0]} {sign} {inputs[1]})"


def _converted(value: str, before: str, after: str) -> str:
    return f"({value} != 0)" if after == "unsigned char" else value if before == after else f"({after}){value}"
