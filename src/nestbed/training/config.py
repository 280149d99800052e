"""What a training run can be told: as a dataclass, as TOML, or as `key=value`."""

import dataclasses
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar, Self

from nestbed.errors import NestbedError, at_least_one, at_least_zero, did_you_mean
from nestbed.training.settings import Config, check_choices, check_types, option

_BELIEF = 'parameter posterior: "ibis" (particles) or "exact" (conditionally linear systems)'
_GAIN = 'form of the gain: "general", "constant_noise" or "closed_form" (exact belief)'
LAYERS = 100
"""More than this is taken for a slip."""
_CLIP = "gradients longer than this are shortened to it; 0: never"


@dataclasses.dataclass(frozen=True)
class PolicyConfig:
    """Sizes of the recurrent policy; the defaults are the paper's."""

    cell: str = option("gru", 'recurrent cell: "gru" or "lstm"')
    encoder: tuple[int, ...] = option((256, 256, 64), "dense layers before the recurrent ones")
    recurrent: tuple[int, ...] = option((64, 64), "recurrent layers")
    head: tuple[int, ...] = option((256, 256), "dense layers after them")
    log_std: float = option(0.0, "log σ of the designs before they are squashed, at the start")
    sees_previous: bool = option(False, "whether the policy also sees the design before")

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, list):
                object.__setattr__(self, name, tuple(value))

    def check(self) -> None:
        """Raise unless every value is possible."""
        check_types(self)
        if self.cell not in CELLS:
            raise NestbedError(f"cell is {self.cell!r}; {did_you_mean(self.cell, CELLS)}.")
        for part in ("encoder", "recurrent", "head"):
            sizes = getattr(self, part)
            if len(sizes) > LAYERS:
                raise NestbedError(f"the policy's {part} has {len(sizes)} layers, but it may have {LAYERS} at most.")
            for size in sizes:
                at_least_one(**{f"a layer of the policy's {part}": size})
        if not abs(self.log_std) <= 10.0:
            raise NestbedError(f"log_std is {self.log_std!r}, but it must be a number from -10 to 10.")

    def __str__(self) -> str:
        return f"{self.cell} {'-'.join(str(size) for size in (*self.encoder, *self.recurrent, *self.head))}"


@dataclasses.dataclass(frozen=True)
class TrainConfig(Config):
    """Score climbing. What is left None comes from `system.defaults`; for the paper's systems, its own settings."""

    method: ClassVar[str] = "score_climbing"

    iterations: int = option(None, "rounds of sweep, gradient steps and evaluation")
    horizon: int = option(None, "T: experiments per trajectory")
    trajectories: int = option(None, "N: trajectories per sweep")
    particles: int = option(None, "M: parameter particles per trajectory")
    moves: int = option(None, "Metropolis steps per rejuvenation of particles")
    belief: str = option("ibis", _BELIEF)
    gain: str = option("general", _GAIN)
    eta: float = option(None, "η: trajectories are weighted by exp(η · (gain − penalties))")
    slew_penalty: float = option(None, "on squared changes of the designs")
    action_penalty: float = option(0.0, "on squared designs")
    conditional: bool = option(True, "Markovian score climbing; false: plain, from unconditional sweeps")
    sweeps: int = option(1, "sweeps per iteration; the last one is learned from")
    optimiser: str = option("adam", '"adam", "adamw", "rmsprop" or "sgd"')
    learning_rate: float = option(None, "step size of the optimiser")
    schedule: str = option("constant", 'of the learning rate: "constant", or down to 0 by "cosine" or "linear"')
    clip: float = option(0.0, _CLIP)
    batch: int = option(64, "trajectories per gradient step; an iteration is one pass over N")
    policy: PolicyConfig = dataclasses.field(default_factory=PolicyConfig)

    def check(self) -> None:
        """Raise unless every value is there and possible."""
        check_types(self)
        self.policy.check()
        counts = ("iterations", "horizon", "trajectories", "particles", "moves", "sweeps", "batch")
        at_least_one(**{name: getattr(self, name) for name in counts})
        amounts = ("eta", "slew_penalty", "action_penalty", "clip", "learning_rate")
        at_least_zero(**{name: getattr(self, name) for name in amounts})
        check_choices(self)
        if self.conditional and self.trajectories < 2:
            raise NestbedError(
                "conditional sweeps need at least 2 trajectories: one alone could only return its reference; raise "
                "trajectories or set conditional to false."
            )

    @property
    def headline(self) -> str:
        """T, N, M and η."""
        return f"T = {self.horizon}, N = {self.trajectories}, {_inner(self)}, η = {self.eta:g}"

    @property
    def details(self) -> str:
        """The optimiser, the penalty and the network."""
        kind = "Markovian score climbing" if self.conditional else "score climbing"
        steps = f"{self.optimiser} {self.learning_rate:g}, batches of {min(self.batch, self.trajectories)}"
        return f"{kind}, {steps}, slew {self.slew_penalty:g}, {self.policy}"

    @property
    def budget(self) -> str:
        """Empty: the defaults are the paper's."""
        return ""

    @property
    def remedies(self) -> str:
        """A smaller learning rate, and a penalty under which the mean policy does the work."""
        penalty = "above 0" if self.slew_penalty == 0 else f"above {self.slew_penalty:g}"
        return (
            f"a smaller learning_rate (now {self.learning_rate:g}) or a slew_penalty {penalty}, so that the mean "
            "policy does the work and not its noise"
        )

    @property
    def extendable(self) -> bool:
        """Whether the learning rate stays where it is."""
        return self.schedule == "constant"


