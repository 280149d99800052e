"""What adapting is worth: plan, trained policy, replanning and oracle beside IO-SMC² and iDAD, on twelve systems.

    python benchmarks/adapting.py plans trained oracle replan published best idad wide reactor page
    python benchmarks/adapting.py trained --systems Reactor Spring

Each number is kept in results/adapting as soon as it is known, and is not computed again; `page` writes what there is
as docs/results/adapting.md, and gathers it in adapting.json beside it, from where another machine goes on. What is
deleted there is computed anew. All of it takes a night on two cores; `trained` and `oracle` half an hour.
"""

import argparse
import json
import time
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import nestbed as nb
from nestbed import likelihood as likelihoods
from nestbed.evaluation import judging
from nestbed.information import search

PLACE = Path("results/adapting")
PAGE = Path("docs/results/adapting.md")
GATHERED = PAGE.with_suffix(".json")
PAPER = ("linear_pendulum", "nonlinear_pendulum", "cart_pole", "double_link")
EXAMPLES = ("Tank", "Motor", "Quadrotor", "Reactor", "Epidemic", "Drug", "Spring", "Joint")
RECORDS, REPLANNED = 2048, 128
"""Records of certificates, and of those of replanning, where every record takes T searches."""
SLOW = ("Joint",)
"""Where one plan takes so long that rigs are simulated 128 at a time, not 256 of which half are left out."""
TIMES = 3.0
"""How much wider priors are in `wide`."""


def load(name: str) -> nb.System:
    return nb.systems.load(name) if name in PAPER else nb.systems.load(f"examples/{name.lower()}.py:{name}")


def seeds(name: str) -> range:
    return range(3 if name in PAPER else 1)


def cell(kind: str, name: str, seed: int, work) -> dict:
    """Return the numbers of one cell: those that are kept, or what `work` finds."""
    if (known := _kept(kind, name, seed)) is not None:
        return known
    file, begun = PLACE / kind / f"{name}_{seed}.json", time.monotonic()
    found = {**work(), "wall": round(time.monotonic() - begun)}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(_rounded(found)))
    print(f"{kind} {name} {seed}: {file.read_text()}", flush=True)
    return _rounded(found)


def _rounded(found):
    """Return the numbers as they are kept: to a ten-thousandth."""
    if isinstance(found, dict):
        return {name: _rounded(value) for name, value in found.items()}
    return round(found, 4) if isinstance(found, float) else found


def told(certificate: nb.Certificate) -> dict:
    return {"mean": certificate.mean, "low": certificate.interval.low, "high": certificate.interval.high}


def run_of(name: str, seed: int, system: nb.System, kind: str = "runs") -> nb.Run:
    """Return the default training; the folder keeps it."""
    return nb.train(jax.random.key(seed), system, out=PLACE / kind / f"{name}_{seed}", resume=True)


def decision(system: nb.System, policy) -> float:
    """Return the milliseconds that one design takes, compiled."""
    step = jax.jit(policy.step)
    y, u = system.sample_start(jax.random.key(0), 1)[0], jax.numpy.array(system.rest_design)
    carry = policy.init()
    jax.block_until_ready(step(jax.random.key(0), carry, y, u))
    begun = time.perf_counter()
    for _ in range(20):
        jax.block_until_ready(step(jax.random.key(0), carry, y, u))
    return 1e3 * (time.perf_counter() - begun) / 20


def plan_of(name: str, seed: int, system: nb.System) -> np.ndarray:
    """Return the inputs that the default training has put feedback on where they are kept, or as good ones."""
    known = _kept("plans", name, seed)
    if known is not None:
        return np.array(known["inputs"])
    return nb.design(jax.random.key(seed), system, rounds=search.afforded(system, system.horizon, 40, 5)).inputs


def planned(run: nb.Run) -> np.ndarray:
    designs = run.system.designs
    return np.asarray(designs.clip(designs.scale(np.asarray(run.state.plan))))


def plans(name: str, seed: int) -> dict:
    """Keep the plans, so that what is measured beside them needs no training."""
    return {"inputs": [[float(f"{value:.6g}") for value in row] for row in planned(run_of(name, seed, load(name)))]}


def trained(name: str, seed: int) -> dict:
    system = load(name)
    run = run_of(name, seed, system)
    found = {each.policy: told(each.certificate) for each in run.comparison}
    more = run.comparison.difference("learned", "plan")
    return {
        "policies": found,
        "winner": run.winner,
        "adapting": told(more),
        "training": sum(row["seconds"] for row in run.metrics),
        "decision": decision(system, run.policy),
    }


def replan(name: str, seed: int) -> dict:
    system = load(name)
    plan = nb.policies.Replay(system, plan_of(name, seed, system))
    policies = {"plan": plan, "replan": nb.policies.Replan(system, plan=plan)}
    fewer = name in SLOW  # no more rigs are simulated than are judged
    with mock.patch.object(judging, "TOGETHER", REPLANNED if fewer else judging.TOGETHER):
        found = nb.compare(jax.random.key(99), system, policies, records=REPLANNED)
    return {"replan": told(found.difference("replan", "plan")), "decision": decision(system, policies["replan"])}


