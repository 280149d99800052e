"""Where the time of a sweep, of `nb.eig` and of a certificate goes, system by system: milliseconds once compiled.

A part is timed by itself, or as what a whole takes more with it than without.
"""

import time

import equinox as eqx
import jax
import jax.numpy as jnp

import nestbed as nb
from nestbed import likelihood as likelihoods
from nestbed.belief import proposal
from nestbed.belief.guided import BOLD, CHUNK, STEPS, Guided, _likeliest
from nestbed.belief.ibis import IBIS
from nestbed.evaluation import experiments, weighing
from nestbed.likelihood import history
from nestbed.policies.base import prepare

SYSTEMS = ("linear_pendulum", "nonlinear_pendulum", "cart_pole", "double_link")
RECORDS, DRAWS, REPEATS = 128, 64, 10


def milliseconds(work, *arguments):
    """Return the least milliseconds of some work, once compiled."""
    run = eqx.filter_jit(work)
    jax.block_until_ready(run(*arguments))
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(run(*arguments))
        best = min(best, time.perf_counter() - start)
    return 1e3 * best


def sweeps(system, policy):
    """Print a sweep's parts, by guided beliefs and by IBIS; renewing is what it takes more than without."""
    kinds = {
        "guided, M = 64": (Guided(system, 64), Guided(system, 64, threshold=0.0)),
        "IBIS, M = 1024": (IBIS(system, 1024, 3), IBIS(system, 1024, 3, threshold=0.0)),
    }
    for label, (whole, without) in kinds.items():
        eigs = [
            milliseconds_of(lambda key, belief=belief: nb.eig(key, system, policy, trajectories=RECORDS, belief=belief))
            for belief in (whole, without)
        ]
        kept = milliseconds_of(
            lambda key: nb.sweep(key, system, policy, trajectories=RECORDS, belief=whole, eta=0.0)  # noqa: B023
        )
        print(
            f"  nb.eig, {label:14s} {eigs[0]:7.1f}: renewing {eigs[0] - eigs[1]:6.1f}, outcomes, weights and gains "
            f"{eigs[1]:5.1f}; nb.sweep, which keeps every belief, {kept - eigs[0]:+.1f}",
            flush=True,
        )


def milliseconds_of(work):
    """Return the least milliseconds of some work that compiles itself."""
    work(jax.random.key(0))
    best = float("inf")
    for seed in range(REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(jax.tree.leaves(work(jax.random.key(seed))))
        best = min(best, time.perf_counter() - start)
    return 1e3 * best


def renewal(system, policy):
    """Print the parts of renewing a chunk of records half-way."""
    swept = nb.sweep(jax.random.key(0), system, policy, trajectories=RECORDS, eta=0.0)
    rows, t = RECORDS // CHUNK, jnp.asarray(system.horizon // 2)
    state, record = jax.tree.map(lambda leaf: leaf[:rows], (swept.belief, swept.record))
    belief, likelihood = Guided(system, 64), likelihoods.of(system)
    start = _likeliest(system, state)

    def fit(record, start):
        return proposal.fit(likelihood, record, t, start, steps=STEPS, bold=BOLD)

    fitted = eqx.filter_jit(fit)(record, start)
    numbers = milliseconds(lambda key: fitted.random_numbers(key, (start.shape[1], rows, 63), 0), jax.random.key(0))
    scored = milliseconds(
        lambda record, theta: history.log_likelihood(likelihood, history.tabulate(record), t, theta)[1],
        record,
        state.theta,
    )
    drawn = milliseconds(lambda key, state: belief._drawn(key, 0, fitted, state, state, record, t), key0, state)
    print(
        f"  renewing {rows} records at step {system.horizon // 2}: {milliseconds(fit, record, start) + drawn:.2f}: fit "
        f"{milliseconds(fit, record, start):.2f}, draws {drawn:.2f} (random numbers {numbers:.2f}, histories "
        f"{scored:.2f}, the rest weights)"
    )


key0 = jax.random.key(0)


def certificates(system, policy):
    """Print the parts of one block of a certificate."""
    ready, count = prepare(policy, system, system.horizon), jnp.asarray(system.horizon)
    likelihood, rows = likelihoods.of(system), 256
    theta, record = experiments.simulated(key0, system, ready, system.horizon, rows)
    own, free = weighing._own(system, theta), (True,) * len(system.parameter_names)
    simulated = milliseconds_of(lambda key: experiments.simulated(key, system, ready, system.horizon, rows))
    whole = milliseconds_of(lambda key: weighing.by_gaussian(key, system, theta, record, count, DRAWS, free))
    start = eqx.filter_jit(weighing._likeliest)(key0, system, own, record, count, free)
    starts = milliseconds(weighing._likeliest, key0, system, own, record, count, free)

    def fit(record, start):
        return proposal.fit(likelihood, record, count, start)

    fitted = eqx.filter_jit(fit)(record, start)
    fits = milliseconds(fit, record, start)
    drawn = milliseconds(weighing._draw, key0, system, fitted, own, record, count, DRAWS + weighing.PILOT, free)
    print(
        f"  certificate, {rows} records {simulated + whole:7.1f}: simulated {simulated:.1f}, starts {starts:.1f}, fits "
        f"{fits:.1f}, draws {drawn:.1f}, averages and controls {whole - starts - fits - drawn:.1f}",
        flush=True,
    )


if __name__ == "__main__":
    for name in SYSTEMS:
        system = nb.systems.load(name)
        policy = nb.policies.PRBS(system)
        print(f"{name}, {RECORDS} records")
        sweeps(system, policy)
        renewal(system, policy)
        certificates(system, policy)
