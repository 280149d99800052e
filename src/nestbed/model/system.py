"""The user's model: named states, designs and parameters, their prior, and one noisy step of the dynamics.

Time is discrete. One Euler step is `x[t+1] = x[t] + step · drift(x[t], u[t], θ) + noise`, where the noise of each
state is Gaussian with variance `step · diffusion² + noise_floor`; where `diffusion` is a matrix G, with one row per
state and one column per source of noise, it has the covariance `step · G Gᵀ + noise_floor · I`. `integrator` and
`substeps` follow the drift more closely (see `integration.py`). Every state is observed as it is, or what `sensors`
show of them with noise (see `sensors.py`).
"""

import dataclasses
from abc import ABC, abstractmethod
from collections import namedtuple
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from nestbed.model import checks, factors, integration, predictive, sensors
from nestbed.model.box import Box
from nestbed.model.prior import Components, Prior
from nestbed.numerics import edges, programs
from nestbed.numerics.errors import NestbedError, did_you_mean


@dataclasses.dataclass(frozen=True)
class Defaults:
    """The settings a system is filtered and trained with unless the caller says otherwise."""

    horizon: int = 50  # T, experiments
    trajectories: int = 256  # N
    particles: int = 128  # M, per trajectory
    moves: int = 3  # Metropolis steps per rejuvenation
    eta: float = 1.0  # η, tempering of the potential
    slew_penalty: float = 0.0  # on squared changes of the designs, in `penalty_units`
    penalty_units: tuple[float, ...] = ()  # one for each design; by default half its box
    learning_rate: float = 1e-3
    iterations: int = 25


