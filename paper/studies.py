"""What the paper studies: its systems, its policies, and how large everything is."""

import dataclasses

from nestbed import systems
from nestbed.training.config import PolicyConfig, SweepConfig
from nestbed.training.idad import IDADConfig
from nestbed.training.score_climbing import ScoreClimbingConfig

BASELINES = ("random", "myopic", "prbs")
"""Policies of the paper that involve no training."""
PUBLISHED = (*BASELINES, "idad", "io_smc2", "io_smc2_exact")
"""The paper's policies, in the order of its tables."""
OTHERS = ("prbs_independent", "maximum_length", "chirp", "multisine", "greedy", "myopic_no_slew")
"""Policies that the paper does not have."""
SIGNALS = ("maximum_length", "chirp", "multisine", "greedy")
"""Those of them that every system is given."""


@dataclasses.dataclass(frozen=True)
class Study:
    """What is done with one of the paper's systems."""

    title: str
    seconds: float  # of one training, on two cores
    methods: tuple[str, ...] = ("io_smc2", "idad")  # by which policies are trained
    others: tuple[str, ...] = SIGNALS  # policies that the paper does not have
    figures: tuple[str, ...] = ("trajectory",)  # kinds of cells that only a figure needs

    @property
    def exact(self) -> bool:
        """Whether its belief has a closed form."""
        return "io_smc2_exact" in self.methods


SYSTEMS = {
    "linear_pendulum": Study("Linear pendulum", 15.0, methods=("io_smc2", "io_smc2_exact", "idad"), figures=("gain",)),
    "nonlinear_pendulum": Study("Nonlinear pendulum", 20.0),
    "cart_pole": Study("Cart-pole", 90.0, others=(*SIGNALS, "myopic_no_slew"), figures=("trajectory", "particles")),
    "double_link": Study("Double link", 30.0, others=("prbs_independent", *SIGNALS)),
}
"""The paper's systems, whatever others the library has."""


@dataclasses.dataclass(frozen=True)
class Scale:
    """How large everything is."""

    name: str
    trainings: int  # policies trained with each method
    estimates: int  # seeds of every estimate
    contrastive: int
    realisations: int  # of the information gain in closed form
    particles: tuple[int, ...]  # of the study of their number
    others: bool  # whether the policies that the paper does not have are estimated too
    training: ScoreClimbingConfig
    idad: IDADConfig

    def config(self, name: str, method: str) -> SweepConfig:
        """Return the settings of a training of one of the systems."""
        chosen: SweepConfig = self.idad if method == "idad" else self.training
        belief = "exact" if method == "io_smc2_exact" else "ibis"
        return dataclasses.replace(chosen, belief=belief).resolve(systems.load(name))


FULL = Scale(
    "full",
    trainings=5,
    estimates=25,
    contrastive=1_000_000,
    realisations=1024,
    particles=(64, 128, 256, 512, 1024, 2048, 4096, 8192),
    others=True,
    training=ScoreClimbingConfig(),
    idad=IDADConfig(),
)
_SMALL = PolicyConfig(encoder=(32,), recurrent=(16,), head=(32,))
QUICK = Scale(
    "quick",
    trainings=1,
    estimates=4,
    contrastive=10_000,
    realisations=128,
    particles=(64, 256),
    others=False,
    training=ScoreClimbingConfig(
        iterations=4, trajectories=64, particles=64, batch=32, learning_rate=5e-3, policy=_SMALL
    ),
    idad=IDADConfig(
        iterations=2,
        steps=10,
        batch=32,
        contrastive=63,
        trajectories=64,
        particles=64,
        policy=dataclasses.replace(_SMALL, cell="lstm"),
    ),
)
