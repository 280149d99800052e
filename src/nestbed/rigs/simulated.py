"""A rig that is the model itself, with parameters that only it knows."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from nestbed import likelihood as likelihoods
from nestbed.model import checks
from nestbed.model.system import BaseSystem
from nestbed.numerics import noise
from nestbed.numerics.errors import NestbedError, did_you_mean


class Simulated:
    """A simulated rig of any system: `theta` are its true parameters by name, those not named are drawn.

    The same key gives the same rig and the same noise, whatever the designs. `parameters` are the true ones by name,
    `states` what the rig really is, seen or not.
    """

    def __init__(self, system: BaseSystem, key: jax.Array | None = None, theta: Mapping[str, float] | None = None):
        checks.instance(system)
        self.system = system
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
        truth, y = likelihoods.of(self.system).begin(jax.random.fold_in(self._key, 0), 1, self._theta)
        self._truth = jax.tree.map(np.asarray, truth)  # of the type that experiments return, so that they compile once
        return np.asarray(y[0])

    def apply(self, u: Any) -> Float[np.ndarray, " dy"]:
        """Do one experiment."""
        if self._truth is None:
            raise NestbedError("the rig was not started; call reset() first.")
        design = checks.numbers("the design", u).reshape(-1)
        if design.shape != (len(self.system.design_names),):
            raise NestbedError(f"the rig got {len(design)} designs, but has {self.system.design_names}.")
        self._done += 1
        key = jax.random.fold_in(self._key, self._done)
        self._truth, y = _experiment(self.system, key, self._truth, jnp.asarray(design), self._theta)
        return np.asarray(y)

    @property
    def states(self) -> dict[str, float]:
        """The states now, by name."""
        values = likelihoods.of(self.system).states(self._truth)
        return {name: float(value[0]) for name, value in zip(self.system.state, values, strict=True)}


@eqx.filter_jit
def _experiment(system: BaseSystem, key: jax.Array, truth: Any, u: Any, theta: Any) -> Any:
    likelihood = likelihoods.of(system)
    normals = tuple(noise.normals(key, (likelihood.normals, 1)))
    truth, y = likelihood.experiment(normals, truth, tuple(value[None] for value in u), theta)
    return truth, jnp.concatenate([jnp.broadcast_to(value, (1,)) for value in y])