class BaseSystem(ABC):
    """What every system has; write yours as a subclass of `System` or `VectorSystem`."""

    state: tuple[str, ...] = ()
    designs: Box = None  # type: ignore[assignment]  # every system must say
    prior: Mapping[Any, Any] = None  # type: ignore[assignment]  # NumPyro distributions by name, or tuple of names
    step: float = 0.05  # seconds (or the model's unit of time) between experiments
    integrator: str | None = None  # "euler", "rk4" or "exponential"; None: the first of these that follows the drift
    substeps: int = 1  # parts that each step is integrated in
    diffusion: Any = ()  # one number per state, or one row of them, one per source; or a method (x, u, theta) of these
    noise_floor: float = predictive.FLOOR  # variance added to every state's noise
    limits: Mapping[str, Any] = {}  # (low, high) of states, or of methods name(self, x, u); None: no limit
    sensors: Any = {}  # standard deviation, or the parameter that it is, by sensor name; none: all states are seen
    resolution: Mapping[str, float] = {}  # step that a sensor rounds to, by name
    delay: Mapping[str, Any] = {}  # steps that a design arrives late, or the parameter that they are, by name
    state_particles: int = 0  # of a particle filter of hidden states; 0: a Gaussian one
    slew: Mapping[str, float] = {}  # most that a design may change by, from one experiment to the next
    start: Any = 0.0  # a number for all, or per state (tuple or dict) a number or a NumPyro distribution
    units: Mapping[str, str] = {}  # for figures and tables, by name
    defaults: Defaults = Defaults()

    def __init__(self, **changes: Any):
        checks.jax_settings()
        settings = _settings(type(self))
        checks.spelling(type(self), settings, _settings(BaseSystem))
        for name in changes:
            if name not in settings:
                raise NestbedError(
                    f"{type(self).__name__} has no setting {name!r}; {did_you_mean(name, sorted(settings))}."
                )
        settings = {name: _frozen(value) for name, value in {**settings, **changes}.items()}
        if isinstance(settings.get("diffusion"), np.ndarray | jax.Array):
            settings["diffusion"] = _frozen(np.asarray(settings["diffusion"]).tolist())
        if settings["sensors"] and settings.get("diffusion") == ():  # what is seen has the noise of sensors
            settings["diffusion"] = (0.0,) * len(settings["state"])
        vars(self).update(settings)
        vars(self).update(name=type(self).__name__, parameters=Prior(self.prior))
        checks.declarations(self)
        vars(self).update(
            State=namedtuple("State", self.state),
            Observation=namedtuple("Observation", self.observation_names),
            Design=namedtuple("Design", self.designs.names),
            Theta=namedtuple("Theta", self.parameters.names),
            _settings=settings,
        )
        checks.functions(self)
        if self.sensors:
            sensors.check_density(self)
        checks.unused(self, _settings(BaseSystem))

    def __init_subclass__(cls) -> None:
        if "__init__" in vars(cls) and cls.__module__ != __name__:
            raise NestbedError(
                f"{cls.__name__} defines __init__, but a system takes its constants as class attributes, such as "
                f"gravity = 9.81, which {cls.__name__}(gravity=1.62) then changes; remove __init__."
            )

    name: str
    parameters: Prior
    State: Callable[..., Any]
    Observation: Callable[..., Any]
    Design: Callable[..., Any]
    Theta: Callable[..., Any]
    _settings: dict[str, Any]

    def __setattr__(self, name: str, value: Any) -> None:
        raise NestbedError(
            f"a system does not change once made, so {name!r} cannot be set; make a variant with "
            f"{type(self).__name__}({name}=...)."
        )

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return False
        mine, theirs = self._settings, other._settings
        return all(_same(mine[name], theirs[name]) for name in mine)

    def __hash__(self) -> int:
        return hash((type(self), tuple(self.state), self.designs))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), {name: _thawed(value) for name, value in self._settings.items()})

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names of the states, in order."""
        return tuple(self.state)

    @property
    def observation_names(self) -> tuple[str, ...]:
        """Names of what is seen after each experiment, in order: the sensors, or all states."""
        return sensors.names(self)

    @property
    def hidden(self) -> bool:
        """Whether what is seen is not the whole state: there are sensors, or designs on their way."""
        return bool(self.sensors) or bool(self.delay)

    @property
    def design_names(self) -> tuple[str, ...]:
        """Names of the designs, in order."""
        return self.designs.names

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the unknown parameters, in order."""
        return self.parameters.names

    @property
    def horizon(self) -> int:
        """How many experiments a trajectory has by default."""
        return self.defaults.horizon

    @property
    def constant_noise(self) -> bool:
        """Whether the noise is the same for every state, design and parameter."""
        return not callable(self.diffusion) and not self.carries_noise

    @property
    def one_euler_step(self) -> bool:
        """Whether a step is the plain one: the drift at its start, and the noise as it comes in."""
        if self.integrator is not None or self.substeps > 1:
            return self.integrator == "euler" and self.substeps == 1
        return integration.scheme(self) == ("euler", 1, 0)

    @property
    def carries_noise(self) -> bool:
        """Whether noise moves with the drift within a step, so that states share it."""
        return integration.scheme(self).integrator != "euler"

    @property
    def rest_design(self) -> tuple[float, ...]:
        """The design before the first one: 0, or the limit nearest to it."""
        return tuple(float(value) for value in self.designs.clip(np.zeros(len(self.designs.names))))

    def replace(self, **changes: Any) -> Self:
        """Return a variant of this system with some settings changed."""
        return type(self)(**{**self._settings, **changes})

    def after(self, posterior: Any) -> Self:
        """Return the same system, its prior what one record has told: yesterday's posterior is today's prior.

        That is the Gaussian, in unconstrained coordinates, with the mean and the covariance of what `nb.posterior`
        returned, correlations included. A posterior that is no Gaussian there keeps these moments and loses its shape;
        where it has several modes, learn from all records at once instead. The start stays that of the system.
        """
        mean, covariance = checks.learned(self, posterior)
        names, transforms = self.parameters.names, self.parameters.transforms
        return self.replace(prior={names: factors.normal(transforms, mean, covariance)})

    @abstractmethod
    def equations(self, x: Components, u: Components, theta: Components) -> Components:
        """Return the user's drift of each state, component by component, as it is written."""

    def rates(self, x: Components, u: Components, theta: Components) -> Components:
        """Return the drift of each state, component by component, with slopes at the edge of roots too."""
        equations = edges.sloped(self.equations) if _has_roots(self) else self.equations
        return equations(x, u, theta)

    def mean(self, x: Components, u: Components, theta: Components) -> Components:
        """Return the mean of the next state, component by component."""
        changes = integration.change(self, x, u, theta)
        return tuple(now + change for now, change in zip(x, changes, strict=True))

    def sensed(self, x: Components, theta: Components) -> Components:
        """Return what the user's `observe` says that sensors without noise show, as a tuple."""
        shown = self.observe(self.State(*x), self.Theta(*theta))  # type: ignore[attr-defined]
        return tuple(shown) if isinstance(shown, tuple | list) else (shown,)

    def variance(self, x: Components, u: Components, theta: Components) -> tuple[Any, ...]:
        """Return the variance that one Euler step brings, component by component (floats where it is constant)."""
        return tuple(
            self.step * (sum(part**2 for part in scale) if isinstance(scale, tuple | list) else scale**2)
            + self.noise_floor
            for scale in self._diffusion(x, u, theta)
        )

    def shared_variance(self, x: Components, u: Components, theta: Components) -> tuple[tuple[Any, ...], ...]:
        """Return the covariances of one Euler step, rows left of the diagonal; none where states are independent."""
        rows = self._diffusion(x, u, theta)
        if not isinstance(rows[0], tuple | list):
            return ()
        return tuple(
            tuple(self.step * sum(a * b for a, b in zip(row, other, strict=True)) for other in rows[:i])
            for i, row in enumerate(rows)
        )

    def _diffusion(self, x: Components, u: Components, theta: Components) -> Any:
        diffusion = self.diffusion
        if callable(diffusion):
            diffusion = diffusion(self.State(*x), self.Design(*u), self.Theta(*theta))
            diffusion = diffusion if isinstance(diffusion, tuple | list) else (diffusion,)
        return diffusion

    def sample_start(self, key: jax.Array, count: int) -> jax.Array:
        """Draw start states, (count, state_dim)."""
        keys = jax.random.split(key, len(self.state))
        columns = [
            value.sample(k, (count,)) if isinstance(value, dist.Distribution) else jnp.full(count, float(value))
            for k, value in zip(keys, self.start_values(), strict=True)
        ]
        return jnp.stack(columns, axis=-1)

    def start_values(self) -> tuple[Any, ...]:
        """Return the start of each state: a number or a distribution."""
        if isinstance(self.start, Mapping):
            return tuple(self.start.get(name, 0.0) for name in self.state)
        return tuple(self.start) if isinstance(self.start, tuple | list) else (self.start,) * len(self.state)

    def __repr__(self) -> str:
        return (
            f"{self.name}(state={self.state}, designs={self.designs}, parameters={self.parameter_names}, "
            f"step={self.step}, horizon={self.horizon})"
        )


