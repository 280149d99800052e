"""How jax is set up: 64 bits and a folder for compiled programs, once it is imported by whomever.

Nothing is put into the environment, so that child processes inherit nothing, and what users have set themselves stays.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any


def install() -> None:
    """Set jax up now if it is there already, else as soon as it is imported."""
    if "jax" in sys.modules:
        apply(sys.modules["jax"])
    elif not any(isinstance(finder, _AtImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AtImport())


def apply(jax: Any) -> None:
    """Switch jax to 64 bits, unless JAX_ENABLE_X64 is set, and give it a cache folder, unless it has one."""
    if "JAX_ENABLE_X64" not in os.environ:
        jax.config.update("jax_enable_x64", True)
    if jax.config.jax_compilation_cache_dir is not None:
        return
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return  # no home directory: nothing is kept for the next start
    jax.config.update("jax_compilation_cache_dir", str(cache / "nestbed" / "compiled"))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


class _AtImport(importlib.abc.MetaPathFinder):
    """Finds jax as Python would, and sets it up when it has been loaded."""

    searching = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "jax" or self.searching:
            return None
        self.searching = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.searching = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self)
        return spec


class _Loader(importlib.abc.Loader):
    """Loads jax, then sets it up, and leaves everything as it would have been without it."""

    def __init__(self, loader: Any, finder: _AtImport):
        self.loader, self.finder = loader, finder

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        if self.finder in sys.meta_path:
            sys.meta_path.remove(self.finder)
        apply(module)
