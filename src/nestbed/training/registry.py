"""The training methods there are, by name."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nestbed.numerics.registry import Entry, Registry, resolve

if TYPE_CHECKING:
    from nestbed.model.system import BaseSystem
    from nestbed.training.config import Config
    from nestbed.training.trainer import Trainer


@dataclass(frozen=True)
class Method(Entry):
    """A training method: its trainer, the configuration it uses unless told otherwise, and a legend of its metrics."""

    config: str = ""  # "module:attribute" of what makes its configuration
    legend: str = ""


METHODS = Registry(
    "method",
    Method(
        "pathwise",
        "nestbed.training.pathwise:Pathwise",
        "the best plan with feedback learned on top of it, by gradients through the simulator",
        config="nestbed.training.pathwise_config:PathwiseConfig",
        legend="EIG ± standard error of the policy without its noise (nats), in the last line of what is handed out; "
        "of the iteration's gradient steps: mean Gauss–Newton gain, noise of the designs, mean length of the gradient",
    ),
    Method(
        "score_climbing",
        "nestbed.training.score_climbing:ScoreClimbing",
        "Markovian score climbing with the nested filter, IO-SMC²",
        config="nestbed.training.score_climbing:ScoreClimbingConfig",
        legend="EIG ± standard error of the mean policy (nats); of the sweep: log-evidence, effective sample size of "
        "the trajectories, how often they were resampled, accepted Metropolis moves; entropy of the policy's noise",
    ),
    Method(
        "idad",
        "nestbed.training.idad:IDAD",
        "a baseline that climbs the sPCE bound through the simulator, in minutes on two cores",
        config="nestbed.training.idad:IDADConfig",
        legend="EIG ± standard error of the policy (nats); of the iteration's gradient steps: mean of the bound sPCE, "
        "learning rate, mean length of the gradient",
    ),
    Method(
        "idad_paper",
        "nestbed.training.idad:IDAD",
        "the same with the paper's sizes, which take days there",
        config="nestbed.training.idad:IDADConfig.paper",
    ),
)
"""The first is what is used unless told otherwise. A name may be that of a method, or of another size of one."""


def config(method: Any = None) -> "Config":
    """Return what a method trains with unless told otherwise; without a name, the first method."""
    return resolve(METHODS.find(next(iter(METHODS)) if method is None else method).config)()


def trainer(system: "BaseSystem", config: "Config") -> "Trainer[Any]":
    """Return the trainer of a resolved configuration."""
    return METHODS.find(config.method).load()(system, config)
