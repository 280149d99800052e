"""Systems seen through sensors, within limits: plan and trained policy beside random, held PRBS, chirp and others.

    python benchmarks/sensed.py [heater encoder_pendulum encoder_cart_pole]

Runs are kept in results/sensed, and what is there is not trained again; docs/results/sensed.md is written anew.
"""

import sys
from pathlib import Path

import jax

import nestbed as nb

PLACE = Path("results/sensed")
PAGE = Path("docs/results/sensed.md")
LIMITS = {
    "heater": {"heater": (None, 60.0)},
    "encoder_pendulum": {"velocity": (-2.0, 2.0)},
    "encoder_cart_pole": {"position": (-1.0, 1.0)},
}
"""Of states, which sensors do not show but on the cart: the heater's own temperature, K above the room; rad/s; m."""
HEAD = """# Systems seen through sensors, within limits

`python benchmarks/sensed.py`: `nb.train` as it comes (key 0) on the built-in systems of which not every state is seen;
certified gains in nats with their 95 % intervals, and how often any limit is broken (risk asked for: 1 %). Baselines
are scaled down until they keep the limits too. `maximum_length` is a binary signal, held. Seconds are of two cores,
with nothing of the system compiled before.
"""


def system_of(name: str) -> nb.System:
    return nb.systems.load(name).replace(limits=LIMITS[name])


def table(name: str) -> str:
    """Return one system's policies, as a table of the page."""
    system = system_of(name)
    run = nb.train(jax.random.key(0), system, out=PLACE / name, resume=True)
    bounds = ", ".join(
        f"{state} {'' if low is None else f'from {low:g} '}to {high:g} {system.units[state]}"
        for state, (low, high) in LIMITS[name].items()
    )
    spent = sum(row["seconds"] for row in run.metrics)
    lines = [
        f"## {name}",
        "",
        f"Sensors: {', '.join(system.observation_names)}. Limit: {bounds}. {spent:.0f} s of training. {run.outcome}",
        "",
        "| policy | EIG | 95 % interval | bounds | limits broken |",
        "|---|---|---|---|---|",
    ]
    for each in run.comparison:
        (low, high), found = each.interval, each.certificate
        broken = "–" if each.violation is None else f"{100 * each.violation.probability:.2f} %"
        ends = f"{found.lower:.3f} … {found.upper:.3f}"
        lines.append(f"| {each.policy} | {each.mean:.2f} | {low:.2f} … {high:.2f} | {ends} | {broken} |")
    return "\n".join(lines)


if __name__ == "__main__":
    found = [table(name) for name in sys.argv[1:] or LIMITS]
    PAGE.write_text("\n\n".join([HEAD.rstrip(), *found]) + "\n")
    print(PAGE.read_text())
