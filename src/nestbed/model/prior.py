"""The prior over named parameters, in the constrained coordinates users see and the unconstrained ones filters use."""

import functools
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions.transforms import ExpTransform, biject_to

from nestbed.numerics.errors import NestbedError

Components = tuple[jax.Array, ...]
"""One array per parameter (or state, or design), all broadcastable against each other."""


class _Marginal(NamedTuple):
    """One parameter's distribution, with z = T⁻¹(θ) its unconstrained coordinate."""

    distribution: Any
    transform: Any

    @property
    def logarithmic(self) -> bool:
        """Whether the coordinate is the parameter's logarithm."""
        return isinstance(self.transform, ExpTransform)

    def log_density(self, z: jax.Array) -> jax.Array:
        """Return log p(z) = log p(θ) + log |dT/dz|, directly from the base distribution where there is one."""
        if getattr(self.distribution, "transforms", None) == [self.transform]:
            return jnp.asarray(self.distribution.base_dist.log_prob(z))
        theta = self.transform(z)
        jacobian = self.transform.log_abs_det_jacobian(z, theta)
        return jnp.asarray(self.distribution.log_prob(theta) + jacobian)


class Prior:
    """Independent NumPyro distributions by parameter name."""

    def __init__(self, distributions: Mapping[str, Any]):
        if not isinstance(distributions, Mapping) or not distributions:
            raise NestbedError(
                f"prior is {distributions!r}, but it must be a dictionary of NumPyro distributions by parameter "
                'name, as in {"mass": dist.LogNormal(0.0, 0.1)}.'
            )
        self.marginals = tuple(_marginal(name, d) for name, d in distributions.items())
        with jax.ensure_compile_time_eval():
            draws = self.sample(jax.random.key(0), (4096,))
            spread = [jnp.diff(jnp.quantile(z, jnp.array([0.16, 0.84])))[0] / 2 for z in draws]
            density = [m.log_density(z) for m, z in zip(self.marginals, draws, strict=True)]
            self.draws = self.constrain(draws)  # of the parameters themselves
            self.middle: Components = tuple(jnp.median(value) for value in self.draws)
        for name, scale in zip(distributions, spread, strict=True):
            if not scale > 0:
                raise NestbedError(f"the prior of {name!r} has no spread; make a known value a constant of the system.")
        for (name, distribution), values in zip(distributions.items(), density, strict=True):
            if not jnp.isfinite(values).all():
                raise NestbedError(
                    f"the prior of {name!r}, a {type(distribution).__name__} with {_arguments(distribution)}, has no "
                    "finite density where it was drawn; correct its parameters, such as a scale that must be positive."
                )
        with jax.ensure_compile_time_eval():
            self.centre = tuple(float(z) for z in self.unconstrain(self.middle))  # the same, unconstrained
        self.scales = tuple(float(s) for s in spread)  # about the standard deviation of each unconstrained coordinate

    def sample(self, key: jax.Array, shape: tuple[int, ...]) -> Components:
        """Draw unconstrained coordinates, one array of `shape` per parameter."""
        keys = jax.random.split(key, len(self.marginals))
        pairs = zip(keys, self.marginals, strict=True)
        return tuple(m.transform.inv(m.distribution.sample(k, shape)) for k, m in pairs)

    def draw(self, key: jax.Array, shape: tuple[int, ...]) -> Components:
        """Draw parameters themselves, one array of `shape` for each."""
        keys = jax.random.split(key, len(self.marginals))
        return tuple(m.distribution.sample(k, shape) for k, m in zip(keys, self.marginals, strict=True))

    def constrain(self, position: Components) -> Components:
        """Map unconstrained coordinates to parameters."""
        return tuple(m.transform(z) for m, z in zip(self.marginals, position, strict=True))

    def unconstrain(self, theta: Components) -> Components:
        """Map parameters to unconstrained coordinates."""
        return tuple(m.transform.inv(value) for m, value in zip(self.marginals, theta, strict=True))

    def log_density(self, position: Components) -> jax.Array:
        """Return the log-density of unconstrained coordinates (the Jacobian included)."""
        terms = [m.log_density(z) for m, z in zip(self.marginals, position, strict=True)]
        return sum(terms[1:], start=terms[0])

    @functools.cached_property
    def moments(self) -> tuple[Any, Any, float]:
        """The mean and variance of each unconstrained coordinate, and the entropy of all; NaN where not known well."""
        with jax.ensure_compile_time_eval():
            marginals = zip(self.marginals, self.centre, self.scales, strict=True)
            found = np.array([_quadrature(marginal, centre, scale) for marginal, centre, scale in marginals])
        return found[:, 0], found[:, 1], float(found[:, 2].sum())


def _quadrature(marginal: _Marginal, centre: float, scale: float) -> tuple[float, float, float]:
    """Return the mean, the variance and the entropy of one unconstrained coordinate, if a grid tells them."""
    s = np.linspace(-12.0, 12.0, 20_001)
    z = centre + scale * np.sinh(s)  # from a tiny part of the spread to 80,000 times it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # far out, a bounded parameter is rounded to its bound
        log_density = np.asarray(marginal.log_density(jnp.asarray(z)))
    log_density = np.where(np.isfinite(log_density), log_density, -1e3)
    mass = np.exp(log_density) * scale * np.cosh(s) * (s[1] - s[0])
    fine, coarse = (_averages(z[::k], log_density[::k], k * mass[::k]) for k in (1, 2))
    with np.errstate(invalid="ignore"):
        known = np.abs(fine - coarse) <= TRUSTED * np.array([1.0, scale, scale**2, 1.0])
    _, mean, variance, entropy = np.where(known.all() & (abs(fine[0] - 1.0) < TRUSTED), fine, np.nan)
    return float(mean), float(variance), float(entropy)


TRUSTED = 1e-4
"""What a grid may lose of a prior's mass, and change by having half as many points."""


def _averages(z: np.ndarray, log_density: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """Return the whole mass, and the mean, the variance and the entropy of what has it."""
    total = mass.sum()
    share = mass / total
    mean = (share * z).sum()
    return np.array([total, mean, (share * (z - mean) ** 2).sum(), -(share * log_density).sum()])


def _arguments(distribution: Any) -> str:
    return ", ".join(f"{name} = {value}" for name, value in distribution.get_args().items())


def _marginal(name: str, distribution: Any) -> _Marginal:
    if not isinstance(distribution, dist.Distribution):
        raise NestbedError(
            f"the prior of {name!r} is {distribution!r}, but it must be a NumPyro distribution; write for "
            "example dist.LogNormal(0.0, 0.1) after `import numpyro.distributions as dist`."
        )
    kind = type(distribution).__name__
    if distribution.event_shape or distribution.batch_shape:
        raise NestbedError(
            f"the prior of {name!r} is a {kind} of shape {distribution.batch_shape + distribution.event_shape}, but "
            "each parameter needs a scalar distribution; give every component a name of its own."
        )
    if distribution.support.is_discrete:
        raise NestbedError(
            f"the prior of {name!r} is the discrete {kind}, but parameters must be continuous; use for example "
            "dist.Normal or dist.LogNormal."
        )
    return _Marginal(distribution, biject_to(distribution.support))
