"""nestbed: learn how to excite a dynamical system so that its unknown parameters reveal themselves.

Importing this module is light: jax loads with the first name that needs it. Filters run in float64, so
the import switches jax to 64 bits, and compiled programs are kept in a cache folder for the next start.
"""

import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Box": "nestbed.box",
    "Defaults": "nestbed.system",
    "System": "nestbed.system",
    "VectorSystem": "nestbed.system",
    "NestbedError": "nestbed.errors",
    "sweep": "nestbed.smc.sweep",
    "compare": "nestbed.evaluation.comparison",
    "eig": "nestbed.evaluation.eig",
    "snmc": "nestbed.evaluation.contrastive_bounds",
    "spce": "nestbed.evaluation.contrastive_bounds",
    "posterior": "nestbed.evaluation.posterior",
    "train": "nestbed.training.train",
    "TrainConfig": "nestbed.training.config",
    "IDADConfig": "nestbed.training.config",
    "PolicyConfig": "nestbed.training.config",
    "load_run": "nestbed.runs",
    "load_policy": "nestbed.runs",
    "belief": "nestbed.belief",
    "policies": "nestbed.policies",
    "systems": "nestbed.systems",
}
_ROOMS = {"belief", "policies", "systems"}

__all__ = [*sorted(_HOMES), "__version__"]

if TYPE_CHECKING:
    from nestbed import belief, policies, systems
    from nestbed.box import Box
    from nestbed.errors import NestbedError
    from nestbed.evaluation.comparison import compare
    from nestbed.evaluation.contrastive_bounds import snmc, spce
    from nestbed.evaluation.eig import eig
    from nestbed.evaluation.posterior import posterior
    from nestbed.runs import load_policy, load_run
    from nestbed.smc.sweep import sweep
    from nestbed.system import Defaults, System, VectorSystem
    from nestbed.training.config import IDADConfig, PolicyConfig, TrainConfig
    from nestbed.training.train import train


def _configure_jax() -> None:
    """Set float64 and the compilation cache, through the environment while jax is not imported yet."""
    wanted = {"jax_enable_x64": "true", "jax_persistent_cache_min_compile_time_secs": "0"}
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        wanted["jax_compilation_cache_dir"] = str(cache / "nestbed" / "compiled")
    except RuntimeError:
        pass  # no home directory: nothing is kept for the next start
    for name, value in wanted.items():
        variable = name.upper()
        mandatory = name == "jax_enable_x64"
        if variable in os.environ and not mandatory:
            continue
        os.environ[variable] = value
        if "jax" in sys.modules:
            typed: Any = True if mandatory else float(value) if name.endswith("secs") else value
            sys.modules["jax"].config.update(name, typed)


_configure_jax()


def __getattr__(name: str) -> Any:
    """Load a public name from its home when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'nestbed' has no attribute {name!r}; it has {', '.join(__all__)}")
    module = importlib.import_module(_HOMES[name])
    return module if name in _ROOMS else getattr(module, name)


def __dir__() -> list[str]:
    return __all__
