"""The folder of an export: its files, how to use them, and a few steps to compare with."""

import importlib
import json
from pathlib import Path
from typing import Any

from nestbed.exports.about import About
from nestbed.exports.registry import FORMATS
from nestbed.model import checks
from nestbed.model.system import BaseSystem
from nestbed.numerics import storage

README, CHECK = "README.md", "check.json"


def export(
    policy: Any,
    system: BaseSystem,
    folder: str | Path,
    *,
    format: str,
    horizon: int | None = None,
    single: bool = False,
    seed: int = 0,
    source: str = "Python",
) -> list[str]:
    """Write a policy as files that run without nestbed, and return their names.

    Args:
        policy: one that was trained, a plan's (`plan.policy`), a signal or any that is written in jax. A policy that
            keeps a belief of its own (Replan, Greedy, Myopic) cannot leave.
        system: the model that it was made for: names, units and limits come from there.
        folder: where the files are written.
        format: "c", "onnx", "jax" or "csv".
        horizon: T, experiments that it was made for; by default what the policy says, or the system.
        single: whether all of it is computed in single precision, not as the policy does (networks in single, the
            rest in double precision).
        seed: of the observations in check.json, and of the designs in CSV where they are drawn.
        source: where the policy comes from, in words.
    """
    form: Any = importlib.import_module(FORMATS.find(format).home)
    checks.instance(system)
    known = getattr(policy, "trained_for", None) or getattr(policy, "longest", None)
    about = About(policy, system, source, horizon or known, single, seed)
    found = form.files(about)
    check = json.dumps(form.check(about), allow_nan=False) + "\n"
    text = "\n\n".join([f"# {about.title}", "\n".join(about.words), "\n".join(f"- {line}" for line in about.lines)])
    found |= {CHECK: check.encode(), README: f"{text}\n{form.readme(about)}".encode()}
    place = storage.writable(Path(folder))
    with storage.saving(place):
        for name, data in found.items():
            storage.write(place / name, data)
    return [*found]
