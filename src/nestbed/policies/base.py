"""What a policy is, and how any object with `init` and `step` becomes one that compiles."""

import copy
from abc import abstractmethod
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestbed import checks
from nestbed.errors import NestbedError
from nestbed.system import BaseSystem

Carry = Any
"""A policy's memory of one trajectory: any pytree of arrays, or None."""


@runtime_checkable
class Policy(Protocol):
    """History to design, for one trajectory. The carry must follow from what was seen, never from the key."""

    @abstractmethod
    def init(self) -> Carry:
        """Return the carry before the first experiment."""

    @abstractmethod
    def step(
        self, key: jax.Array, carry: Carry, x: Float[Array, " dx"], u_previous: Float[Array, " du"]
    ) -> tuple[Carry, Float[Array, " du"]]:
        """Return the next carry and the design to apply in state x."""


class _Plain(eqx.Module):
    """A policy that is no pytree: its attributes travel as data, so that changing one is not missed."""

    attributes: dict[str, Any]
    original: Any = eqx.field(static=True)
    token: object = eqx.field(static=True)  # new for every use if an attribute cannot be looked into

    def _object(self) -> Any:
        clone = copy.copy(self.original)
        vars(clone).update(self.attributes)
        return clone

    def init(self) -> Carry:
        return self._object().init()

    def step(self, key: jax.Array, carry: Carry, x: jax.Array, u_previous: jax.Array) -> tuple[Carry, jax.Array]:
        return self._object().step(key, carry, x, u_previous)


def prepare(policy: Any, system: BaseSystem, horizon: int | None = None) -> Any:
    """Return the policy in a form that compiles, or say what is wrong with it.

    A policy that remembers a limited number of experiments says how many by its attribute `longest`.
    """
    if isinstance(policy, type):
        raise NestbedError(
            f"the policy is the class {policy.__name__}; give an instance of it, such as {policy.__name__}(system)."
        )
    if not isinstance(policy, Policy):
        raise NestbedError(
            f"the policy is a {type(policy).__name__}, but it needs the methods init() -> carry and "
            "step(key, carry, x, u_previous) -> (carry, u)."
        )
    longest = getattr(policy, "longest", None)
    if horizon is not None and isinstance(longest, int) and horizon > longest:
        raise NestbedError(
            f"the policy {type(policy).__name__} was made for at most {longest} experiments, but {horizon} are asked "
            f"for; make it with horizon={horizon}."
        )
    believed = getattr(getattr(policy, "belief", None), "system", system)
    if isinstance(believed, BaseSystem) and believed != system:
        raise NestbedError(
            f"the policy {type(policy).__name__} has a belief about {believed.name}, but the system is {system.name}; "
            "make it for the system it is used on."
        )
    leaf = jax.tree_util.all_leaves([policy])
    ready = _plain(policy) if leaf and hasattr(policy, "__dict__") else policy
    leaves, structure = jax.tree.flatten(ready)
    shapes = tuple(_abstract(leaf) for leaf in leaves)
    try:
        _check(structure, shapes, system, type(policy).__name__)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        _check.__wrapped__(structure, shapes, system, type(policy).__name__)
    return ready


def _plain(policy: Any) -> _Plain:
    inherited = {
        name: value
        for base in reversed(type(policy).__mro__[:-1])
        for name, value in vars(base).items()
        if not name.startswith("_") and not hasattr(value, "__get__")
    }
    attributes = {**inherited, **vars(policy)}
    plain = (bool, int, float, complex, str, bytes, jax.Array, np.ndarray, np.generic)
    clear = all(isinstance(leaf, plain) for leaf in jax.tree.leaves(attributes))
    return _Plain(attributes, policy, None if clear else object())


@lru_cache(maxsize=256)
def _check(structure: Any, leaves: tuple[Any, ...], system: BaseSystem, name: str) -> None:
    """Trace one step and compare its shapes with what the system and the carry ask for."""
    designs = len(system.design_names)

    def once(policy: Any, key: jax.Array, x: jax.Array, u: jax.Array) -> Any:
        carry = policy.init()
        return carry, policy.step(key, carry, x, u)

    policy = jax.tree.unflatten(structure, leaves)
    arguments = jax.random.key(0), jnp.zeros(len(system.state_names)), jnp.zeros(designs)
    with checks.traceable(f"{name}.step"):
        carry, outcome = eqx.filter_eval_shape(once, policy, *arguments)
    if not isinstance(outcome, tuple) or len(outcome) != 2:
        raise NestbedError(f"{name}.step returned one value, but it must return two: (carry, u).")
    following, u = outcome
    if getattr(u, "shape", None) != (designs,):
        got = f"of shape {u.shape}" if hasattr(u, "shape") else f"that is a {type(u).__name__}"
        raise NestbedError(
            f"{name}.step returned a design {got}, but {system.name} has "
            f"{designs} design(s) {system.design_names}; return an array of shape ({designs},)."
        )
    before, after = (_signature(tree) for tree in (carry, following))
    if before != after:
        raise NestbedError(
            f"{name}.step changed its carry from {before} to {after}; it must return a carry of the same structure, "
            "shapes and types as init()."
        )


def _abstract(leaf: Any) -> Any:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if isinstance(leaf, jax.Array | np.ndarray) else leaf


def _signature(tree: Any) -> str:
    return str(jax.tree.map(lambda leaf: f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}", tree))
