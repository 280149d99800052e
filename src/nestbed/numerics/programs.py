"""Compiled programs: dropped when the code or the constants they were made from have changed, or when they are many.

jax keeps a program for each function and its static arguments, and never looks again at the globals, closures and
class attributes that were read when it was traced. Here they are read again, by value, before programs are used.
"""

import dataclasses
import dis
import functools
import gc
import hashlib
import sys
import sysconfig
import types
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np

MOST_MAPS = 0.6
"""Share of the memory regions that a process may map: beyond it all programs are dropped, each maps hundreds."""
MOST_PROGRAMS = 256
"""The same where the system does not tell: programs compiled since they were last dropped."""
OFTEN = 8
"""Changes of one class after which it is told that they cost time."""
MOST_VALUES = 20_000
"""Objects that are looked into for one class; further ones count by their identity."""
LOOK = 8
"""How many programs are compiled between two looks at the memory they map."""

P = ParamSpec("P")
T = TypeVar("T")
_MAPS, _LIMIT = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
_caches: list[Callable[[], None]] = []
_compiled = {"since drop": 0, "since look": 0}
_digests: WeakKeyDictionary[type, str] = WeakKeyDictionary()
_changes: WeakKeyDictionary[type, int] = WeakKeyDictionary()


def cached(maxsize: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator like `functools.lru_cache` whose memory is dropped together with compiled programs."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        remembered = functools.lru_cache(maxsize)(function)
        _caches.append(remembered.cache_clear)
        return cast(Callable[P, T], remembered)

    return decorate


def drop() -> None:
    """Forget every compiled program, and all that was remembered of them."""
    _compiled.update({"since drop": 0, "since look": 0})
    for clear in _caches:
        clear()
    jax.clear_caches()
    gc.collect()


def current(kind: type, settings: Any = None, seen: dict[str, Any] | None = None) -> None:
    """Drop all programs if the code of a user's class, or a value that it uses, has changed since it was last seen.

    `settings` are an instance's own, and `seen` is where it remembers how they were.
    """
    digest = Reader().read(kind)
    changed = _digests.setdefault(kind, digest) != digest
    _digests[kind] = digest
    if seen is not None:
        own = Reader().read(settings)
        changed |= seen.setdefault("_settings_seen", own) != own
        seen["_settings_seen"] = own
    if changed:
        _warn_of_change(kind)
        drop()
    _keep_few()


def _warn_of_change(kind: type) -> None:
    """Say so when programs of one class are dropped again and again."""
    _changes[kind] = _changes.get(kind, 0) + 1
    if _changes[kind] == OFTEN:
        warnings.warn(
            f"the code of {kind.__name__}, or a value that it reads, has changed {OFTEN} times, and everything was "
            "compiled anew each time; keep what changes from call to call out of its methods.",
            stacklevel=4,
        )


def _count(event: str, *_: object, **__: object) -> None:
    if event == "/jax/core/compile/backend_compile_duration":
        for name in _compiled:
            _compiled[name] += 1


jax.monitoring.register_event_duration_secs_listener(_count)


def _keep_few() -> None:
    """Drop all programs when they map so much memory that the process would die of more."""
    if _compiled["since look"] < LOOK:
        return
    _compiled["since look"] = 0
    try:
        with _MAPS.open("rb") as lines:
            full = sum(1 for _ in lines) > MOST_MAPS * int(_LIMIT.read_text())
    except (OSError, ValueError):
        full = _compiled["since drop"] > MOST_PROGRAMS
    if full:
        drop()


@functools.cache
def _foreign(module: str) -> bool:
    """Return whether a module belongs to Python, to a library or to nestbed: its code is taken as it is."""
    if module.partition(".")[0] in ("nestbed", "builtins"):
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    return module in sys.builtin_module_names if file is None else _library(file)


@functools.cache
def _library(file: str) -> bool:
    """Return whether a file is part of Python, of a library or of nestbed."""
    libraries = {sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return any(Path(file).is_relative_to(library) for library in (*libraries, str(Path(__file__).parents[1])))


_PLAIN = (bool, int, float, complex, str, bytes)
_UNREAD = frozenset(
    f"__{name}__"
    for name in (
        "dict",
        "weakref",
        "doc",
        "module",
        "annotations",
        "qualname",
        "abstractmethods",
        "firstlineno",
        "slots",
    )
)
"""What a class has of itself, whatever its code."""


class Reader:
    """Reads code and the values that it uses into one digest; what cannot be looked into counts by its identity."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self.seen: dict[int, tuple[int, Any]] = {}  # by id; the objects are held so that no id is used twice

    def read(self, value: Any) -> str:
        """Return a digest that is equal for equal code and values."""
        self._add(value)
        return self.hash.hexdigest()

    def _add(self, value: Any) -> None:
        if value is None or type(value) in _PLAIN:
            self._say(f"{type(value).__name__} {hex(value) if type(value) is int else repr(value)}")
        elif id(value) in self.seen:
            self._say(f"again {self.seen[id(value)][0]}")
        else:
            self.seen[id(value)] = len(self.seen), value
            try:
                self._look(value)
            except Exception:  # whatever a strange object does when it is looked at
                self._say(f"object {id(value)}")

    def _look(self, value: Any) -> None:
        """Add what a value is made of."""
        if len(self.seen) > MOST_VALUES:
            self._say(f"object {id(value)}")
        elif isinstance(value, np.ndarray | np.generic | jax.Array) and not isinstance(value, jax.core.Tracer):
            self._array(value)
        elif isinstance(value, types.CodeType):
            self._all("code", value.co_code, *value.co_names, *value.co_varnames, *value.co_consts)
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, types.ModuleType):
            self._say(f"module {value.__name__}")
        elif isinstance(value, Mapping):
            self._all("mapping", *(part for item in value.items() for part in item))
        elif isinstance(value, tuple | list | deque):
            self._sequence(value)
        elif isinstance(value, set | frozenset):
            self._all("set", *sorted(value, key=repr))
        else:
            parts = _parts(value)
            name = f"{type(value).__module__}.{type(value).__qualname__}"
            self._say(f"object {id(value)}") if parts is None else self._all(name, *parts)

    def _sequence(self, values: Any) -> None:
        if all(type(value) in _PLAIN for value in values):
            self._say(f"{type(values).__name__} {values!r}")
        else:
            self._all(type(values).__name__, *values)

    def _array(self, value: Any) -> None:
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            value = jax.random.key_data(value)
        array = np.asarray(value)
        self._say(f"array {array.dtype} {array.shape}")
        self.hash.update(repr(array.tolist()).encode() if array.dtype == object else array.tobytes())

    def _function(self, function: types.FunctionType) -> None:
        self._say(f"function {function.__module__}.{function.__qualname__}")
        self._all("", function.__defaults__, function.__kwdefaults__)
        cells = [cell.cell_contents if _filled(cell) else None for cell in function.__closure__ or ()]
        self._all("closure", *cells)
        if _library(function.__code__.co_filename):
            return
        self._all("code", function.__code__, vars(function))
        names = _names(function.__code__)
        for name in sorted(_globals(function.__code__) & function.__globals__.keys()):
            self._all(name, function.__globals__[name])
        modules = [*cells, *(function.__globals__.get(name, sys.modules.get(name)) for name in sorted(names))]
        for module in modules:
            self._module(module, names, frozenset())

    def _module(self, module: Any, names: set[str], within: frozenset[str]) -> None:
        """Add what code with these names may read in a module of the user's own, and in modules within it."""
        if not isinstance(module, types.ModuleType) or _foreign(module.__name__) or module.__name__ in within:
            return
        for name in sorted(names & vars(module).keys()):
            self._all(name, vars(module)[name])
            self._module(vars(module)[name], names, within | {module.__name__})

    def _class(self, kind: type) -> None:
        self._say(f"class {kind.__module__}.{kind.__qualname__}")
        if _foreign(kind.__module__):
            return
        self._all("bases", *kind.__bases__)
        for name, value in vars(kind).items():
            if name not in _UNREAD and not name.startswith("_abc_"):
                self._all(name, value)

    def _all(self, kind: str, *values: Any) -> None:
        self._say(f"{kind} of {len(values)}")
        for value in values:
            self._add(value)

    def _say(self, text: str) -> None:
        self.hash.update(text.encode("utf-8", "surrogatepass") + b"\0")


def names_read(kind: type) -> set[str]:
    """Return every name that the functions of a class look up, or write as text for `getattr`."""
    functions = [getattr(value, "fget", None) or getattr(value, "__func__", value) for value in vars(kind).values()]
    codes = [function.__code__ for function in functions if isinstance(function, types.FunctionType)]
    called = [
        function.__globals__[name].__code__
        for function in functions
        if isinstance(function, types.FunctionType)
        for name in _names(function.__code__)
        if isinstance(function.__globals__.get(name), types.FunctionType)
    ]
    return set().union(*(_names(code) for code in (*codes, *called)))


def _texts(code: types.CodeType) -> set[str]:
    return {const for const in code.co_consts if isinstance(const, str)}


def _names(code: types.CodeType) -> set[str]:
    """Return every name that code looks up, or writes as text for `getattr`, in the functions within it too."""
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return {*code.co_names, *_texts(code)}.union(*(_names(part) for part in inner))


def _globals(code: types.CodeType) -> set[str]:
    """Return every name that code may look up among globals: attributes of the same name are others."""
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    loaded = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return {*loaded, *_texts(code)}.union(*(_globals(part) for part in inner))


def _filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _parts(value: Any) -> tuple[Any, ...] | None:
    """Return what an object is made of, None for one that cannot be looked into."""
    if isinstance(value, staticmethod | classmethod | types.MethodType):
        return value.__func__, getattr(value, "__self__", None)
    if isinstance(value, property):
        return value.fget, value.fset
    if isinstance(value, functools.cached_property):
        return (value.func,)
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    module = type(value).__module__
    if _foreign(module) and hasattr(value, "__wrapped__"):  # such as a function under jax.jit
        return (value.__wrapped__,) if module.startswith("jax") else (value.__wrapped__, attributes(value))
    if not jax.tree_util.all_leaves([value]):  # distributions, modules of equinox
        leaves, structure = jax.tree.flatten(value)
        return str(structure), *leaves
    looked = dataclasses.is_dataclass(value) or hasattr(value, "__dict__") or not _foreign(module)
    return (type(value), *attributes(value).items()) if looked else None


def attributes(value: Any) -> dict[str, Any]:
    """Return the attributes of an object, those in slots too."""
    slots = [name for kind in type(value).__mro__ for name in _slots(kind)]
    found = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return {**found, **getattr(value, "__dict__", {})}


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(_mangled(name, kind) for name in names if name not in ("__dict__", "__weakref__"))


def _mangled(name: str, kind: type) -> str:
    private = name.startswith("__") and not name.endswith("__")
    return f"_{kind.__name__.lstrip('_')}{name}" if private else name
