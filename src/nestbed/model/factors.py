"""The parts of a prior: distributions of one parameter each, or of several that are known together.

Each has unconstrained coordinates z = T⁻¹(θ), one for each parameter. A part of several that is a multivariate normal
in these coordinates knows all that follows from it in closed form; any other is known by its density and its draws.
"""

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.distributions.transforms import (
    ComposeTransform,
    ExpTransform,
    IdentityTransform,
    IndependentTransform,
    Transform,
    biject_to,
)

from nestbed.numerics.errors import NestbedError
from nestbed.numerics.noise import LOG_2PI

Components = tuple[jax.Array, ...]
"""One array per parameter (or state, or design), all broadcastable against each other."""
TRUSTED = 1e-4
"""What a grid may lose of a prior's mass, and change by having half as many points."""
Moments = tuple[np.ndarray, np.ndarray, float]
"""Mean, covariance and entropy of unconstrained coordinates; NaN where they are not known well."""


@dataclass(frozen=True, eq=False)
class Single:
    """The distribution of one parameter."""

    names: tuple[str, ...]
    distribution: Any
    transforms: tuple[Any, ...]
    together: ClassVar[bool] = False  # whether parameters share it
    divisible: ClassVar[bool] = True  # whether `log_marginal` knows how some are distributed without the others

    def sample(self, key: jax.Array, shape: tuple[int, ...]) -> Components:
        """Draw the unconstrained coordinate."""
        return (self.transforms[0].inv(self.distribution.sample(key, shape)),)

    def draw(self, key: jax.Array, shape: tuple[int, ...]) -> Components:
        """Draw the parameter itself."""
        return (self.distribution.sample(key, shape),)

    def log_density(self, position: Components) -> jax.Array:
        """Return log p(z) = log p(θ) + log |dT/dz|, directly from the base distribution where there is one."""
        (z,), (transform,) = position, self.transforms
        if getattr(self.distribution, "transforms", None) == [transform]:
            return jnp.asarray(self.distribution.base_dist.log_prob(z))
        theta = transform(z)
        jacobian = transform.log_abs_det_jacobian(z, theta)
        return jnp.asarray(self.distribution.log_prob(theta) + jacobian)

    def log_marginal(self, position: Components, chosen: tuple[bool, ...]) -> jax.Array:
        """Return the same: there is one coordinate."""
        return self.log_density(position)

    def moments(self, centre: tuple[float, ...], scales: tuple[float, ...]) -> Moments:
        """Return moments by a grid."""
        mean, variance, entropy = _quadrature(lambda z: self.log_density((z,)), centre[0], scales[0])
        return np.array([mean]), np.array([[variance]]), entropy


@dataclass(frozen=True, eq=False)
class Gaussian:
    """Several parameters whose unconstrained coordinates are a multivariate normal."""

    names: tuple[str, ...]
    distribution: Any
    transforms: tuple[Any, ...]
    mean: np.ndarray
    covariance: np.ndarray
    together: ClassVar[bool] = True
    divisible: ClassVar[bool] = True

    def sample(self, key: jax.Array, shape: tuple[int, ...]) -> Components:
        """Draw unconstrained coordinates."""
        normals = jax.random.normal(key, (len(self.names), *shape))
        root = np.linalg.cholesky(self.covariance)
        steps: list[Any] = [sum(float(root[i, j]) * normals[j] for j in range(i + 1)) for i in range(len(root))]
        return tuple(float(mean) + step for mean, step in zip(self.mean, steps, strict=True))

    def draw(self, key: jax.Array, shape: tuple[int, ...]) -> Components:
        """Draw the parameters themselves."""
        return tuple(t(z) for t, z in zip(self.transforms, self.sample(key, shape), strict=True))

    def log_density(self, position: Components) -> jax.Array:
        """Return the log-density of unconstrained coordinates."""
        return self.log_marginal(position, (True,) * len(position))

    def log_marginal(self, position: Components, chosen: tuple[bool, ...]) -> jax.Array:
        """Return the log-density that the chosen coordinates have by themselves."""
        places = np.flatnonzero(chosen)
        factor = np.linalg.cholesky(self.covariance[np.ix_(places, places)])
        off = [position[i] - float(self.mean[i]) for i in places]
        total: Any = -0.5 * len(places) * LOG_2PI - float(np.log(np.diagonal(factor)).sum())
        for i, row in enumerate(np.linalg.inv(factor)):
            total = total - 0.5 * sum(float(row[j]) * off[j] for j in range(i + 1)) ** 2
        return jnp.asarray(total)

    def moments(self, centre: tuple[float, ...], scales: tuple[float, ...]) -> Moments:
        """Return moments, which are known."""
        log_det = float(np.linalg.slogdet(self.covariance)[1])
        return self.mean, self.covariance, 0.5 * (len(self.names) * (1.0 + LOG_2PI) + log_det)


