"""Training at the paper's settings, five seeds of each, beside the paper's learning curves.

Runs are kept in results/paper and go on where they stopped; the figures and the table are written to docs/training.
"""

import sys
from pathlib import Path

import jax
import numpy as np

import nestbed as nb
from nestbed import figures

SEEDS = 5
TRAININGS = (
    ("linear_pendulum", "ibis"),
    ("linear_pendulum", "exact"),
    ("nonlinear_pendulum", "ibis"),
    ("cart_pole", "ibis"),
    ("double_link", "ibis"),
)
HEADER = "| system | belief | iterations | nestbed | paper | difference / paper's sd | seconds per training |"


def trained(name, belief, folder):
    """Return the runs of all seeds, training what is missing."""
    system = nb.systems.load(name)
    config = nb.TrainConfig(belief=belief)
    runs = []
    for seed in range(SEEDS):
        place = folder / f"{name}_{belief}" / f"seed_{seed}"
        runs.append(nb.train(jax.random.key(seed), system, config, out=place, resume=True))
        print(f"{name} {belief} seed {seed}: {runs[-1].metrics[-1]['eig']:.2f}", file=sys.stderr, flush=True)
    return runs


def line(runs):
    """Return one line of the table."""
    first = runs[0]
    last = np.array([run.metrics[-1]["eig"] for run in runs])
    _, mean, sd = first.published()[-1]
    steady = [np.median([row["seconds"] for row in run.metrics[2:]]) for run in runs]  # without compilation
    seconds = first.config.iterations * np.median(steady)
    cells = (
        first.about["system"]["name"],
        first.config.belief,
        str(first.config.iterations),
        f"{last.mean():.2f} ± {last.std(ddof=1):.2f}",
        f"{mean:.2f} ± {sd:.2f}",
        f"{(last.mean() - mean) / sd:+.2f}",
        f"{seconds:.0f}",
    )
    return f"| {' | '.join(cells)} |"


def main():
    docs = Path("docs/training")
    docs.mkdir(parents=True, exist_ok=True)
    lines = [HEADER, "|---" * HEADER.count(" | ") + "|---|"]
    for name, belief in TRAININGS:
        runs = trained(name, belief, Path("results/paper"))
        figures.learning_curve(runs, docs / f"{name}_{belief}.png", runs[0].title)
        lines.append(line(runs))
    (docs / "table.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
