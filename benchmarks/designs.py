"""What `nb.design` finds: the paper's systems by five keys, systems of other fields, within limits, for targets.

    python benchmarks/designs.py paper examples limits targets longer

Plans are kept in results/designs, and what is there is not searched again.
"""

import sys
import time
from pathlib import Path

import jax

import nestbed as nb

PLACE = Path("results/designs")
PUBLISHED = {"linear_pendulum": 3.63, "nonlinear_pendulum": 3.72, "cart_pole": 21.8, "double_link": 11.73}
EXAMPLES = ("Tank", "Motor", "Quadrotor", "Reactor", "Epidemic", "Drug", "Spring", "Joint")


class Track(nb.systems.CartPole):
    """The cart-pole on a track of two metres."""

    limits = {"position": (-1.0, 1.0)}


def example(name: str) -> nb.System:
    return nb.systems.load(f"examples/{name.removeprefix('Limited').lower()}.py:{name}")


def designed(name: str, system: nb.System, seed: int = 0, **settings) -> nb.Plan:
    folder = PLACE / f"{name}_{seed}"
    if not (folder / "plan.json").exists():
        begun = time.monotonic()
        nb.design(jax.random.key(seed), system, **settings).save(folder)
        (folder / "seconds").write_text(f"{time.monotonic() - begun:.1f}")
    return nb.load_plan(folder, system)


def line(name: str, plan: nb.Plan, seed: int = 0) -> str:
    low, high = plan.gain.interval
    beside = ", ".join(f"{each.policy} {each.mean:.2f}" for each in plan.comparison[1:])
    limits = "" if plan.violation is None else f"; {plan.violation}"
    seconds = (PLACE / f"{name}_{seed}" / "seconds").read_text()
    return (
        f"{name}: {plan.gain.mean:.3f} ({low:.3f} to {high:.3f}), {plan.rounds} rounds, {seconds} s; {beside}{limits}"
    )


def paper() -> None:
    for name, published in PUBLISHED.items():
        plans = [designed(name, nb.systems.load(name), seed) for seed in range(5)]
        for seed, plan in enumerate(plans):
            print(line(name, plan, seed), flush=True)
        best = max(plan.gain.mean for plan in plans)
        worst = min(plan.gain.mean for plan in plans)
        print(f"{name}: best {best:.3f}, worst {worst:.3f}, published {published}", flush=True)


def examples() -> None:
    for name in EXAMPLES:
        print(line(name, designed(name, example(name))), flush=True)


def limits() -> None:
    systems = {"LimitedMotor": example("LimitedMotor"), "LimitedReactor": example("LimitedReactor"), "Track": Track()}
    free = {"LimitedMotor": example("Motor"), "LimitedReactor": example("Reactor"), "Track": nb.systems.CartPole()}
    for name, system in systems.items():
        plan = designed(name, system)
        print(line(name, plan), flush=True)
        runs = nb.violation(jax.random.key(99), system, plan.policy, records=2000)
        without = designed(type(free[name]).__name__, free[name])
        price = without.gain.mean - plan.gain.mean
        print(f"  2000 other runs: {runs}; limits cost {price:.2f} of {without.gain.mean:.2f} nats", flush=True)


def targets() -> None:
    for name, system, target in (
        ("double_link", nb.systems.load("double_link"), "mass_2"),
        ("Joint", example("Joint"), "dry"),
        ("Motor", example("Motor"), "time_constant"),
    ):
        own, for_all = designed(f"{name}_{target}", system, target=target), designed(name, system)
        other = nb.certificate(jax.random.key(1), system, for_all.policy, target=target)
        print(f"{name}, about {target}: optimised for it {own.gain}, for all {other}", flush=True)


def longer() -> None:
    """Three times the search: whether there is more to be found."""
    for name in PUBLISHED:
        plan = designed(f"{name}_longer", nb.systems.load(name), 5, seconds=60)
        print(line(f"{name}_longer", plan, 5), flush=True)


if __name__ == "__main__":
    kinds = {"paper": paper, "examples": examples, "limits": limits, "targets": targets, "longer": longer}
    for asked in sys.argv[1:] or kinds:
        kinds[asked]()
