"""Which trainer a configuration asks for."""

from nestbed.system import BaseSystem
from nestbed.training.config import IDADConfig, TrainConfig
from nestbed.training.contrastive import Contrastive
from nestbed.training.score_climbing import ScoreClimbing
from nestbed.training.trainer import Trainer

TRAINERS: dict[str, type[ScoreClimbing] | type[Contrastive]] = {
    TrainConfig.method: ScoreClimbing,
    IDADConfig.method: Contrastive,
}


def trainer(system: BaseSystem, config: TrainConfig | IDADConfig) -> Trainer:
    """Return the trainer of a resolved configuration."""
    return TRAINERS[config.method](system, config)  # type: ignore[arg-type]
