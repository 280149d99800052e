"""What a training can be told: the settings that all methods share, and what every configuration can do."""

import dataclasses
import json
import typing
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

import jax

from nestbed.belief.learning import GAINS
from nestbed.belief.registry import BELIEFS
from nestbed.model.system import BaseSystem
from nestbed.numerics.errors import NestbedError, at_least_one, at_least_zero, did_you_mean
from nestbed.policies.feedback import Feedback
from nestbed.policies.recurrent import CELLS, Recurrent

LAYERS = 100
"""More than this is taken for a slip."""


def option(default: Any, help: str, choices: Iterable[str] = ()) -> Any:
    """Return a field of a configuration with the comment that goes with it, and the words it may be."""
    return dataclasses.field(default=default, metadata={"help": help, "choices": choices})


class Settings:
    """A frozen dataclass of settings that can check itself, take changes and be written as plain data."""

    def check(self) -> None:
        """Raise unless every value is of the kind that its field says, and every word one of those known."""
        hints = typing.get_type_hints(type(self))
        for f in dataclasses.fields(self):  # type: ignore[arg-type]
            value, kind = getattr(self, f.name), hints[f.name]
            if not _fits(value, kind):
                wanted = _KINDS.get(kind) or f"an nb.{kind.__name__}"
                raise NestbedError(f"{f.name} is {value!r}, but it must be {wanted}.")
            choices = f.metadata.get("choices", ())
            if choices and value not in choices:
                raise NestbedError(f"{f.name} is {value!r}; {did_you_mean(value, choices)}.")

    def plain(self) -> dict[str, Any]:
        """Return nested dictionaries of numbers, strings and lists."""
        return json.loads(json.dumps(dataclasses.asdict(self)))  # type: ignore[call-overload]


@dataclasses.dataclass(frozen=True)
class PolicyConfig(Settings):
    """Sizes of the recurrent policy; the defaults are the paper's."""

    kind: ClassVar[str] = "recurrent"

    cell: str = option("gru", "recurrent cell: gru or lstm", CELLS)
    encoder: tuple[int, ...] = option((256, 256, 64), "dense layers before the recurrent ones")
    recurrent: tuple[int, ...] = option((64, 64), "recurrent layers")
    head: tuple[int, ...] = option((256, 256), "dense layers after them")
    log_std: float = option(0.0, "log σ of the designs before they are squashed, at the start")
    sees_previous: bool = option(False, "whether the policy also sees the design before")
    scaled: bool = option(True, "whether states are seen in units of their prior-predictive spread, unless by a view")

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, list):
                object.__setattr__(self, name, tuple(value))

    def check(self) -> None:
        """Raise unless every value is possible."""
        super().check()
        for part in ("encoder", "recurrent", "head"):
            sizes = getattr(self, part)
            if len(sizes) > LAYERS:
                raise NestbedError(f"the policy's {part} has {len(sizes)} layers, but it may have {LAYERS} at most.")
            for size in sizes:
                at_least_one(**{f"a layer of the policy's {part}": size})
        if not abs(self.log_std) <= 10.0:
            raise NestbedError(f"log_std is {self.log_std!r}, but it must be a number from -10 to 10.")

    def make(self, key: jax.Array, system: BaseSystem, horizon: int | None) -> Recurrent:
        """Return a policy with random weights, to be trained for so many experiments."""
        return Recurrent(key, system, **vars(self), trained_for=horizon)

    def __str__(self) -> str:
        return f"{self.cell} {'-'.join(str(size) for size in (*self.encoder, *self.recurrent, *self.head))}"


@dataclasses.dataclass(frozen=True)
class FeedbackConfig(Settings):
    """Sizes of the feedback on a plan."""

    kind: ClassVar[str] = "feedback"

    width: int = option(32, "of the recurrent layer and of the dense ones around it")

    def check(self) -> None:
        """Raise unless every value is possible."""
        super().check()
        at_least_one(width=self.width)

    def make(self, key: jax.Array, system: BaseSystem, horizon: int | None) -> Feedback:
        """Return a policy with random weights, on a plan that does nothing."""
        return Feedback(key, system, system.horizon if horizon is None else horizon, self.width)

    def __str__(self) -> str:
        return f"gru {self.width}"


