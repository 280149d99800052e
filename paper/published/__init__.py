"""The paper's numbers."""

import csv
from importlib import resources

import numpy as np


def policy_table(metric: str = "eig") -> dict[tuple[str, str], tuple[float, float]]:
    """Return {(system, policy): (mean, sd over 25 seeds)} of the paper's tables."""
    rows = [row for row in _rows("policy_tables.csv") if row["metric"] == metric]
    return {(row["system"], row["policy"]): (float(row["mean"]), float(row["sd"])) for row in rows}


def training_curve(system: str, belief: str) -> np.ndarray | None:
    """Return rows of (iteration, EIG mean, sd over 25 trainings), or None where the paper has no such curve."""
    method = "io_smc2_exact" if belief == "exact" else "io_smc2"
    rows = [row for row in _rows("training_curves.csv") if (row["system"], row["method"]) == (system, method)]
    columns = ("iteration", "eig_mean", "eig_sd")
    return np.array([[float(row[name]) for name in columns] for row in rows]) if rows else None


def information_gain(policy: str) -> np.ndarray | None:
    """Return rows of (experiments done, gain on the linear pendulum, sd over 1024 realisations), or None.

    The counts are those after which the points were really taken: the paper's axis says four more.
    """
    rows = [row for row in _rows("information_gain_linear_pendulum.csv") if row["policy"] == policy]
    return np.array([[float(row[name]) for name in ("experiments", "mean", "sd")] for row in rows]) if rows else None


def particle_sweep() -> dict[int, dict[str, float]]:
    """Return the paper's estimates on the cart-pole by the number of parameter particles."""
    rows = _rows("cart_pole_particle_sweep.csv")
    return {int(row.pop("theta_particles")): {name: float(value) for name, value in row.items()} for row in rows}


def _rows(name: str) -> list[dict[str, str]]:
    with (resources.files(__name__) / name).open() as stream:
        return list(csv.DictReader(stream))
