"""What is known of the parameters, as numbers for programs and curves for people."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from nestbed.faces.server.course import ENDS, plain

if TYPE_CHECKING:
    from nestbed.live.session import Session
    from nestbed.model.system import BaseSystem

POINTS = 120
"""Places of a density."""
WIDE = (0.001, 0.999)
"""Quantiles between which a density is drawn."""
DRAWS = 2048
"""Of a prior whose density is drawn."""


def prior(system: "BaseSystem") -> list[dict[str, Any]]:
    """Return for each parameter its name, its unit and its prior: mean, standard deviation, 95 %, density."""
    found = []
    for name, draws in zip(system.parameter_names, system.parameters.draws, strict=True):
        values = np.asarray(draws, float).ravel()
        low, high = np.quantile(values, ENDS)
        numbers = {"mean": float(values.mean()), "sd": float(values.std()), "interval": [float(low), float(high)]}
        kept = values[:DRAWS]
        curve = density(kept, np.full(len(kept), 1.0 / len(kept)))
        found.append({"name": name, "unit": str(system.units.get(name, "")), **numbers, "density": curve})
    return [dict(plain(each)) for each in found]


def posterior(session: "Session") -> dict[str, Any]:
    """Return what is known now: each parameter, pairs of them, hidden states, what was gained."""
    known, system = session.posterior, session.system
    ends, sd, weights = known.quantiles(ENDS), known.sd, known.weights
    parameters = [
        {
            "name": name,
            "unit": str(system.units.get(name, "")),
            "mean": mean,
            "sd": sd[name],
            "interval": list(ends[name]),
            "density": density(np.asarray(values, float), weights),
        }
        for (name, mean), values in zip(known.mean.items(), known.belief.theta, strict=True)
    ]
    return dict(
        plain(
            {
                "step": session.step,
                "gain": session.gain,
                "parameters": parameters,
                "correlation": [{"of": list(pair), "value": value} for pair, value in known.correlation.items()],
                "states": [
                    {"name": name, "unit": str(system.units.get(name, "")), "mean": mean, "sd": spread}
                    for name, (mean, spread) in known.states.items()
                ],
            }
        )
    )


def density(values: Float[np.ndarray, " M"], weights: Float[np.ndarray, " M"]) -> dict[str, list[float]]:
    """Return a density by Gaussian kernels of Silverman's width, at places between far quantiles."""
    order = np.argsort(values)
    share = np.cumsum(weights[order]) - 0.5 * weights[order]
    low, quarter, half, high = np.interp((WIDE[0], 0.25, 0.75, WIDE[1]), share, values[order])
    mean = weights @ values
    spread = float(np.sqrt(weights @ (values - mean) ** 2))
    if not (np.isfinite(spread) and spread > 0.0):
        return {"at": [], "density": []}
    narrow = min(spread, (half - quarter) / 1.34) if half > quarter else spread
    width = 0.9 * narrow * (1.0 / np.sum(weights**2)) ** -0.2
    at = np.linspace(low - 2.0 * width, high + 2.0 * width, POINTS)
    found = np.exp(-0.5 * ((at[:, None] - values) / width) ** 2) @ weights / (width * np.sqrt(2.0 * np.pi))
    return {"at": at.tolist(), "density": found.tolist()}
