"""What a system is, for someone who has not seen it: its equations as written, and tables of all that has a name."""

import ast
import inspect
import math
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nestbed.faces.findings import before
from nestbed.faces.page import Grid, Section
from nestbed.model import sensors
from nestbed.model.system import BaseSystem


def system(model: BaseSystem) -> Section:
    """Return what a system is: its source, and what is unknown, chosen, seen and limited."""
    kind = type(model)
    unit = f" {model.units['time']}" if "time" in model.units else ""
    words = [
        " ".join(" ".join((base.__doc__ or "").split()) for base in _own(kind)),
        f"A step from one experiment to the next is {model.step:g}{unit} long. The equations as they were written, in "
        "Python: x are the states, u the designs, θ (theta) the parameters, and drift is what the states' rates are.",
    ]
    grids = [_parameters(model), _designs(model), _seen(model), _states(model)]
    return Section("The system", words, [*grids, *_limits(model)], code=source(kind))


def source(kind: type) -> str:
    """Return the classes that a system is written in, those that others are made from first."""
    return "\n\n".join(text for base in _own(kind) if (text := _class(base)))


def _own(kind: type) -> list[type]:
    """Return a system's class and those that it is made from, but nestbed's own, the first of them first."""
    every = [base for base in kind.__mro__ if issubclass(base, BaseSystem) and base.__module__ != BaseSystem.__module__]
    return every[::-1]


def _class(kind: type) -> str:
    """Return a class as it stands in its file, also where that was run and not imported."""
    codes = [value.__code__ for value in vars(kind).values() if inspect.isfunction(value)]
    file = Path(codes[0].co_filename) if codes else Path(inspect.getsourcefile(kind) or "")
    try:
        text = file.read_text(encoding="utf-8")
        found = [
            node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef) and node.name == kind.__name__
        ]
    except (OSError, SyntaxError, ValueError):
        return ""
    return textwrap.dedent("\n".join(text.splitlines()[found[0].lineno - 1 : found[0].end_lineno])) if found else ""


def _parameters(model: BaseSystem) -> Grid:
    rows = []
    told = {name: _distribution(value) for names, value in model.prior.items() for name in _each(names)}
    for i, name in enumerate(model.parameter_names):
        mean, sd = before(model, i)
        low, high = np.quantile(np.asarray(model.parameters.draws[i]), (0.025, 0.975))
        rows.append((name, _unit(model, name), told[name], f"{mean:.4g} ± {sd:.2g}", f"{low:.3g} … {high:.3g}"))
    return Grid(("unknown parameter", "unit", "prior", "mean ± sd", "95 %"), rows)


def _designs(model: BaseSystem) -> Grid:
    box = model.designs
    rows = [
        (
            name,
            _unit(model, name),
            f"{low:g}",
            f"{high:g}",
            f"{rest:g}",
            _known(model.slew.get(name)),
            _known(model.delay.get(name)),
        )
        for name, low, high, rest in zip(box.names, box.low, box.high, model.rest_design, strict=True)
    ]
    return Grid(("design", "unit", "from", "to", "at rest", "change per step", "steps late"), rows)


def _seen(model: BaseSystem) -> Grid:
    rows = []
    for name in model.observation_names:
        noise = model.sensors.get(name, "none") if isinstance(model.sensors, Mapping) else "–"
        rows.append((name, _unit(model, name), _known(noise), _known(model.resolution.get(name))))
    return Grid(("seen", "unit", "noise (sd)", "rounded to"), rows)


def _states(model: BaseSystem) -> Grid:
    rows = [
        (name, _unit(model, name), f"{mean:.4g}" + (f" ± {math.sqrt(variance):.2g}" if variance else ""))
        for name, (mean, variance) in zip(model.state_names, sensors.start(model), strict=True)
    ]
    return Grid(("state", "unit", "at the start"), rows)


def _limits(model: BaseSystem) -> list[Grid]:
    rows = [(name, _unit(model, name), *(_known(each) for each in pair)) for name, pair in model.limits.items()]
    return [Grid(("limit of", "unit", "not below", "not above"), rows)] if rows else []


def _distribution(value: Any) -> str:
    """Return a distribution with the numbers that it was made of, where they are few."""
    held = [getattr(value, name, None) for name in getattr(type(value), "arg_constraints", {})]
    numbers = [f"{float(each):g}" for each in held if each is not None and np.ndim(each) == 0]
    return f"{type(value).__name__}({', '.join(numbers)})".replace("()", "")


def _each(names: Any) -> Iterable[str]:
    return names if isinstance(names, tuple) else (names,)


def _known(value: Any) -> str:
    return "–" if value is None else value if isinstance(value, str) else f"{float(value):g}"


def _unit(model: BaseSystem, name: str) -> str:
    return str(model.units.get(name, ""))


def settings(values: Mapping[str, Any]) -> Grid:
    """Return settings, those within others by names joined with a dot."""
    rows = []
    for name, value in values.items():
        inner = value if isinstance(value, Mapping) else None
        rows += (
            [(f"{name}.{key}", str(each)) for key, each in inner.items()] if inner is not None else [(name, str(value))]
        )
    return Grid(("setting", "value"), rows)
