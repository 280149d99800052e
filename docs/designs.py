"""Draw what the best of five designs gains on the paper's systems, as `make designs` does, and print the table.

python docs/designs.py docs/designs.png, after benchmarks/designs.py paper
"""

import sys
from pathlib import Path

from matplotlib.figure import Figure

import nestbed as nb

PUBLISHED = {"linear_pendulum": 3.63, "nonlinear_pendulum": 3.72, "cart_pole": 21.23, "double_link": 11.73}
"""The best of the paper's tables: IO-SMC², with exact beliefs on the linear pendulum; iDAD on the double link."""
GREY, BLUE, ORANGE, INK = "#bbbbbb", "#56B4E9", "#D55E00", "#222222"


def main(file: str) -> None:
    """Read the plans, print the table and draw the figure."""
    figure = Figure(figsize=(11.0, 2.9), layout="constrained")
    figure.suptitle("What fifty experiments tell about the parameters, in nats", color=INK)
    print("| system | random | PRBS | best classical signal | best published | `nb.design`, 20 s, five keys |")
    print("|---|---|---|---|---|---|")
    for axes, (name, published) in zip(figure.subplots(1, 4), PUBLISHED.items(), strict=True):
        plans = [nb.load_plan(Path("results/designs") / f"{name}_{seed}", nb.systems.load(name)) for seed in range(5)]
        best = max(plans, key=lambda plan: plan.gain.mean)
        beside = {each.policy: each.mean for each in best.comparison}
        bars = {
            "random": beside["random"],
            "PRBS": beside["prbs"],
            "best signal": max(beside["best signal"], beside["maximum_length"], beside["chirp"]),
            "published": published,
            "nestbed": best.gain.mean,
        }
        low, high = best.gain.interval
        worst = min(plan.gain.mean for plan in plans)
        print(
            f"| {name} | "
            + " | ".join(f"{value:.2f}" for value in list(bars.values())[:-1])
            + f" | **{best.gain.mean:.2f}** ({low:.2f} to {high:.2f}), the worst {worst:.2f} |"
        )
        colours = [GREY, GREY, GREY, BLUE, ORANGE]
        axes.bar(range(5), list(bars.values()), color=colours)
        for i, value in enumerate(bars.values()):
            axes.text(i, value, f"{value:.2f}", ha="center", va="bottom", fontsize=8, color=INK)
        axes.set_xticks(range(5), list(bars), rotation=35, ha="right", fontsize=8)
        axes.set_title(name.replace("_", " "), fontsize=10, color=INK)
        axes.margins(y=0.12)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    main(sys.argv[1])