class System(BaseSystem):
    """A system whose drift is written for scalars that broadcast: the fast form.

    ```python
    class Pendulum(nb.System):
        state = ("angle", "velocity")
        designs = nb.Box(torque=(-1.0, 1.0))
        prior = {"mass": dist.LogNormal(0.0, 0.1), "length": dist.LogNormal(0.0, 0.1)}
        step, diffusion = 0.05, (0.0, 0.1)

        def drift(self, x, u, theta):
            return x.velocity, (u.torque - 9.81 * theta.mass * jnp.sin(x.angle)) / theta.length
    ```
    Where not every state is seen as it is, `sensors = {"encoder": 0.001}` names what is, with the standard deviation of
    its noise, and a method `observe(x, theta)` returns one value for each, unless sensors have the names of states.
    Parameters that are known together share a multivariate distribution, `{("mass", "length"): dist.MultivariateNormal(
    ...)}`, and states that share noise a matrix `diffusion = ((0.1, 0.0), (0.05, 0.1))`, one column per source.
    A system that is linear in its parameters may add `features(x, u)`: for each state, one coefficient per
    parameter, so that drift(x, u, θ) = drift(x, u, 0) + features · θ. With Normal priors its belief is exact.
    """

    @abstractmethod
    def drift(self, x: Any, u: Any, theta: Any) -> Any:
        """Return the time derivative of each state; `x.angle` and the like are arrays that broadcast."""

    def equations(self, x: Components, u: Components, theta: Components) -> Components:
        """Return the user's drift as a tuple."""
        rates = self.drift(self.State(*x), self.Design(*u), self.Theta(*theta))
        return tuple(rates) if isinstance(rates, tuple | list) else (rates,)