def oracle(name: str, seed: int) -> dict:
    system = load(name)
    found = nb.oracle(jax.random.key(seed), system, plan_of(name, seed, system))
    return {"mean": found.mean, "low": found.interval.low, "high": found.interval.high}


def _method(name: str, seed: int, config, start=None) -> dict:
    system = load(name)
    run = nb.train(jax.random.key(seed), system, config, start=start)
    found = {
        kind: told(nb.certificate(jax.random.key(99), system, policy, records=RECORDS))
        for kind, policy in (("mean", run.policy.mean()), ("sampled", run.policy))
    }
    return {**found, "training": sum(row["seconds"] for row in run.metrics)}


def published(name: str, seed: int) -> dict:
    return _method(name, seed, nb.ScoreClimbingConfig(belief="ibis"))


def best(name: str, seed: int) -> dict:
    """IO-SMC² with guided beliefs, from the plan on, four times as many iterations."""
    system = load(name)
    config = nb.ScoreClimbingConfig(iterations=4 * system.defaults.iterations)
    return _method(name, seed, config, plan_of(name, seed, system))


def idad(name: str, seed: int) -> dict:
    return _method(name, seed, nb.IDADConfig())


def widened(system: nb.System) -> nb.System:
    """Return the system with priors three times as wide, in their unconstrained coordinates."""
    prior = {}
    for name, known in system.prior.items():
        base = getattr(known, "base_dist", known)
        wide = dist.Normal(base.loc, TIMES * base.scale)
        prior[name] = dist.LogNormal(wide.loc, wide.scale) if isinstance(known, dist.LogNormal) else wide
    return system.replace(prior=prior)


def wide(name: str, seed: int) -> dict:
    system = load(name)
    if not all(isinstance(known, dist.LogNormal | dist.Normal) for known in system.prior.values()):
        return {"skipped": "its prior is neither normal nor log-normal"}
    system = widened(system)
    run = run_of(name, seed, system, "wide_runs")
    found = {each.policy: told(each.certificate) for each in run.comparison}
    left = nb.oracle(jax.random.key(seed), system, planned(run))
    more = told(run.comparison.difference("learned", "plan"))
    return {"policies": found, "winner": run.winner, "adapting": more, "oracle": left.mean}


RIGS, STEPS, TIGHTENED, GRACE = 64, 100, 50, 5
"""Rigs, samples of a minute each, when the limit is tightened from 8 K to 6 K, and samples to get below it."""


def reactor() -> dict:
    """Replanning on reactors whose limit is tightened half-way: how often it is kept, and how long decisions take."""
    system = nb.systems.load("examples/reactor.py:LimitedReactor").replace(defaults=nb.Defaults(horizon=STEPS))
    plan = nb.design(jax.random.key(0), system, horizon=STEPS, rounds=20)
    policies = [nb.policies.Replan(system, plan=plan, rounds=4)]
    policies.append(policies[0].limited({"temperature": (None, 6.0)}))
    likelihood = likelihoods.of(system)
    theta = system.parameters.draw(jax.random.key(1), (RIGS,))
    steps = [jax.jit(jax.vmap(policy.step, in_axes=(None, 0, 0, 0))) for policy in policies]
    sample = jax.jit(lambda e, x, u: jnp.stack(likelihood.sample(tuple(e.T), tuple(x.T), tuple(u.T), theta), axis=-1))
    y, u = system.sample_start(jax.random.key(2), RIGS), jnp.tile(jnp.array(system.rest_design), (RIGS, 1))
    carry = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (RIGS, *jnp.shape(leaf))), policies[0].init())
    warm = []
    for t in range(STEPS):
        step = steps[int(t >= TIGHTENED)]
        carry, u = step(jax.random.key(3), carry, y, u)
        y = sample(jax.random.normal(jax.random.fold_in(jax.random.key(4), t), y.shape), y, u)
        warm.append(np.asarray(y[:, 1]))
    hot = np.array(warm)
    alone = [decision(system, policy) for policy in policies]
    return {
        "broken_before": float((hot[:TIGHTENED] > 8.0).any(axis=0).mean()),
        "broken_after": float((hot[TIGHTENED + GRACE :] > 6.0).any(axis=0).mean()),
        "hottest_before": float(hot[:TIGHTENED].max()),
        "hottest_after": float(hot[TIGHTENED + GRACE :].max()),
        "decision_ms": alone,
    }


KINDS = {
    "plans": plans,
    "trained": trained,
    "oracle": oracle,
    "replan": replan,
    "published": published,
    "best": best,
    "idad": idad,
    "wide": wide,
}


APART = ("reactor", "page")


