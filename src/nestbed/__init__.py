"""nestbed: learn how to excite a dynamical system so that its unknown parameters reveal themselves.

Importing this module is light: jax loads with the first name that needs it. Filters run in float64, so that jax is
switched to 64 bits then, unless you have set that yourself, and compiled programs are kept in a cache folder for the
next start.
"""

import importlib
from typing import TYPE_CHECKING, Any

from nestbed.numerics import jax_settings

_HOMES = {
    "Box": "nestbed.model.box",
    "Defaults": "nestbed.model.system",
    "System": "nestbed.model.system",
    "VectorSystem": "nestbed.model.system",
    "NestbedError": "nestbed.numerics.errors",
    "Policy": "nestbed.policies.base",
    "Progress": "nestbed.numerics.progress",
    "Record": "nestbed.likelihood.base",
    "sweep": "nestbed.smc.sweep",
    "Sweep": "nestbed.smc.sweep",
    "Reference": "nestbed.smc.reference",
    "certificate": "nestbed.evaluation.certificate",
    "Certificate": "nestbed.evaluation.certificate",
    "compare": "nestbed.evaluation.comparison",
    "Comparison": "nestbed.evaluation.comparison",
    "PolicyEstimate": "nestbed.evaluation.comparison",
    "design": "nestbed.planning.design",
    "eig": "nestbed.evaluation.eig",
    "export": "nestbed.exports.folder",
    "oracle": "nestbed.planning.oracle",
    "Oracle": "nestbed.planning.oracle",
    "Estimate": "nestbed.evaluation.estimates",
    "snmc": "nestbed.evaluation.contrastive_bounds",
    "spce": "nestbed.evaluation.contrastive_bounds",
    "posterior": "nestbed.evaluation.posterior",
    "Posterior": "nestbed.evaluation.posterior",
    "violation": "nestbed.evaluation.violation",
    "Violation": "nestbed.evaluation.violation",
    "train": "nestbed.runs.train",
    "DivergedError": "nestbed.runs.train",
    "ScoreClimbingConfig": "nestbed.training.score_climbing",
    "IDADConfig": "nestbed.training.idad",
    "PathwiseConfig": "nestbed.training.pathwise_config",
    "FeedbackConfig": "nestbed.training.config",
    "PolicyConfig": "nestbed.training.config",
    "load_run": "nestbed.runs.folder",
    "load_plan": "nestbed.planning.plan",
    "load_policy": "nestbed.runs.folder",
    "Plan": "nestbed.planning.plan",
    "Run": "nestbed.runs.run",
    "Session": "nestbed.live.session",
    "belief": "nestbed.belief",
    "policies": "nestbed.policies",
    "rigs": "nestbed.rigs",
    "systems": "nestbed.systems",
}
_ROOMS = {"belief", "policies", "rigs", "systems"}

__all__ = [*sorted(_HOMES), "__version__"]

if TYPE_CHECKING:
    __version__: str
    from nestbed import belief, policies, rigs, systems
    from nestbed.evaluation.certificate import Certificate, certificate
    from nestbed.evaluation.comparison import Comparison, PolicyEstimate, compare
    from nestbed.evaluation.contrastive_bounds import snmc, spce
    from nestbed.evaluation.eig import eig
    from nestbed.evaluation.estimates import Estimate
    from nestbed.evaluation.posterior import Posterior, posterior
    from nestbed.evaluation.violation import Violation, violation
    from nestbed.exports.folder import export
    from nestbed.likelihood.base import Record
    from nestbed.live.session import Session
    from nestbed.model.box import Box
    from nestbed.model.system import Defaults, System, VectorSystem
    from nestbed.numerics.errors import NestbedError
    from nestbed.numerics.progress import Progress
    from nestbed.planning.design import design
    from nestbed.planning.oracle import Oracle, oracle
    from nestbed.planning.plan import Plan, load_plan
    from nestbed.policies.base import Policy
    from nestbed.runs.folder import load_policy, load_run
    from nestbed.runs.run import Run
    from nestbed.runs.train import DivergedError, train
    from nestbed.smc.reference import Reference
    from nestbed.smc.sweep import Sweep, sweep
    from nestbed.training.config import FeedbackConfig, PolicyConfig
    from nestbed.training.idad import IDADConfig
    from nestbed.training.pathwise_config import PathwiseConfig
    from nestbed.training.score_climbing import ScoreClimbingConfig


jax_settings.install()


def __getattr__(name: str) -> Any:
    """Load a public name from its home when it is first asked for."""
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("nestbed")
    if name not in _HOMES:
        raise AttributeError(f"module 'nestbed' has no attribute {name!r}; it has {', '.join(__all__)}")
    module = importlib.import_module(_HOMES[name])
    return module if name in _ROOMS else getattr(module, name)


def __dir__() -> list[str]:
    return __all__
