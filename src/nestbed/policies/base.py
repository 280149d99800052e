"""What a policy is, and how any object with `init` and `step` becomes one that compiles."""

import contextlib
import copy
import dis
import functools
import re
import types
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nestbed.model import checks
from nestbed.model.system import BaseSystem
from nestbed.numerics import programs
from nestbed.numerics.errors import NestbedError

Carry = Any
"""A policy's memory of one trajectory: any pytree of arrays, or None."""


@runtime_checkable
class Policy(Protocol):
    """History to design, for one record at a time. The carry must follow from what was seen, never from the key."""

    @abstractmethod
    def init(self) -> Carry:
        """Return the carry before the first experiment."""

    @abstractmethod
    def step(
        self, key: jax.Array, carry: Carry, y: Float[Array, " dy"], u_previous: Float[Array, " du"]
    ) -> tuple[Carry, Float[Array, " du"]]:
        """Return the next carry and the design to apply after the observation y."""


class Hashable(eqx.Module):
    """A policy that counts as itself and nothing else, so that `jax.jit(policy.step)` works as for any function."""

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


class bound:  # noqa: N801  # used as a decorator
    """A method of a policy that binds as in plain Python: equinox's own bound methods cannot be hashed."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        functools.update_wrapper(self, function)  # type: ignore[arg-type]

    def __get__(self, policy: Any, kind: type | None = None) -> Any:
        return self if policy is None else types.MethodType(self.function, policy)


class _Opaque:
    """A value of a policy that is no number, alike for all that have the same code and values."""

    def __init__(self, value: Any):
        self.value = value
        self.digest = programs.Reader().read(value)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Opaque) and self.digest == other.digest


class _Plain(eqx.Module):
    """A policy that is no pytree: its attributes travel as data, so that instances share a program."""

    attributes: dict[str, Any]
    blank: _Opaque = eqx.field(static=True)  # the class, or an object of one that cannot be made empty

    def _object(self) -> Any:
        kind = self.blank.value
        clone: Any = object.__new__(kind) if isinstance(kind, type) else copy.copy(kind)
        for name, value in self.attributes.items():
            clear = jax.tree.map(lambda leaf: leaf.value if isinstance(leaf, _Opaque) else leaf, value)
            object.__setattr__(clone, name, clear)
        return clone

    def init(self) -> Carry:
        return self._object().init()

    def step(self, key: jax.Array, carry: Carry, y: jax.Array, u_previous: jax.Array) -> tuple[Carry, jax.Array]:
        return self._object().step(key, carry, y, u_previous)


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
            "step(key, carry, y, u_previous) -> (carry, u)."
        )
    longest = getattr(policy, "longest", None)
    if horizon is not None and isinstance(longest, int) and horizon > longest:
        raise NestbedError(
            f"the policy {type(policy).__name__} was made for at most {longest} experiments, but {horizon} are asked "
            f"for; make it with horizon={horizon}."
        )
    trained = getattr(policy, "trained_for", None)
    if horizon is not None and isinstance(trained, int) and horizon > trained:
        warnings.warn(
            f"the policy {type(policy).__name__} was trained for {trained} experiments, but {horizon} are asked for: "
            "what it does after those it never learned; train it with that horizon.",
            stacklevel=3,
        )
    _check_origin(policy, system)
    programs.current(type(policy))
    ready = _plain(policy) if jax.tree_util.all_leaves([policy]) else policy
    name = type(policy).__name__
    numbers = jax.tree.map(lambda leaf: jnp.asarray(leaf) if type(leaf) is float else leaf, ready)
    with contextlib.suppress(Exception):  # a number decides the policy's form, or it is wrong whatever they are
        if not _tells_numbers(type(policy)):
            _trace(numbers, system, name)
            return numbers
    _trace(ready, system, name)
    return ready


def _check_origin(policy: Any, system: BaseSystem) -> None:
    """Refuse a policy made for other states, designs or beliefs; warn of one that has learned another system."""
    name = type(policy).__name__
    believed = getattr(getattr(policy, "belief", None), "system", system)
    if isinstance(believed, BaseSystem) and believed != system:
        raise NestbedError(
            f"the policy {name} has a belief about {believed.name}, but the system is {system.name}; make it for the "
            "system it is used on."
        )
    made_for = getattr(policy, "system", system)
    if not isinstance(made_for, BaseSystem):
        return
    for what, theirs, ours in (
        ("observations", made_for.observation_names, system.observation_names),
        ("designs", made_for.designs, system.designs),
    ):
        if theirs != ours:
            raise NestbedError(
                f"the policy {name} was made for {made_for.name}, with the {what} {theirs}, but {system.name} has "
                f"{ours}; make it for the system it is used on."
            )
    if hasattr(policy, "trained_for") and made_for.name != system.name:
        warnings.warn(
            f"the policy {name} was made for {made_for.name}, but is used on {system.name}; train it on the system it "
            "is used on, unless that is what you want to try.",
            stacklevel=4,
        )


def _trace(policy: Any, system: BaseSystem, name: str) -> None:
    leaves, structure = jax.tree.flatten(policy)
    shapes = tuple(_abstract(leaf) for leaf in leaves)
    try:
        _check(structure, shapes, system, name)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        _check.__wrapped__(structure, shapes, system, name)  # type: ignore[attr-defined]


def _plain(policy: Any) -> _Plain:
    kind: Any = type(policy)
    plain = kind.__new__ is object.__new__  # and not a class that inherits from a built-in one, such as dict
    blank = _Opaque(kind if plain else policy)
    held = programs.attributes(policy)
    return _Plain({name: _travelling(value) for name, value in held.items()}, blank)


def _travelling(value: Any) -> Any:
    """Return an attribute with what is a number as data and all else as it is, told apart by type and value."""
    try:
        leaves, structure = jax.tree.flatten(value)
    except Exception:  # a dictionary whose keys have no order
        return _Opaque(value)
    number = (float, jax.Array, np.ndarray, np.generic)
    kept = [leaf if isinstance(leaf, number) and _numeric(leaf) else _Opaque(leaf) for leaf in leaves]
    return jax.tree.unflatten(structure, kept)


def _numeric(leaf: Any) -> bool:
    return type(leaf) is float or (
        hasattr(leaf, "dtype") and (isinstance(leaf, jax.Array) or leaf.dtype.kind in "biufc")
    )


TELLING = frozenset({"isinstance", "type", "isscalar", "str", "repr", "format", "hash", "hasattr", "issubclass"})
"""Names by whose use code may tell a number from one that is only known when it runs."""


def _tells_numbers(kind: type) -> bool:
    """Return whether the code of a class may treat a float otherwise than as a number."""
    own = [base for base in kind.__mro__ if not base.__module__.startswith(("nestbed.", "equinox."))]
    codes = [value.__code__ for base in own for value in vars(base).values() if isinstance(value, types.FunctionType)]
    written = any(step.opname.startswith("FORMAT_") for code in codes for step in dis.get_instructions(code))
    return written or any(programs.names_read(base) & TELLING for base in own)


@programs.cached(maxsize=256)
def _check(structure: Any, leaves: tuple[Any, ...], system: BaseSystem, name: str) -> None:
    """Trace one step and compare its shapes with what the system and the carry ask for."""
    designs = len(system.design_names)

    def once(policy: Any, key: jax.Array, y: jax.Array, u: jax.Array) -> Any:
        carry = policy.init()
        return carry, policy.step(key, carry, y, u)

    policy = jax.tree.unflatten(structure, leaves)
    arguments = jax.random.key(0), jnp.zeros(len(system.observation_names)), jnp.zeros(designs)
    with _vectors(name, system), checks.traceable(f"{name}.step"):
        carry, outcome = eqx.filter_eval_shape(once, policy, *arguments)
    if not isinstance(outcome, tuple) or len(outcome) != 2:
        raise NestbedError(f"{name}.step returned one value, but it must return two: (carry, u).")
    carry_next, u = outcome
    if getattr(u, "shape", None) != (designs,):
        got = f"of shape {u.shape}" if hasattr(u, "shape") else f"that is a {type(u).__name__}"
        raise NestbedError(
            f"{name}.step returned a design {got}, but {system.name} has "
            f"{designs} design(s) {system.design_names}; return an array of shape ({designs},)."
        )
    before, after = (_signature(tree) for tree in (carry, carry_next))
    if before != after:
        raise NestbedError(
            f"{name}.step changed its carry from {before} to {after}; it must return a carry of the same structure, "
            "shapes and types as init()."
        )


def looks_at_nothing(policy: Any) -> bool:
    """Return whether a policy is known to choose its designs whatever is seen; a user's own may always look."""
    return type(policy).__module__.startswith("nestbed.") and bool(getattr(policy, "open_loop", False))


@contextlib.contextmanager
def _vectors(name: str, system: BaseSystem) -> Iterator[None]:
    """Explain that a policy's y and u_previous are vectors, to one that asks for their components by name."""
    try:
        yield
    except (AttributeError, TypeError) as error:
        found = re.search(r"Tracer has no attribute '?(\w+)|string indexing; got idx='(\w+)'", str(error))
        if found is None:
            raise
        raise NestbedError(
            f"{name}.step asks a vector for {found[1] or found[2]!r}: y holds the observations in the order "
            f"{system.observation_names}, u_previous the designs in the order {system.design_names}; take them by "
            f"number, as in y[0] for {system.observation_names[0]!r}."
        ) from None


def _abstract(leaf: Any) -> Any:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if isinstance(leaf, jax.Array | np.ndarray) else leaf


def _signature(tree: Any) -> str:
    return str(jax.tree.map(lambda leaf: f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}", tree))
