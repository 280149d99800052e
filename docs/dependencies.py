"""Draw which floor imports from which, as `make graph` does: python docs/dependencies.py docs/dependencies.png."""

import sys
import textwrap
import tomllib
from collections import Counter
from pathlib import Path

import grimp
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

ROOT = Path(__file__).parents[1]
INK, BLUE, UPWARDS, GRID = "#222222", "#56B4E9", "#D55E00", "#cccccc"


def floors() -> list[str]:
    """Return the floors from the top down, as the contract of `make lint` has them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return [name for name in contracts[0]["layers"] if not name.startswith("__")]


def imports(names: list[str]) -> tuple[dict[str, list[str]], Counter[tuple[str, str]]]:
    """Return the modules of each floor, and how many imports lead from one floor to another."""
    graph = grimp.build_graph("nestbed", cache_dir=None)
    inside: dict[str, list[str]] = {name: [] for name in names}
    between: Counter[tuple[str, str]] = Counter()
    for module in graph.modules:
        _, _, place = module.partition(".")
        floor, _, rest = place.partition(".")
        if floor not in inside:
            continue
        if rest:
            inside[floor].append(rest)
        for other in graph.find_modules_directly_imported_by(module):
            target = other.split(".")[1] if "." in other else ""
            if target in inside and target != floor:
                between[floor, target] += 1
    return {name: sorted(parts) for name, parts in inside.items()}, between


def draw(file: Path) -> None:
    """Draw the floors as rows with their modules, and beside each how often it imports from every floor."""
    names = floors()
    inside, between = imports(names)
    figure = Figure(figsize=(14.0, 0.52 * len(names) + 1.0), layout="constrained")
    axes = figure.subplots()
    left = 13.6
    for row, name in enumerate(names):
        parts = sorted({part.split(".")[0] for part in inside[name]})
        axes.text(0.0, -row - 0.12, name, weight="bold", size=12, color=INK, va="center")
        axes.text(2.4, -row - 0.12, textwrap.fill(", ".join(parts), 78), size=7, color=INK, va="center")
        axes.text(left + row, 0.75, name, size=9, color=INK, rotation=45, ha="left", va="bottom")
        for column, other in enumerate(names):
            count = between[name, other]
            colour = UPWARDS if count and column < row else BLUE
            face = "#eeeeee" if row == column else colour if count else "white"
            alpha = 1.0 if row == column or not count else min(1.0, 0.2 + count / 15)
            cell = Rectangle((left + column - 0.4, -row - 0.5), 0.8, 0.8, facecolor=face, alpha=alpha, edgecolor=GRID)
            axes.add_patch(cell)
            if count:
                axes.text(left + column, -row - 0.1, str(count), size=8, ha="center", va="center", color=INK)
    axes.set(xlim=(-0.1, left + len(names) + 0.8), ylim=(-len(names) + 0.2, 2.4))
    axes.axis("off")
    title = "How often each floor (row) imports from another (column): never from one above it"
    axes.set_title(title, loc="left", size=12)
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
