"""Whether a Gaussian filter follows hidden states: its density of simulated records beside that of particles.

Particles give each record's density without bias, whatever their number: where the Gaussian filter is exact, the ratio
of the two has the mean 1. Half of what one has is bet on each record, at odds that are this ratio: what becomes of 1 is
then above 1 / ALARM with a probability of ALARM at most (Markov), and a record that particles fail on costs one half.
The filter is not asked to be exact, which it mostly is not, but called off where that shows beyond doubt: about a nat
for each record does.
"""

import math
import warnings
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestbed.likelihood.kalman import Kalman
from nestbed.likelihood.particle import Particle
from nestbed.model import linearity
from nestbed.model.prior import Components
from nestbed.model.system import BaseSystem
from nestbed.numerics import noise, programs
from nestbed.numerics.errors import outside

ALARM = 1e-4
"""Probability that an exact filter is warned of, at most."""
RECORDS, PARTICLES, LONGEST = 32, 512, 50
"""Simulated records, state particles for each, and experiments at most."""
CORNERS = 5
"""Corners of the box that some of the records visit."""
LOST = 1000.0
"""Nats that a filter misses which has no finite density for a record where particles have one."""
FAR = 1.2
"""Residuals, in deviations that the filter predicts, above which they are told."""
QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}
"""The program runs once, for less time than it takes to compile."""


class Adequacy(NamedTuple):
    """How a Gaussian filter fared on simulated records of its own model."""

    missed: Float[np.ndarray, " records"]  # log-density by particles, less that by the filter
    residuals: float  # root mean square of what sensors show beside what the filter predicts, in its deviations
    particles: int

    @property
    def log_winnings(self) -> float:
        """Logarithm of what the bet came to; above log(1 / ALARM) the filter is off."""
        return float(np.sum(np.logaddexp(0.0, self.missed) - math.log(2.0)))

    @property
    def off(self) -> bool:
        """Whether the filter is off beyond doubt."""
        return self.log_winnings > -math.log(ALARM)

    def sentence(self, name: str) -> str:
        """Return by how much it is off, and what to do."""
        more = self.missed[self.missed > 0.0]
        wide = f", whose sensors lie {self.residuals:.2g} times as far from its predictions as it says"
        return (
            f"the Gaussian filter of {name} is off: {len(more)} of {len(self.missed)} simulated records are likelier "
            f"than it takes them to be, by {np.mean(more):.2g} nats on average{wide if self.residuals > FAR else ''}; "
            "gains and posteriors by it may be far off, so give the system state_particles = 256."
        )


@programs.cached(maxsize=64)
def check(system: BaseSystem) -> None:
    """Warn, once for a system, where hidden states are followed by a Gaussian filter that is off beyond doubt."""
    if not system.hidden or system.state_particles or not linearity.why_not_in_states(system):
        return
    found = judged(system)
    if found.off:
        warnings.warn(found.sentence(system.name), stacklevel=outside())


def judged(
    system: BaseSystem, *, records: int = RECORDS, particles: int = PARTICLES, horizon: int | None = None, seed: int = 0
) -> Adequacy:
    """Simulate records at draws of the prior, and weigh each by the Gaussian filter and by so many state particles.

    A quarter of them try new designs at every step, a quarter keep a corner of the box, and half go from one to another
    a few times: what empties or settles meanwhile is stirred again.
    """
    steps = min(system.horizon, LONGEST) if horizon is None else horizon
    random = np.random.default_rng(seed)
    unit = 2.0 * random.random((records, steps, len(system.design_names))) - 1.0
    unit[records // 4 :] = np.sign(unit[records // 4 :, :1])
    last = records // 2
    corners = np.sign(2.0 * random.random((records - last, CORNERS, unit.shape[-1])) - 1.0)
    unit[last:] = np.repeat(corners, -(-steps // CORNERS), axis=1)[:, :steps]
    draws = tuple(np.asarray(value) for value in system.parameters.draws)
    theta = tuple(np.resize(np.roll(value, -seed * records), records) for value in draws)
    by_filter, by_particles, squares = _weighed(
        system.replace(state_particles=particles), jax.random.key(seed), system.designs.scale(unit), theta
    )
    known, own = np.isfinite(by_particles), np.isfinite(by_filter)
    with np.errstate(invalid="ignore"):
        missed = np.where(known & own, np.asarray(by_particles - by_filter), np.where(known, LOST, 0.0))
    return Adequacy(missed, float(np.sqrt(np.nanmean(np.asarray(squares)))), particles)


@partial(jax.jit, static_argnums=0, compiler_options=QUICK)
def _weighed(
    system: BaseSystem, key: jax.Array, designs: Float[Array, "N T du"], theta: Components
) -> tuple[Array, Array, Array]:
    """Return each record's log-density by the filter and by particles, and its squared residuals, averaged."""
    count, steps, _ = designs.shape
    smooth = Kalman(system)

    def record(key: jax.Array, u: Float[Array, "T du"], theta: Components, number: Any) -> Any:
        swarm, own = Particle(system, stream=number), tuple(value[None] for value in theta)
        wide = _wide(own)
        start_key, steps_key = jax.random.split(key)
        truth, first = smooth.begin(start_key, 1, own)

        def experiment(so_far: Any, now: Any) -> Any:
            truth, carry, cloud = so_far
            normals = noise.normals(now[1], (1, smooth.normals))
            truth, seen = smooth.experiment(tuple(normals.T), truth, tuple(now[0][:, None]), own)
            u, y = _wide(tuple(now[0][:, None])), _wide(seen)
            carry, deviance, residuals, variances = smooth.innovations(carry, u, y, wide)
            cloud, log_density = swarm.advance(cloud, u, y, wide)
            squares = [jnp.mean(r**2 / v) for r, v in zip(residuals, variances, strict=True)]
            mine = -0.5 * jnp.sum(deviance + smooth.log_normaliser)
            return (truth, carry, cloud), (mine, jnp.sum(log_density), jnp.mean(jnp.stack(squares)))

        y = _wide(tuple(first.T))
        begun = truth, smooth.start(y, wide), swarm.start(y, wide)
        rows = jax.lax.scan(experiment, begun, (u, jax.random.split(steps_key, steps)))[1]
        return jnp.sum(rows[0]), jnp.sum(rows[1]), jnp.mean(rows[2])

    return jax.vmap(record)(jax.random.split(key, count), designs, theta, jnp.arange(count))


def _wide(values: Components) -> Components:
    """Return components with room for one parameter vector."""
    return tuple(value[:, None] for value in values)
