"""What a training run can be told: as a dataclass, as TOML, or as `key=value`."""

import dataclasses
import json
import tomllib
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from nestbed.errors import NestbedError, at_least_one, at_least_zero, did_you_mean
from nestbed.system import BaseSystem


def _option(default: Any, told: str) -> Any:
    return dataclasses.field(default=default, metadata={"told": told})


@dataclasses.dataclass(frozen=True)
class PolicyConfig:
    """Sizes of the recurrent policy; the defaults are the paper's."""

    cell: str = _option("gru", 'recurrent cell: "gru" or "lstm"')
    encoder: tuple[int, ...] = _option((256, 256, 64), "dense layers before the recurrent ones")
    recurrent: tuple[int, ...] = _option((64, 64), "recurrent layers")
    head: tuple[int, ...] = _option((256, 256), "dense layers after them")
    log_std: float = _option(0.0, "log σ of the designs before they are squashed, at the start")
    sees_previous: bool = _option(False, "whether the policy also sees the design before")

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, list):
                object.__setattr__(self, name, tuple(value))

    def check(self) -> None:
        """Raise unless every value is possible."""
        _types(self)
        if self.cell not in CELLS:
            raise NestbedError(f"cell is {self.cell!r}; {did_you_mean(self.cell, CELLS)}.")
        for part in ("encoder", "recurrent", "head"):
            for size in getattr(self, part):
                at_least_one(**{f"a layer of the policy's {part}": size})
        if not abs(self.log_std) <= 10.0:
            raise NestbedError(f"log_std is {self.log_std!r}, but it must be a number from -10 to 10.")


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Score climbing. What is left None comes from `system.defaults`; for the paper's systems, its own settings."""

    iterations: int = _option(None, "rounds of sweep, gradient steps and evaluation")
    horizon: int = _option(None, "T: experiments per trajectory")
    trajectories: int = _option(None, "N: trajectories per sweep")
    particles: int = _option(None, "M: parameter particles per trajectory")
    moves: int = _option(None, "Metropolis steps per rejuvenation of particles")
    belief: str = _option("ibis", 'parameter posterior: "ibis" (particles) or "exact" (conditionally linear systems)')
    gain: str = _option("general", 'form of the gain: "general", "constant_noise" or "closed_form" (exact belief)')
    eta: float = _option(None, "η: trajectories are weighted by exp(η · (gain − penalties))")
    slew_penalty: float = _option(None, "on squared changes of the designs")
    action_penalty: float = _option(0.0, "on squared designs")
    conditional: bool = _option(True, "Markovian score climbing; false: plain, from unconditional sweeps")
    sweeps: int = _option(1, "sweeps per iteration; the last one is learned from")
    optimiser: str = _option("adam", '"adam", "adamw", "rmsprop" or "sgd"')
    learning_rate: float = _option(None, "step size of the optimiser")
    schedule: str = _option("constant", 'of the learning rate: "constant", or down to 0 by "cosine" or "linear"')
    clip: float = _option(0.0, "gradients longer than this are shortened to it; 0: never")
    batch: int = _option(64, "trajectories per gradient step; an iteration is one pass over N")
    policy: PolicyConfig = dataclasses.field(default_factory=PolicyConfig)

    def resolve(self, system: BaseSystem) -> Self:
        """Return this configuration with every value filled in and checked."""
        values = {name: value for name, value in vars(system.defaults).items() if vars(self)[name] is None}
        full = dataclasses.replace(self, **values)
        full.check()
        return full

    def check(self) -> None:
        """Raise unless every value is there and possible."""
        _types(self)
        self.policy.check()
        counts = ("iterations", "horizon", "trajectories", "particles", "moves", "sweeps", "batch")
        at_least_one(**{name: getattr(self, name) for name in counts})
        amounts = ("eta", "slew_penalty", "action_penalty", "clip", "learning_rate")
        at_least_zero(**{name: getattr(self, name) for name in amounts})
        for name, known in CHOICES.items():
            value = getattr(self, name)
            if value not in known:
                raise NestbedError(f"{name} is {value!r}; {did_you_mean(value, known)}.")
        if self.conditional and self.trajectories < 2:
            raise NestbedError(
                "conditional sweeps need at least 2 trajectories: one alone could only return its reference; raise "
                "trajectories or set conditional to false."
            )

    def updated(self, changes: Mapping[str, Any]) -> Self:
        """Return a copy with plain values changed, such as {"eta": 0.5, "policy": {"cell": "lstm"}}."""
        if not isinstance(changes, Mapping):
            raise NestbedError(f"the settings are {changes!r}, but they must be a dictionary of keys and values.")
        return _updated(self, changes, "")

    def plain(self) -> dict[str, Any]:
        """Return nested dictionaries of numbers, strings and lists."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    def toml(self) -> str:
        """Return the configuration as a TOML file with a comment on every line."""
        lines = _toml_lines(self)
        return "\n".join([*lines, "", "[policy]", *_toml_lines(self.policy), ""])


CELLS = ("gru", "lstm")
CHOICES = {
    "belief": ("ibis", "exact"),
    "gain": ("general", "constant_noise", "closed_form"),
    "optimiser": ("adam", "adamw", "rmsprop", "sgd"),
    "schedule": ("constant", "cosine", "linear"),
}


def read(file: Path) -> dict[str, Any]:
    """Return the settings of a TOML file."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise NestbedError(f"cannot read the configuration {file}: {reason}.") from None
    except tomllib.TOMLDecodeError as error:
        raise NestbedError(f"the configuration {file} is not TOML: {error}.") from None


def assignments(pairs: Iterable[str]) -> dict[str, Any]:
    """Return settings written as `key=value`, such as `eta=0.5`, `policy.cell=lstm` or `policy.head=[64, 64]`."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip():
            raise NestbedError(f"--set got {pair!r}; write key=value, as in eta=0.5.")
        place = settings
        *rooms, last = name.strip().split(".")
        for room in rooms:
            place = place.setdefault(room, {})
            if not isinstance(place, dict):
                raise NestbedError(f"--set got {pair!r}, but {room} was set to {place!r} before; give one of the two.")
        place[last] = _value(text.strip())
    return settings


def _value(text: str) -> Any:
    try:
        found = tomllib.loads(f"value = {text}")
        return found["value"] if len(found) == 1 else text
    except (tomllib.TOMLDecodeError, RecursionError):
        return {"True": True, "False": False}.get(text, text)


def _updated(config: Any, changes: Mapping[str, Any], prefix: str) -> Any:
    known = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    values = {}
    for name, value in changes.items():
        if name not in known:
            raise NestbedError(f"the configuration has no key {prefix + name!r}; {did_you_mean(name, known)}.")
        if dataclasses.is_dataclass(known[name]):
            if not isinstance(value, Mapping):
                raise NestbedError(f"{prefix + name} is {value!r}, but it is a table of keys, such as {name}.cell.")
            value = _updated(known[name], value, f"{prefix}{name}.")
        values[name] = tuple(value) if isinstance(value, list) else value
    return dataclasses.replace(config, **values)


def _types(config: Any) -> None:
    """Raise unless every value is of the kind that its field says."""
    hints = typing.get_type_hints(type(config))
    for f in dataclasses.fields(config):
        value, kind = getattr(config, f.name), hints[f.name]
        if not _fits(value, kind):
            raise NestbedError(f"{f.name} is {value!r}, but it must be {_KINDS[kind]}.")


_KINDS = {
    int: "a whole number",
    float: "a number",
    str: "a word",
    bool: "true or false",
    tuple[int, ...]: "a list of whole numbers",
    PolicyConfig: "an nb.PolicyConfig",
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
