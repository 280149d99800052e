"""What all configurations can do: fill themselves in, check themselves, take changes, and be written as TOML."""

import dataclasses
import json
import typing
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self, cast

from nestbed.errors import NestbedError, did_you_mean
from nestbed.system import BaseSystem

CHOICES = {
    "belief": ("ibis", "exact"),
    "gain": ("general", "constant_noise", "closed_form"),
    "optimiser": ("adam", "adamw", "rmsprop", "sgd"),
    "schedule": ("constant", "cosine", "linear"),
}


def option(default: Any, told: str) -> Any:
    """Return a field of a configuration with the comment that goes with it."""
    return dataclasses.field(default=default, metadata={"told": told})


class Config(ABC):
    """What the configurations of all methods have in common; each is a frozen dataclass of its own."""

    method: ClassVar[str]

    @abstractmethod
    def check(self) -> None:
        """Raise unless every value is there and possible."""

    @property
    @abstractmethod
    def headline(self) -> str:
        """The sizes of the training, in a line or two."""

    @property
    @abstractmethod
    def details(self) -> str:
        """The method and its settings, in a line."""

    @property
    @abstractmethod
    def budget(self) -> str:
        """What was spent beside what the paper spent; empty where the defaults are the paper's."""

    @property
    @abstractmethod
    def remedies(self) -> str:
        """What to change after a training that made its policy worse."""

    @property
    @abstractmethod
    def extendable(self) -> bool:
        """Whether a run may be given more iterations: nothing before the last may depend on their number."""

    def resolve(self, system: BaseSystem) -> Self:
        """Return this configuration with every value filled in and checked."""
        mine = vars(self)
        values = {name: value for name, value in vars(system.defaults).items() if mine.get(name, value) is None}
        full = dataclasses.replace(cast(Any, self), **values)
        full.check()
        return full

    def updated(self, changes: Mapping[str, Any]) -> Self:
        """Return a copy with plain values changed, such as {"eta": 0.5, "policy": {"cell": "lstm"}}."""
        if not isinstance(changes, Mapping):
            raise NestbedError(f"the settings are {changes!r}, but they must be a dictionary of keys and values.")
        given = changes.get("method", self.method)
        if given != self.method:
            raise NestbedError(
                f"the settings are for the method {given!r}, but the method is {self.method!r}; give the settings of "
                "that method, or the other method."
            )
        return _updated(self, {name: value for name, value in changes.items() if name != "method"}, "")

    def plain(self) -> dict[str, Any]:
        """Return nested dictionaries of numbers, strings and lists."""
        return json.loads(json.dumps(dataclasses.asdict(cast(Any, self))))

    def toml(self) -> str:
        """Return the configuration as a TOML file with a comment on every line."""
        tables = {name: value for name, value in vars(self).items() if dataclasses.is_dataclass(value)}
        lines = [f"method = {_toml(self.method)}", *_toml_lines(self)]
        for name, table in tables.items():
            lines += ["", f"[{name}]", *_toml_lines(table)]
        return "\n".join([*lines, ""])


def check_choices(config: Config) -> None:
    """Raise unless every word is one of those known."""
    for name, value in vars(config).items():
        if name in CHOICES and value not in CHOICES[name]:
            raise NestbedError(f"{name} is {value!r}; {did_you_mean(value, CHOICES[name])}.")


def check_types(config: Any) -> None:
    """Raise unless every value is of the kind that its field says."""
    hints = typing.get_type_hints(type(config))
    for f in dataclasses.fields(config):
        value, kind = getattr(config, f.name), hints[f.name]
        if not _fits(value, kind):
            raise NestbedError(f"{f.name} is {value!r}, but it must be {_KINDS.get(kind) or 'an nb.' + kind.__name__}.")


_KINDS = {
    int: "a whole number",
    float: "a number",
    str: "a word",
    bool: "true or false",
    tuple[int, ...]: "a list of whole numbers",
}


def _fits(value: Any, kind: Any) -> bool:
    if kind == tuple[int, ...]:
        return isinstance(value, tuple) and all(_fits(item, int) for item in value)
    if kind in (int, float):
        return isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
    return isinstance(value, kind)


def _toml_lines(config: Any) -> list[str]:
    pairs = [
        (f"{f.name} = {_toml(getattr(config, f.name))}", f.metadata["told"])
        for f in dataclasses.fields(config)
        if f.metadata
    ]
    width = max(len(pair) for pair, _ in pairs)
    return [f"{pair:{width}s}  # {told}" for pair, told in pairs]


def _toml(value: Any) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def _updated(config: Any, changes: Mapping[str, Any], prefix: str) -> Any:
    known = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    values = {}
    for name, value in changes.items():
        if name not in known:
            raise NestbedError(
                f"the configuration has no key {prefix + str(name)!r}; {did_you_mean(str(name), known)}."
            )
        if dataclasses.is_dataclass(known[name]):
            if not isinstance(value, Mapping):
                raise NestbedError(f"{prefix + name} is {value!r}, but it is a table of keys, such as {name}.cell.")
            value = _updated(known[name], value, f"{prefix}{name}.")
        values[name] = tuple(value) if isinstance(value, list) else value
    return dataclasses.replace(config, **values)
