"""Cells whose numbers cost nothing."""

import numpy as np

from nestbed import systems
from paper import published
from paper.cells import Cell
from paper.reproduce import Done


def cell(name, kind="estimate", **settings):
    return Cell(name, kind, "cart_pole", "random", 1.0, settings)


def counting(calls):
    """Return how to compute cells so that it is noted which were."""

    def compute(cell, folder):
        calls.append(cell.name)
        return {"value": len(cell.name)}

    return compute


def invented(plan, shift=0.0):
    """Return results that agree with the paper but for a shift in its sd."""
    return [Done(cell, _KINDS[cell.kind](cell, shift), 2.0, True, {"jax": "0.10.2"}) for cell in plan]


def _estimate(cell, shift):
    tables = {metric: published.policy_table(metric) for metric in ("eig", "spce")}
    theirs = {metric: table.get((cell.system, cell.policy), (9.0, 0.5)) for metric, table in tables.items()}
    moved = 0.0 if cell.seed is None else 0.1 * (cell.seed - 2)
    return {
        metric: {"mean": mean + shift * sd + moved, "sd": sd, "standard_error": sd / 5}
        for metric, (mean, sd) in {**theirs, "snmc": (99.0, 1.0)}.items()
    }


def _gain(cell, shift):
    moved = np.linspace(0.05, 2.5, 50) + 0.1 * ((cell.seed or 2) - 2)
    return {"mean": moved.tolist(), "sd": [0.1] * 50}


def _trajectory(cell, shift):
    system = systems.load(cell.system)
    shapes = {"observations": (51, len(system.state_names)), "designs": (50, len(system.design_names))}
    return {"theta": [], **{name: np.zeros(shape).tolist() for name, shape in shapes.items()}}


_KINDS = {
    "training": lambda cell, shift: {"eig": 1.0, "eig_error": 0.1},
    "estimate": _estimate,
    "gain": _gain,
    "trajectory": _trajectory,
    "particles": lambda cell, shift: {"eig": {"mean": 20.0, "sd": 0.5}, "spce": {"mean": 5.0, "sd": 0.0}},
}