@dataclass(frozen=True, eq=False)
class Joint:
    """Several parameters of any distribution, each with a constraint of its own."""

    names: tuple[str, ...]
    distribution: Any
    transforms: tuple[Any, ...]
    together: ClassVar[bool] = True
    divisible: ClassVar[bool] = False

    def sample(self, key: jax.Array, shape: tuple[int, ...]) -> Components:
        """Draw unconstrained coordinates."""
        return tuple(t.inv(value) for t, value in zip(self.transforms, self.draw(key, shape), strict=True))

    def draw(self, key: jax.Array, shape: tuple[int, ...]) -> Components:
        """Draw the parameters themselves."""
        return tuple(jnp.moveaxis(self.distribution.sample(key, shape), -1, 0))

    def log_density(self, position: Components) -> jax.Array:
        """Return log p(z) = log p(θ) + Σ log |dT/dz|."""
        theta = tuple(t(z) for t, z in zip(self.transforms, position, strict=True))
        parts = zip(self.transforms, position, theta, strict=True)
        jacobian = sum(t.log_abs_det_jacobian(z, value) for t, z, value in parts)
        return jnp.asarray(self.distribution.log_prob(jnp.stack(jnp.broadcast_arrays(*theta), axis=-1)) + jacobian)

    def log_marginal(self, position: Components, chosen: tuple[bool, ...]) -> jax.Array:
        """Raise unless all are chosen: how some are distributed by themselves is not known."""
        if not all(chosen):
            raise NestbedError(
                f"the prior of {self.names} is a {type(self.distribution).__name__}, which does not tell how some of "
                "them are distributed without the others; make it a multivariate normal, or its logarithm."
            )
        return self.log_density(position)

    def moments(self, centre: tuple[float, ...], scales: tuple[float, ...]) -> Moments:
        """Return NaN: nothing is known in closed form."""
        size = len(self.names)
        return np.full(size, np.nan), np.full((size, size), np.nan), float("nan")


Factor = Single | Gaussian | Joint


def of(key: Any, distribution: Any) -> Factor:
    """Return the part of a prior that a name, or a tuple of names, stands for with a distribution."""
    if not isinstance(distribution, dist.Distribution):
        raise NestbedError(
            f"the prior of {key!r} is {distribution!r}, but it must be a NumPyro distribution; write for "
            "example dist.LogNormal(0.0, 0.1) after `import numpyro.distributions as dist`."
        )
    kind = type(distribution).__name__
    shape = distribution.batch_shape + distribution.event_shape
    joint = isinstance(key, tuple)
    if not joint and shape:
        raise NestbedError(
            f"the prior of {key!r} is a {kind} of shape {shape}, but each parameter needs a scalar distribution; give "
            'every component a name of its own, in a tuple such as ("mass", "length") if they are known together.'
        )
    if joint and (distribution.batch_shape or distribution.event_shape != (len(key),)):
        given = f"events of shape {distribution.event_shape}" if distribution.event_shape else "a scalar distribution"
        given = f"shape {shape} of independent ones" if distribution.batch_shape else given
        raise NestbedError(
            f"the prior of {key!r} is a {kind}, {given}, but {len(key)} names need one distribution of vectors with "
            f"{len(key)} entries, such as dist.MultivariateNormal; a single parameter's name stands without a tuple."
        )
    if distribution.support.is_discrete:
        raise NestbedError(
            f"the prior of {key!r} is the discrete {kind}, but parameters must be continuous; use for example "
            + ("dist.MultivariateNormal." if joint else "dist.Normal or dist.LogNormal.")
        )
    return _several(key, distribution) if joint else Single((key,), distribution, (biject_to(distribution.support),))


def _several(names: tuple[str, ...], distribution: Any) -> Factor:
    transforms = _apart(distribution.support, len(names))
    if transforms is None:
        raise NestbedError(
            f"the prior of {names} is a {type(distribution).__name__}, which constrains them together, but each "
            "parameter needs bounds of its own; use for example dist.MultivariateNormal, or its exponential by "
            "dist.TransformedDistribution."
        )
    known = _normal(distribution, transforms)
    if known is None:
        return Joint(names, distribution, transforms)
    mean, covariance = known
    with np.errstate(all="ignore"):
        fair = np.allclose(covariance, covariance.T, rtol=1e-6) and np.isfinite(mean).all()
        if not fair or not np.linalg.eigvalsh(covariance).min() > 0.0:
            raise NestbedError(
                f"the prior of {names} has the mean {mean.tolist()} and the covariance {covariance.tolist()}, which is "
                "no covariance: it must be symmetric, with variances above 0 along every direction."
            )
    return Gaussian(names, distribution, transforms, mean, covariance)


def _apart(support: Any, size: int) -> tuple[Any, ...] | None:
    """Return one transform for each entry of a vector, if it is constrained entry by entry."""
    try:
        whole = biject_to(support)
    except (NotImplementedError, KeyError):
        return None
    if isinstance(whole, Each):
        return whole.parts
    if not isinstance(whole, IndependentTransform) or whole.base_transform.domain.event_dim:
        return None
    base = whole.base_transform
    if type(base).__name__ == "CatTransform":  # of newer NumPyros: one transform for each stretch of the vector
        return tuple(base.transforms) if base.dim == -1 and base.lengths == (1,) * size else None
    return tuple(jax.tree.map(lambda leaf, i=i: leaf[i] if np.ndim(leaf) else leaf, base) for i in range(size))


