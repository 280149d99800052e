"""What numbers hang on in nestbed's own sources: a digest of the code behind them, comments and docstrings apart.

A module counts with all that it imports within nestbed, also inside functions, and with what it names as "module:name"
or, in a package, imports for type checkers: that is loaded when it is first used. Of a package that is only on the way
to a module, its `__init__` counts and what that imports does not.
"""

import ast
import hashlib
import inspect
import re
import textwrap
from functools import cache
from pathlib import Path
from typing import NamedTuple

HOME = Path(__file__).parents[1]
NUMBERLESS = frozenset(
    f"nestbed.{name}"
    for name in (
        *(
            "__main__",
            "numerics.text",
            "numerics.packages",
            "systems",
            "training.registry",
        ),  # show, and name what is elsewhere
        *("numerics.storage", "runs.folder", "runs.run", "runs.resuming", "runs.fingerprint", "runs.sources"),  # keep
    )
)
"""Modules that show, keep or compare numbers and compute none: changing them leaves every number as it was."""


_HOME = re.compile(r"nestbed(\.\w+)+:[\w.]+$")


class _Module(NamedTuple):
    code: str
    imports: tuple[str, ...]


def digest(*roots: str, alone: Path | None = None, home: Path | None = None) -> str:
    """Return a digest of the code of some modules and of all that they import, and of one file `alone`.

    What is not of nestbed is passed over.
    """
    found = modules(*roots, home=home)
    if alone is not None:
        found[alone.name] = _read(alone, alone.stem).code
    text = "\n".join(f"# {name}\n{found[name]}" for name in sorted(found))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def modules(*roots: str, home: Path | None = None) -> dict[str, str]:
    """Return the code that a digest is of, by module."""
    found: dict[str, str] = {}
    followed: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        file = _file(name, home or HOME)
        if file is None or name in NUMBERLESS or name in followed:
            continue
        followed.add(name)
        found[name] = _read(file, name).code
        waiting += _read(file, name).imports
        for package in _packages(name):
            above = _file(package, home or HOME)
            if above is not None and package not in NUMBERLESS:
                found[package] = _read(above, package).code
    return found


def training(kind: type, trainer: str, home: Path | None = None) -> str:
    """Return the digest of what a training of a system of this class hangs on, by the method of this module."""
    return digest("nestbed.numerics.jax_settings", "nestbed.runs.train", trainer, *families(kind), home=home)


def families(kind: type) -> tuple[str, ...]:
    """Return the modules of a class and of those it inherits from."""
    return tuple(dict.fromkeys(base.__module__ for base in kind.__mro__))


def bare(kind: type) -> str:
    """Return the code of one class without comments and docstrings; nothing where it has no file."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError, SyntaxError):
        return ""
    return ast.unparse(_Bare().visit(tree))


def _packages(name: str) -> list[str]:
    """Return the packages that a module lies in."""
    parts = name.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))]


def _file(name: str, home: Path) -> Path | None:
    """Return the file of a module, None if it is not one of nestbed."""
    first, *rest = name.split(".")
    place = home.joinpath(*rest)
    candidates = (place / "__init__.py", place.with_suffix(".py")) if rest else (place / "__init__.py",)
    return next((file for file in candidates if file.is_file()), None) if first == "nestbed" else None


@cache
def _read(file: Path, name: str) -> _Module:
    lazy, tree = file.name == "__init__.py", ast.parse(file.read_bytes())
    whole = list(ast.walk(tree)) if lazy else []
    tree = _Bare().visit(tree)
    package = name if lazy else name.rpartition(".")[0]
    imports = [target for node in (*whole, *ast.walk(tree)) for target in _targets(node, package)]
    return _Module(ast.unparse(ast.fix_missing_locations(tree)), tuple(dict.fromkeys(imports)))


def _targets(node: ast.AST, package: str) -> list[str]:
    """Return what a statement may import: modules, and names within them that may be modules."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value.partition(":")[0]] if _HOME.match(node.value) else []
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
    source = ".".join([*above, *([node.module] if node.module else [])])
    names = [f"{source}.{alias.name}" for alias in node.names]
    return names if source == "nestbed" else [source, *names]


class _Bare(ast.NodeTransformer):
    """Leaves out what does not run: docstrings, also of attributes, and imports for type checkers."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Drop a string that stands alone."""
        text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if text else node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.AST] | None:
        """Drop what is under `if TYPE_CHECKING`."""
        visited = self.generic_visit(node)
        return node.orelse if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING" else visited  # type: ignore[return-value]

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Visit what is within; a body must not end up empty."""
        super().generic_visit(node)
        if getattr(node, "body", None) == [] and not isinstance(node, ast.Module):
            node.body = [ast.Pass()]  # type: ignore[attr-defined]
        return node
