"""A rig that is the model itself, with parameters that only it knows."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from nestbed import likelihood as likelihoods
from nestbed.likelihood.base import Likelihood
from nestbed.model import checks
from nestbed.model.system import BaseSystem
from nestbed.numerics import noise
from nestbed.numerics.errors import NestbedError, did_you_mean


class Simulated:
    """A simulated rig of any system: `theta` are its true parameters by name, those not named are drawn.

    The same key gives the same rig and the same noise, whatever the designs. What sensors show is rounded to the
    steps of their resolution. `parameters` are the true ones by name, `states` what the rig really is, seen or not.
    """

    def __init__(self, system: BaseSystem, key: jax.Array | None = None, theta: Mapping[str, float] | None = None):
        checks.instance(system)
        self.system, self._likelihood = system, likelihoods.of(system.replace(resolution={}))
        theta_key, self._key = jax.random.split(noise.as_key(jax.random.key(0) if key is None else key))
        drawn = dict(zip(system.parameter_names, system.parameters.draw(theta_key, (1,)), strict=True))
        for name, value in (theta or {}).items():
            if name not in drawn:
                raise NestbedError(f"the rig has no parameter {name!r}; {did_you_mean(str(name), drawn)}.")
            drawn[name] = jnp.asarray([float(value)])
        self._theta = tuple(drawn.values())
        self.parameters = {name: float(value[0]) for name, value in drawn.items()}
        self._done = 0
        self._truth: Any = None

    def reset(self) -> Float[np.ndarray, " dy"]:
        """Start anew."""
        self._done = 0
        truth, y = self._likelihood.begin(jax.random.fold_in(self._key, 0), 1, self._theta)
        self._truth = jax.tree.map(np.asarray, truth)  # of the type that experiments return, so that they compile once
        return self._rounded(y[0])

    def apply(self, u: Any) -> Float[np.ndarray, " dy"]:
        """Do one experiment."""
        if self._truth is None:
            raise NestbedError("the rig was not started; call reset() first.")
        design = checks.numbers("the design", u).reshape(-1)
        if design.shape != (len(self.system.design_names),):
            raise NestbedError(f"the rig got {len(design)} designs, but has {self.system.design_names}.")
        self._done += 1
        key = jax.random.fold_in(self._key, self._done)
        self._truth, y = _experiment(self._likelihood, key, self._truth, jnp.asarray(design), self._theta)
        return self._rounded(y)

    def _rounded(self, y: Any) -> Float[np.ndarray, " dy"]:
        steps = np.array([self.system.resolution.get(name, 0.0) for name in self.system.observation_names])
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(steps > 0.0, steps * np.round(np.asarray(y) / steps), np.asarray(y))

    @property
    def states(self) -> dict[str, float]:
        """The states now, by name."""
        values = self._likelihood.states(self._truth)
        return {name: float(value[0]) for name, value in zip(self.system.state, values, strict=True)}


@eqx.filter_jit
def _experiment(likelihood: Likelihood, key: jax.Array, truth: Any, u: Any, theta: Any) -> Any:
    normals = tuple(noise.normals(key, (likelihood.normals, 1)))
    truth, y = likelihood.experiment(normals, truth, tuple(value[None] for value in u), theta)
    return truth, jnp.concatenate([jnp.broadcast_to(value, (1,)) for value in y])
