"""What the trajectories of a sweep, and the candidates of a myopic policy, are weighted by."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float


class Potential(NamedTuple):
    """log g = η · (gain − penalties): what trajectories are weighted by."""

    eta: Float[Array, ""]
    slew_penalty: Float[Array, ""]
    action_penalty: Float[Array, ""]

    def log(
        self, gain: Float[Array, " N"], u: Float[Array, "N du"], u_previous: Float[Array, "N du"]
    ) -> Float[Array, " N"]:
        """Return the log-potential of one experiment."""
        slew = jnp.sum((u - u_previous) ** 2, axis=-1)
        action = jnp.sum(u**2, axis=-1)
        return self.eta * (gain - self.slew_penalty * slew - self.action_penalty * action)
