"""How jax is set up: 64 bits, a folder for compiled programs and faster loops, once it is imported by whomever.

Nothing stays in the environment, so that child processes inherit nothing, and what users have set themselves stays.
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

FLAGS = {"xla_backend_extra_options": "xla_cpu_small_while_loop_byte_threshold=1000000"}
"""What XLA is told: loops over so many bytes are one function, not a call of many for each turn."""
WIDE = {"xla_cpu_prefer_vector_width": "512"}
"""And where processors have such registers: XLA would use half of them."""
KNOWN = (0, 13)
"""The first version of jaxlib that is not known to have these flags: one that is unknown ends the process."""
PROCESSOR = Path("/proc/cpuinfo")


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
    tell_xla()
    if jax.config.jax_compilation_cache_dir is not None:
        return
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return  # no home directory: nothing is kept for the next start
    jax.config.update("jax_compilation_cache_dir", str(cache / "nestbed" / "compiled"))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def tell_xla() -> None:
    """Give XLA flags for fast loops, but for those that the user has set.

    It reads them from the environment, once, when options of a compilation are first made: so they are made here.
    """
    from jaxlib import version, xla_client

    own = os.environ.get("XLA_FLAGS")
    is_file = bool(own and not own.lstrip().startswith("-"))
    if version.__version_info__ >= KNOWN or is_file:
        return
    wanted = {**FLAGS, **(WIDE if _has_wide_registers() else {})}
    told = [own or "", *(f"--{name}={value}" for name, value in wanted.items() if name not in (own or ""))]
    try:
        os.environ["XLA_FLAGS"] = " ".join(told).strip()
        _ = xla_client.CompileOptions().executable_build_options.debug_options
    finally:
        del os.environ["XLA_FLAGS"]
        if own is not None:
            os.environ["XLA_FLAGS"] = own


def _has_wide_registers() -> bool:
    try:
        return " avx512f " in PROCESSOR.read_text()
    except OSError:
        return False


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
