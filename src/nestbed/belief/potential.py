"""What the trajectories of a sweep, and the candidates of a myopic policy, are weighted by."""

from typing import NamedTuple, Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestbed.model.system import BaseSystem
from nestbed.numerics.errors import NestbedError, at_least_zero


class Potential(NamedTuple):
    """log g = η · (gain − penalties): what trajectories are weighted by."""

    eta: Float[Array, ""]
    slew_penalty: Float[Array, ""]
    action_penalty: Float[Array, ""]
    units: Float[Array, " du"]  # that designs are penalised in

    @classmethod
    def of(cls, system: BaseSystem, eta: float | None, slew_penalty: float | None, action_penalty: float) -> Self:
        """Return the potential with these terms; those left None are the system's defaults."""
        terms = {
            "eta": system.defaults.eta if eta is None else eta,
            "slew_penalty": system.defaults.slew_penalty if slew_penalty is None else slew_penalty,
            "action_penalty": action_penalty,
        }
        at_least_zero(**terms)
        half = 0.5 * np.subtract(system.designs.high, system.designs.low)
        units = np.asarray(system.defaults.penalty_units or half, float)
        if units.shape != half.shape or not (units > 0.0).all():
            raise NestbedError(
                f"{system.name}.defaults has penalty_units {system.defaults.penalty_units}; give a positive number for "
                f"each of the designs {system.design_names}, or leave it out for half their box."
            )
        return cls(**{name: jnp.asarray(value, float) for name, value in terms.items()}, units=jnp.asarray(units))

    def log(
        self, gain: Float[Array, " N"], u: Float[Array, "N du"], u_previous: Float[Array, "N du"]
    ) -> Float[Array, " N"]:
        """Return the log-potential of one experiment."""
        slew = jnp.sum(((u - u_previous) / self.units) ** 2, axis=-1)
        action = jnp.sum((u / self.units) ** 2, axis=-1)
        return self.eta * (gain - self.slew_penalty * slew - self.action_penalty * action)