def _normal(distribution: Any, transforms: tuple[Any, ...]) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the mean and the covariance of unconstrained coordinates, if they are a multivariate normal."""
    base = getattr(distribution, "base_dist", distribution)
    if not isinstance(base, dist.MultivariateNormal | dist.LowRankMultivariateNormal):
        return None
    with jax.ensure_compile_time_eval():
        fresh = copy.copy(base)  # NumPyro keeps what it computes, and a user's distribution is not to change
        mean, covariance = (np.array(part, float) for part in (fresh.mean, fresh.covariance_matrix))
        z = jnp.array([[-1.3], [0.2], [0.9]]) * jnp.ones(len(mean))
        theta = ComposeTransform(list(getattr(distribution, "transforms", [])))(z)
        again = np.stack([t.inv(theta[:, i]) for i, t in enumerate(transforms)], axis=-1)
    return (mean, covariance) if np.allclose(again, z, rtol=1e-9) else None


def normal(transforms: tuple[Any, ...], mean: np.ndarray, covariance: np.ndarray) -> Any:
    """Return the distribution of parameters whose unconstrained coordinates are a multivariate normal."""
    base = dist.MultivariateNormal(jnp.asarray(mean), covariance_matrix=jnp.asarray(covariance))
    plain = all(isinstance(t, IdentityTransform) for t in transforms)
    return base if plain else dist.TransformedDistribution(base, Each(transforms))


def logarithmic(transform: Any) -> bool:
    """Return whether a coordinate is its parameter's logarithm."""
    return isinstance(transform, ExpTransform)


class Each(Transform):  # type: ignore[misc]
    """A transform of its own for each entry of a vector."""

    domain = constraints.real_vector

    def __init__(self, parts: tuple[Any, ...]):
        self.parts = tuple(parts)

    @property
    def codomain(self) -> Any:
        """The product of what each entry can be."""
        return _Product(self.parts)

    def __call__(self, x: Any) -> Any:
        """Return the constrained vector."""
        return jnp.stack([part(x[..., i]) for i, part in enumerate(self.parts)], axis=-1)

    def _inverse(self, y: Any) -> Any:
        return jnp.stack([part.inv(y[..., i]) for i, part in enumerate(self.parts)], axis=-1)

    def log_abs_det_jacobian(self, x: Any, y: Any, intermediates: Any = None) -> Any:
        """Return the sum over entries."""
        return sum(part.log_abs_det_jacobian(x[..., i], y[..., i]) for i, part in enumerate(self.parts))

    def tree_flatten(self) -> Any:
        """Return the parts, for jax."""
        return (self.parts,), (("parts",), {})

    def eq(self, other: object, static: bool = False) -> Any:
        """Return whether another has equal parts."""
        return isinstance(other, Each) and self.parts == other.parts


class _Product(constraints.Constraint):  # type: ignore[misc]
    """What each entry of a vector can be, by the transforms that lead there."""

    event_dim = 1

    def __init__(self, parts: tuple[Any, ...]):
        self.parts = parts

    def __call__(self, x: Any) -> Any:
        return jnp.stack([part.codomain(x[..., i]) for i, part in enumerate(self.parts)], axis=-1).all(-1)

    def tree_flatten(self) -> Any:
        return (self.parts,), (("parts",), {})

    def eq(self, other: object, static: bool = False) -> Any:
        return isinstance(other, _Product) and self.parts == other.parts


biject_to.register(_Product, lambda constraint: Each(constraint.parts))


def _quadrature(log_density: Callable[[Any], Any], centre: float, scale: float) -> tuple[float, float, float]:
    """Return the mean, the variance and the entropy of one unconstrained coordinate, if a grid tells them."""
    s = np.linspace(-12.0, 12.0, 20_001)
    z = centre + scale * np.sinh(s)  # from a tiny part of the spread to 80,000 times it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # far out, a bounded parameter is rounded to its bound
        found = np.asarray(log_density(jnp.asarray(z)))
    found = np.where(np.isfinite(found), found, -1e3)
    mass = np.exp(found) * scale * np.cosh(s) * (s[1] - s[0])
    fine, coarse = (_averages(z[::k], found[::k], k * mass[::k]) for k in (1, 2))
    with np.errstate(invalid="ignore"):
        known = np.abs(fine - coarse) <= TRUSTED * np.array([1.0, scale, scale**2, 1.0])
    _, mean, variance, entropy = np.where(known.all() & (abs(fine[0] - 1.0) < TRUSTED), fine, np.nan)
    return float(mean), float(variance), float(entropy)


def _averages(z: np.ndarray, log_density: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """Return the whole mass, and the mean, the variance and the entropy of what has it."""
    total = mass.sum()
    share = mass / total
    mean = (share * z).sum()
    return np.array([total, mean, (share * (z - mean) ** 2).sum(), -(share * log_density).sum()])