class VectorSystem(BaseSystem):
    """A system whose drift is written for vectors, for those that need linear algebra.

    Each of the N × M particles then solves its own small problem at every step, ten or more times slower than the
    component form: use few particles, or write a 2 × 2 or 3 × 3 solve by hand (see `systems/double_link.py`).
    """

    @abstractmethod
    def drift(self, x: jax.Array, u: jax.Array, theta: jax.Array) -> jax.Array:
        """Return the time derivative, (state_dim,), of one state under one design and one parameter vector."""

    def equations(self, x: Components, u: Components, theta: Components) -> Components:
        """Apply the user's drift to every broadcast element."""
        shape = jnp.broadcast_shapes(*(jnp.shape(value) for value in (*x, *u, *theta)))

        def rows(components: Components) -> jax.Array:
            return jnp.stack([jnp.broadcast_to(value, shape).ravel() for value in components], axis=-1)

        rates = jax.vmap(self.drift)(rows(x), rows(u), rows(theta))
        return tuple(rates[:, i].reshape(shape) for i in range(rates.shape[-1]))

    def sensed(self, x: Components, theta: Components) -> Components:
        """Apply the user's `observe`, of one state and one parameter vector, to every broadcast element."""
        shape = jnp.broadcast_shapes(*(jnp.shape(value) for value in (*x, *theta)))
        rows = [jnp.stack([jnp.broadcast_to(v, shape).ravel() for v in part], axis=-1) for part in (x, theta)]
        shown = jax.vmap(lambda x, theta: jnp.atleast_1d(self.observe(x, theta)))(*rows)  # type: ignore[attr-defined]
        return tuple(shown[:, i].reshape(shape) for i in range(shown.shape[-1]))


@programs.cached(maxsize=64)
def _has_roots(system: BaseSystem) -> bool:
    """Return whether the drift takes roots, which have no slope at 0."""
    number = jax.ShapeDtypeStruct((), float)
    names = system.state, system.design_names, system.parameter_names
    return edges.has_roots(system.equations, *(tuple(number for _ in each) for each in names))


def _settings(kind: type) -> dict[str, Any]:
    """Return every public class attribute that is not a method: what a variant may change."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        for name, value in vars(base).items():
            if hasattr(value, "__get__"):
                found.pop(name, None)  # a diffusion written as a method hides the default
            elif not name.startswith("_") and not isinstance(value, type):
                found[name] = value
    return found


def _frozen(value: Any) -> Any:
    """Return a copy that cannot change behind a compiled program."""
    if isinstance(value, Mapping):
        return MappingProxyType({name: _frozen(item) for name, item in value.items()})
    if isinstance(value, tuple | list) and type(value) in (tuple, list):
        return tuple(_frozen(item) for item in value)
    if isinstance(value, np.ndarray):
        value = value.copy()
        value.flags.writeable = False
    return value


def _thawed(value: Any) -> Any:
    """Return a frozen setting in a form that can be pickled."""
    return {name: _thawed(item) for name, item in value.items()} if isinstance(value, Mapping) else value


def _rebuilt(kind: type[BaseSystem], settings: dict[str, Any]) -> BaseSystem:
    """Return a system that was pickled."""
    return kind(**settings)


def _same(a: Any, b: Any) -> bool:
    """Return whether two frozen settings are surely alike."""
    if a is b:
        return True
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return list(a) == list(b) and all(_same(a[name], b[name]) for name in a)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, dist.Distribution):
        return _same_distribution(a, b)
    return isinstance(a, int | float | str | Box | Defaults) and bool(a == b)


def _same_distribution(a: Any, b: Any) -> bool:
    """Return whether two distributions of one type have the same parts, down to their numbers."""
    mine, theirs = jax.tree.leaves(a), jax.tree.leaves(b)
    forms: list[Any] = [jax.tree.structure(a), jax.tree.structure(b)]
    return forms[0] == forms[1] and all(
        np.shape(x) == np.shape(y) and np.array_equal(x, y) for x, y in zip(mine, theirs, strict=True)
    )