@dataclasses.dataclass(frozen=True)
class IDADConfig(Config):
    """iDAD (Ivanova et al., 2021): gradients of the sPCE bound through the simulator, for a policy without noise.

    The defaults train in minutes on two cores; `IDADConfig.paper()` has the paper's sizes. What is left None comes
    from `system.defaults`.
    """

    method: ClassVar[str] = "idad"

    iterations: int = option(10, "rounds of gradient steps and evaluation")
    steps: int = option(100, "gradient steps per iteration")
    horizon: int = option(None, "T: experiments per trajectory")
    batch: int = option(64, "B: simulated trajectories per gradient step")
    contrastive: int = option(1023, "L: draws from the prior that each of them is contrasted with")
    learning_rate: float = option(5e-4, "step size of Adam, at the start")
    annealing: float = option(0.96, "the learning rate shrinks by this after an iteration without a better bound")
    clip: float = option(0.0, _CLIP)
    trajectories: int = option(None, "N: trajectories of the evaluation after each iteration")
    particles: int = option(None, "M: its parameter particles per trajectory")
    moves: int = option(None, "its Metropolis steps per rejuvenation of particles")
    belief: str = option("ibis", _BELIEF)
    gain: str = option("general", _GAIN)
    policy: PolicyConfig = dataclasses.field(default_factory=lambda: PolicyConfig(cell="lstm"))

    @classmethod
    def paper(cls) -> Self:
        """Return the paper's configuration: 10000 gradient steps, the annealing decided every 400."""
        return cls(iterations=25, steps=400, batch=512, contrastive=16383, learning_rate=5e-4, annealing=0.96)

    def check(self) -> None:
        """Raise unless every value is there and possible."""
        check_types(self)
        self.policy.check()
        counts = "iterations", "steps", "horizon", "batch", "contrastive", "trajectories", "particles", "moves"
        at_least_one(**{name: getattr(self, name) for name in counts})
        at_least_zero(clip=self.clip, learning_rate=self.learning_rate)
        check_choices(self)
        if not 0.0 < self.annealing <= 1.0:
            raise NestbedError(
                f"annealing is {self.annealing!r}, but it must be a number above 0 and at most 1; 1 keeps the learning "
                "rate where it is."
            )

    @property
    def headline(self) -> str:
        """T, what was spent on training, and the sizes of the evaluation."""
        return f"iDAD, T = {self.horizon}, evaluated with N = {self.trajectories}, {_inner(self)}\n{self.budget}"

    @property
    def details(self) -> str:
        """The optimiser and the network."""
        return f"iDAD, adam {self.learning_rate:g}, annealing {self.annealing:g}, {self.policy}"

    @property
    def budget(self) -> str:
        """Gradient steps, trajectories and contrastive draws, beside the paper's."""
        full = self.paper()
        theirs = f"{full.iterations * full.steps} × {full.batch} × {full.contrastive}"
        return (
            f"{self.iterations * self.steps} gradient steps × {self.batch} trajectories × {self.contrastive} "
            f"contrastive draws (paper: {theirs})"
        )

    @property
    def remedies(self) -> str:
        """A smaller learning rate, and more contrastive draws: near its limit the bound has no slope to climb."""
        return (
            f"a smaller learning_rate (now {self.learning_rate:g}) or more contrastive draws (now {self.contrastive})"
        )

    @property
    def extendable(self) -> bool:
        """Always: no step looks at how many are to come."""
        return True


METHODS: dict[str, Callable[[], TrainConfig | IDADConfig]] = {
    "score_climbing": TrainConfig,
    "idad": IDADConfig,
    "idad_paper": IDADConfig.paper,
}
"""What a method trains with unless told otherwise, by the name that the command line uses."""


def named(method: Any) -> TrainConfig | IDADConfig:
    """Return what a method trains with unless told otherwise."""
    if str(method) not in METHODS:
        raise NestbedError(f"there is no method {method!r}; {did_you_mean(str(method), METHODS)}.")
    return METHODS[str(method)]()


CELLS = ("gru", "lstm")


def read(file: Path) -> dict[str, Any]:
    """Return the settings of a TOML file."""
    try:
        return parse(file.read_bytes(), file)
    except OSError as error:
        raise NestbedError(f"cannot read the configuration {file}: {error.strerror}.") from None


def parse(data: bytes, file: Path) -> dict[str, Any]:
    """Return the settings that a file holds."""
    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError:
        raise NestbedError(f"cannot read the configuration {file}: it is not a text file.") from None
    except (ValueError, RecursionError) as error:
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
    except (ValueError, RecursionError):
        return {"True": True, "False": False}.get(text, text)


def _inner(config: TrainConfig | IDADConfig) -> str:
    return f"M = {config.particles}" if config.belief == "ibis" else "exact belief"