POLICY_KINDS: dict[str, type[PolicyConfig] | type[FeedbackConfig]] = {
    kind.kind: kind for kind in (PolicyConfig, FeedbackConfig)
}
"""Kinds of policies that are trained, by name: what their sizes are told by."""


@dataclasses.dataclass(frozen=True)
class Config(Settings, ABC):
    """What the configurations of all methods have; what is left None comes from `system.defaults`."""

    method: ClassVar[str]  # its name in the registry
    compares: ClassVar[bool] = False  # whether it compares policies itself in the end, and hands out the winner

    iterations: int = option(None, "rounds of training and evaluation")
    horizon: int = option(None, "T: experiments per trajectory")
    learning_rate: float = option(None, "step size of the optimiser, at the start")
    clip: float = option(0.0, "gradients longer than this are shortened to it; 0: never")

    @property
    @abstractmethod
    def sizes(self) -> "PolicyConfig | FeedbackConfig":
        """The policy that is trained."""

    @property
    @abstractmethod
    def judged(self) -> int:
        """Records of the estimate after each iteration."""

    def check(self) -> None:
        """Raise unless every value is there and possible."""
        super().check()
        self.sizes.check()
        at_least_one(iterations=self.iterations, horizon=self.horizon)
        at_least_zero(clip=self.clip, learning_rate=self.learning_rate)

    @property
    @abstractmethod
    def headline(self) -> str:
        """The sizes of the training, in a line or two."""

    @property
    @abstractmethod
    def details(self) -> str:
        """The method and its settings, in a line."""

    @property
    def budget(self) -> str:
        """What was spent beside what others spent; empty where there is nothing to tell."""
        return ""

    @property
    def remedies(self) -> str:
        """What to change after a training that made its policy worse."""
        return f"a smaller learning_rate (now {self.learning_rate:g})"

    @property
    def extendable(self) -> bool:
        """Whether a run may be given more iterations: nothing before the last may depend on their number."""
        return True

    def resolve(self, system: BaseSystem) -> Self:
        """Return this configuration with every value filled in and checked."""
        mine = vars(self)
        values = {name: value for name, value in vars(system.defaults).items() if mine.get(name, value) is None}
        full = dataclasses.replace(self, **self.filled(values))
        full.check()
        return full

    def filled(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return what is taken from a system's defaults, as this method needs it."""
        return values

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


@dataclasses.dataclass(frozen=True)
class SweepConfig(Config, ABC):
    """What methods have that learn, or are judged, by sweeps of the nested filter."""

    trajectories: int = option(None, "N: trajectories per sweep, and of the evaluation after each iteration")
    particles: int = option(None, "M: parameter particles per trajectory")
    moves: int = option(None, "Metropolis steps per rejuvenation of particles")
    belief: str = option("guided", "parameter posterior: {choices.help}", BELIEFS)
    gain: str = option("general", "form of the gain: general, constant_noise or closed_form (exact belief)", GAINS)
    policy: PolicyConfig = dataclasses.field(default_factory=PolicyConfig)

    @property
    def sizes(self) -> PolicyConfig:
        """The recurrent policy."""
        return self.policy

    @property
    def judged(self) -> int:
        """As many as there are trajectories."""
        return self.trajectories

    @property
    def certifies(self) -> bool:
        """Whether policies are judged by certificates, not by sweeps with the belief."""
        return bool(BELIEFS.find(self.belief).load().refreshes)

    @property
    def inner(self) -> str:
        """The size of the belief."""
        return BELIEFS.find(self.belief).sized(self.particles, self.moves)

    def check(self) -> None:
        """Raise unless every value is there and possible."""
        super().check()
        at_least_one(**{name: getattr(self, name) for name in ("trajectories", "particles", "moves")})

    def filled(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the defaults, with as many particles as the belief needs."""
        if "particles" in values:
            values["particles"] = BELIEFS.find(self.belief).count(None, values["particles"])
        return values


_KINDS = {
    int: "a whole number",
    float: "a number",
    str: "a word",
    bool: "true or false",
    tuple[int, ...]: "a list of whole numbers",
    tuple[str, ...]: "a list of words",
}


def _fits(value: Any, kind: Any) -> bool:
    if kind in (tuple[int, ...], tuple[str, ...]):
        return isinstance(value, tuple) and all(_fits(item, typing.get_args(kind)[0]) for item in value)
    if kind in (int, float):
        return isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
    return isinstance(value, kind)


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
