"""What the cells say, beside the published numbers: rows of numbers, before anything is drawn or written."""

import math
from statistics import mean, stdev
from typing import NamedTuple

import numpy as np

from nestbed import systems
from nestbed.runs.fingerprint import same
from nestbed.runs.run import Log
from nestbed.training.score_climbing import ScoreClimbingConfig
from paper import published
from paper.reproduce import Done
from paper.studies import BASELINES, FULL, OTHERS, PUBLISHED, SYSTEMS

PAPER_SEEDS = 25
ROUNDING = 0.01 / math.sqrt(12.0)
"""Standard error of a published number that was rounded to two digits."""
STANDS_FOR = {"myopic_no_slew": "myopic"}
"""Policies that are compared with a number of the paper under another name."""


class Row(NamedTuple):
    """One policy's estimate in one metric, in nats, beside the paper's."""

    system: str
    policy: str
    metric: str
    policies: int  # trained policies that the mean is over; 0: nothing was trained
    mean: float
    sd: float  # over seeds of an estimate, or over trained policies
    standard_error: float
    values: int  # that the standard error is over: records, or trained policies
    lowest: float  # of the trained policies
    highest: float
    paper_mean: float | None
    paper_sd: float | None
    difference: float | None  # in combined standard errors
    difference_trained: float | None  # the same, with the paper's spread between trainings as the error of its one
    seconds: float


def estimates(done: list[Done]) -> list[Row]:
    """Return a row for every policy and metric, in the order of the paper's tables."""
    rows = []
    for system in dict.fromkeys(each.cell.system for each in done):
        for policy in PUBLISHED + OTHERS:
            found = [d for d in done if (d.cell.kind, d.cell.system, d.cell.policy) == ("estimate", system, policy)]
            rows += [_row(system, policy, metric, found) for metric in ("eig", "spce", "snmc") if found]
    return rows


def _row(system: str, policy: str, metric: str, found: list[Done]) -> Row:
    means = [each.result[metric]["mean"] for each in found]
    sd, error = (found[0].result[metric][name] for name in ("sd", "standard_error"))
    if len(found) > 1:
        sd = stdev(means)
        error = sd / math.sqrt(len(means))
    theirs = published.policy_table(metric).get((system, STANDS_FOR.get(policy, policy)))
    difference = trained = None
    if theirs is not None and _comparable(found[0], metric):
        combined = math.hypot(error, theirs[1] / math.sqrt(PAPER_SEEDS), ROUNDING)
        difference = (mean(means) - theirs[0]) / combined
        spread = training_spread(system, policy)
        if spread is not None and metric == "eig":
            own = spread if len(found) == 1 else 0.0  # a single policy of ours is a draw as well
            trained = (mean(means) - theirs[0]) / math.hypot(combined, spread, own)
    return Row(
        system,
        policy,
        metric,
        policies=0 if found[0].cell.seed is None else len(found),
        mean=mean(means),
        sd=sd,
        standard_error=error,
        values=len(found) if len(found) > 1 else _records(found[0]),
        lowest=min(means),
        highest=max(means),
        paper_mean=None if theirs is None else theirs[0],
        paper_sd=None if theirs is None else theirs[1],
        difference=difference,
        difference_trained=trained,
        seconds=sum(each.seconds for each in found),
    )


def _records(estimate: Done) -> int:
    given = estimate.cell.settings["given"]
    return int(given["seeds"] * given["trajectories"])


def _comparable(estimate: Done, metric: str) -> bool:
    """Return whether an estimate was made with the paper's settings: a quick one is not compared."""
    cell = estimate.cell
    as_many = metric == "eig" or cell.settings["given"]["contrastive"] == FULL.contrastive
    full = cell.seed is None or cell.settings["config"] == FULL.config(cell.system, cell.policy).plain()
    return as_many and full


def training_spread(system: str, policy: str) -> float | None:
    """Return the sd of the paper's 25 trainings after the last iteration: what one published policy is a draw of."""
    beliefs = {"io_smc2": "ibis", "io_smc2_exact": "exact"}
    curve = published.training_curve(system, beliefs[policy]) if policy in beliefs else None
    return None if curve is None else float(curve[-1, 2])


def learning_curve(run: Log) -> np.ndarray | None:
    """Return the paper's learning curve, if it was made with this run's system and settings."""
    if not isinstance(run.config, ScoreClimbingConfig):
        return None
    name, belief = run.about["system"]["name"], run.config.belief
    if name not in SYSTEMS or not same(run.about["system"], systems.load(name)):
        return None
    theirs = ScoreClimbingConfig(belief=belief, iterations=run.config.iterations).resolve(systems.load(name))
    return published.training_curve(name, belief) if theirs == run.config else None


class Verdict(NamedTuple):
    """How many of the numbers that should agree do, and which trained policies fall short of the paper's."""

    cells: int
    beyond_two: list[Row]
    beyond_three: list[Row]
    trained: int
    below: list[Row]  # by more than three combined standard errors


def verdict(rows: list[Row]) -> Verdict:
    """Judge the policies that involve no training, which should agree, and IO-SMC², in both published metrics."""
    judged = [row for row in rows if row.policy in BASELINES and row.difference is not None]
    off = {limit: [row for row in judged if abs(row.difference or 0.0) > limit] for limit in (2, 3)}
    trained = [row for row in rows if row.policy.startswith("io_smc2") and row.difference is not None]
    return Verdict(len(judged), off[2], off[3], len(trained), [row for row in trained if (row.difference or 0.0) < -3])


class Gain(NamedTuple):
    """Information gained on the linear pendulum against experiments done, in closed form."""

    policy: str
    policies: int
    mean: np.ndarray  # after 1, 2, … experiments
    sd: np.ndarray  # over realisations
    paper: np.ndarray | None  # rows of (experiments, mean, sd)


def gains(done: list[Done]) -> list[Gain]:
    """Return the curves of the paper's Figure 1; trained policies are averaged."""
    found = []
    for policy in ("random", "prbs", "io_smc2", "io_smc2_exact"):
        own = [d for d in done if (d.cell.kind, d.cell.policy) == ("gain", policy)]
        if own:
            count = 0 if own[0].cell.seed is None else len(own)
            means, sds = (np.array([each.result[name] for each in own]) for name in ("mean", "sd"))
            spread = np.sqrt((sds**2).mean(axis=0) + means.var(axis=0))  # of all realisations together
            found.append(Gain(policy, count, means.mean(axis=0), spread, published.information_gain(policy)))
    return found


class Particles(NamedTuple):
    """Estimates on the cart-pole with M parameter particles, or M contrastive draws, mean and sd over seeds."""

    particles: int
    eig: tuple[float, float]
    spce: tuple[float, float]
    limit: float  # of sPCE
    paper: dict[str, float] | None
    seconds: float


def particle_study(done: list[Done]) -> list[Particles]:
    """Return the estimates against the number of particles."""
    theirs = published.particle_sweep()
    rows = []
    for each in (d for d in done if d.cell.kind == "particles"):
        count = each.cell.settings["given"]["particles"]
        eig, spce = ((each.result[metric]["mean"], each.result[metric]["sd"]) for metric in ("eig", "spce"))
        rows.append(Particles(count, eig, spce, math.log1p(count), theirs.get(count), each.seconds))
    return rows