def page() -> None:
    """Write what is known as one page."""
    gather()
    lines = [
        "# What adapting is worth",
        "",
        "`python benchmarks/adapting.py`: certified gains in nats with their 95 % intervals; seconds of training and",
        "milliseconds of one decision on two cores. Differences are from the plan, on the same rigs. The oracle's",
        "plans know the parameters and not the noise, on 32 rigs and by a search: feedback answers to noise too and",
        "may come above it. First seeds were trained with nothing compiled before; seconds of other methods and the",
        "milliseconds of replanning are from a machine in use. Where a training was done again with the same key, the",
        "gains are of the later run and the seconds of the earlier, quiet one. Where what was trained did not win, the",
        "plan is handed out. – is not computed yet.",
        "",
        "| system | seed | plan | trained | adapting | oracle | replanning | won | training | decisions |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in (*PAPER, *EXAMPLES):
        for seed in seeds(name):
            own, left, anew = (_kept(kind, name, seed) for kind in ("trained", "oracle", "replan"))
            if own is None:
                continue
            again = "–" if anew is None else f"{_interval(anew['replan'])}, {anew['decision']:.1f} ms"
            gains = " | ".join(f"{own['policies'][part]['mean']:.3f}" for part in ("plan", "learned"))
            known = "–" if left is None else _interval(left)
            spent = f"{own['training']:.0f} s | {own['decision']:.2f} ms"
            worth = _interval(own["adapting"])
            lines.append(f"| {name} | {seed} | {gains} | {worth} | {known} | {again} | {own['winner']} | {spent} |")
    lines += ["", "Other methods (mean policy, and with its noise):", ""]
    lines.append("| system | seed | method | mean | sampled | s |")
    lines.append("|---|---|---|---|---|---|")
    names = {"published": "IO-SMC² as published", "best": "IO-SMC² at its best", "idad": "iDAD"}
    for name in (*PAPER, *EXAMPLES):
        for seed in seeds(name):
            for kind, title in names.items():
                if (found := _kept(kind, name, seed)) is not None:
                    both = " | ".join(f"{found[part]['mean']:.3f}" for part in ("mean", "sampled"))
                    lines.append(f"| {name} | {seed} | {title} | {both} | {found['training']:.0f} |")
    lines += ["", f"Priors {TIMES:g} times as wide:", "", "| system | plan | trained | adapting | oracle | won |"]
    lines.append("|---|---|---|---|---|---|")
    for name in (*PAPER, *EXAMPLES):
        if (found := _kept("wide", name, 0)) is not None and "policies" in found:
            gains = " | ".join(f"{found['policies'][part]['mean']:.3f}" for part in ("plan", "learned"))
            more = f"{_interval(found['adapting'])} | {found['oracle']:+.3f} | {found['winner']}"
            lines.append(f"| {name} | {gains} | {more} |")
    if (found := _kept("reactor", "LimitedReactor", 0)) is not None:
        lines += [
            "",
            f"Replanning {RIGS} reactors over {STEPS} samples, the limit tightened from 8 K to 6 K after {TIGHTENED}: "
            f"broken in {100 * found['broken_before']:.1f} % of runs before and {100 * found['broken_after']:.1f} % "
            f"after (from {GRACE} samples on), hottest {found['hottest_before']:.2f} K and "
            f"{found['hottest_after']:.2f} K; a decision takes {found['decision_ms'][0]:.0f} ms.",
        ]
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text("\n".join([*lines, ""]))
    print(PAGE)


def _kept(kind: str, name: str, seed: int) -> dict | None:
    file = PLACE / kind / f"{name}_{seed}.json"
    return json.loads(file.read_text()) if file.exists() else _gathered().get(kind, {}).get(f"{name}_{seed}")


def _gathered() -> dict:
    return json.loads(GATHERED.read_text()) if GATHERED.exists() else {}


def gather() -> None:
    """Put what this machine found beside the page."""
    every = _gathered()
    for kind in (*KINDS, "reactor"):
        here = {file.stem: json.loads(file.read_text()) for file in sorted((PLACE / kind).glob("*.json"))}
        if here or kind in every:
            every[kind] = dict(sorted({**every.get(kind, {}), **here}.items()))
    lines = [
        f'"{kind}": {{\n' + ",\n".join(f'"{k}": {json.dumps(v)}' for k, v in cells.items()) + "\n}"
        for kind, cells in every.items()
    ]
    GATHERED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _interval(found: dict) -> str:
    return f"{found['mean']:+.3f} ({found['low']:+.3f} to {found['high']:+.3f})"


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=[*KINDS, *APART], choices=[*KINDS, *APART])
    parser.add_argument("--systems", nargs="*", default=[*PAPER, *EXAMPLES])
    parser.add_argument("--seeds", type=int, default=3, help="seeds of the paper's systems; the others have one")
    return parser.parse_args()


if __name__ == "__main__":
    wanted = asked()
    for asked_for in wanted.kinds:
        if asked_for == "page":
            page()
            continue
        if asked_for == "reactor":
            cell("reactor", "LimitedReactor", 0, reactor)
            continue
        for system_name in wanted.systems:
            for k in seeds(system_name)[: wanted.seeds]:
                cell(asked_for, system_name, k, lambda n=system_name, k=k: KINDS[asked_for](n, k))  # noqa: B023
                jax.clear_caches()
