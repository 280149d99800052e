"""Combinations of parameters in words."""

import numpy as np

SMALL = 0.25
"""Share of a direction's largest coefficient below which a parameter is not named."""


def named(names: tuple[str, ...], coefficients: np.ndarray, relative: tuple[bool, ...]) -> str:
    """Return a direction in words: mass · length² where all that matter are logarithms, else a sum."""
    size = np.abs(coefficients)
    counted = [i for i in range(len(size)) if size[i] > SMALL * size.max()]
    lead = next(coefficients[i] for i in counted if size[i] > 0.99 * size.max())
    shares = {i: coefficients[i] / lead for i in counted}
    if len(counted) == 1:
        return names[counted[0]]
    if all(relative[i] for i in counted):
        least = min(abs(share) for share in shares.values())
        powers = {i: share / least for i, share in shares.items()}
        above = [_power(names[i], power) for i, power in powers.items() if power > 0]
        below = [_power(names[i], -power) for i, power in powers.items() if power < 0]
        return " · ".join(above or ["1"]) + "".join(f" / {part}" for part in below)
    sizes = {i: "" if abs(abs(share) - 1.0) < 0.005 else f"{abs(share):.2g} " for i, share in shares.items()}
    terms = [f"{'−' if share < 0 else '+'} {sizes[i]}{names[i]}" for i, share in shares.items()]
    return " ".join(terms).removeprefix("+ ")


RAISED = str.maketrans("0123456789.−", "⁰¹²³⁴⁵⁶⁷⁸⁹·⁻")


def _power(name: str, power: float) -> str:
    nearest = round(2.0 * power) / 2.0
    return name if nearest == 1.0 else name + f"{nearest:g}".translate(RAISED)
