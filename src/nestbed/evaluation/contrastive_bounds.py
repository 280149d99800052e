"""Contrastive bounds on the expected information gain: sPCE from below (`eq:spce-bound`), sNMC from above.

Both compare how likely a record is under the parameters θ₀ that made it with how likely it is under L draws from the
prior: sPCE counts θ₀ among the L + 1, so it cannot exceed log(L + 1); sNMC leaves it out.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nestbed import likelihood as likelihoods
from nestbed.belief import faults
from nestbed.evaluation import experiments
from nestbed.evaluation.estimates import Estimate
from nestbed.likelihood import history
from nestbed.likelihood.base import Record
from nestbed.model import checks
from nestbed.model.prior import Components
from nestbed.model.system import BaseSystem
from nestbed.numerics import blocks, interrupts, noise
from nestbed.numerics.errors import NestbedError, at_least_one
from nestbed.numerics.progress import Progress, Watch
from nestbed.policies.base import Policy, prepare

GROUP = 16
"""Records that are compared with the same contrastive draws; the draws then cost next to nothing."""
DRAWS_AT_A_TIME = 4096
"""Contrastive draws at a time: whatever L is, no more than GROUP × DRAWS_AT_A_TIME numbers are held."""
MOST_DRAWS = 10**12
"""More draws than this are taken for a slip."""


class Bounds(NamedTuple):
    """Both bounds from the same records and draws."""

    spce: Estimate
    snmc: Estimate


def spce(
    key: jax.Array,
    system: BaseSystem,
    policy: Policy,
    *,
    horizon: int | None = None,
    outer: int = 16,
    contrastive: int = 1_000_000,
    progress: Watch[Progress] | None = None,
) -> Estimate:
    """Estimate sPCE, a lower bound on the expected information gain that cannot exceed log(L + 1).

    Args:
        key: a jax key; the same key gives the same numbers.
        system: the model.
        policy: what chooses the designs.
        horizon: T, experiments per record; by default the system's.
        outer: how many records are simulated.
        contrastive: L, draws from the prior that each is compared with; memory does not grow with it, and records
            share them in groups of 16.
        progress: called with how many records are done, `.done` of `.total`, from any thread.

    Returns:
        The mean over records in nats, with its standard error and interval.
    """
    return bounds(key, system, policy, horizon=horizon, outer=outer, contrastive=contrastive, progress=progress).spce


def snmc(
    key: jax.Array,
    system: BaseSystem,
    policy: Policy,
    *,
    horizon: int | None = None,
    outer: int = 16,
    contrastive: int = 1_000_000,
    progress: Watch[Progress] | None = None,
) -> Estimate:
    """Estimate sNMC, an upper bound on the expected information gain in nats; the arguments are those of `spce`.

    With few draws it is dominated by them, and since records share theirs the standard error is then too small.
    """
    return bounds(key, system, policy, horizon=horizon, outer=outer, contrastive=contrastive, progress=progress).snmc


def bounds(
    key: jax.Array,
    system: BaseSystem,
    policy: Policy,
    *,
    horizon: int | None = None,
    outer: int = 16,
    contrastive: int = 1_000_000,
    progress: Watch[Progress] | None = None,
) -> Bounds:
    """Estimate both bounds from the same records and draws; the arguments are those of `spce`."""
    checks.instance(system)
    horizon = system.horizon if horizon is None else horizon
    at_least_one(horizon=horizon, outer=outer, contrastive=contrastive)
    if contrastive > MOST_DRAWS:
        raise NestbedError(
            f"contrastive is {contrastive}, but more than {MOST_DRAWS:,} draws would take days; give fewer."
        )
    ready = prepare(policy, system, horizon)
    groups = -(-outer // GROUP)
    size = -(-outer // groups)
    keys = jax.random.split(noise.as_key(key), (groups, 2))

    def group(index: int) -> tuple[np.ndarray, np.ndarray]:
        theta, record = experiments.simulated(keys[index, 0], system, ready, horizon, size)
        interrupts.check()
        own, others = _likelihoods(keys[index, 1], system, theta, record, jnp.asarray(contrastive))
        if not np.isfinite(own).all():
            experiments.blame(system, record, theta, int(np.argmin(np.isfinite(own))), horizon - 1)
        if np.isnan(others).any():
            _blame(keys[index, 1], system, record, contrastive)
        return np.asarray(own), np.asarray(others)

    found = blocks.run(outer, size, group, progress, "bounds")
    own, others = (np.concatenate(part)[:outer] for part in zip(*found, strict=True))
    including = np.logaddexp(own, others) - np.log1p(contrastive)
    return Bounds(Estimate(own - including), Estimate(own - others + np.log(contrastive)))


@eqx.filter_jit
def _likelihoods(
    key: jax.Array, system: BaseSystem, theta: Components, record: Record, contrastive: Int[Array, ""]
) -> tuple[Float[Array, " C"], Float[Array, " C"]]:
    """Return the log-likelihood of each record under its own parameters, and the log of its sum over the others."""
    table, steps = history.tabulate(record), jnp.asarray(record.designs.shape[1])
    _, own = history.log_likelihood(likelihoods.of(system), table, steps, tuple(value[:, None] for value in theta))
    own = own[:, 0]

    def chunk(i: Int[Array, ""], carry: tuple[Array, Array]) -> tuple[Array, Array]:
        top, total = carry
        each = _chunk(key, system, table, steps, i)
        each = jnp.where(jnp.arange(DRAWS_AT_A_TIME) < contrastive - i * DRAWS_AT_A_TIME, each, -jnp.inf)
        higher = jnp.maximum(top, jnp.max(each, axis=1))
        total = total * jnp.exp(top - higher) + jnp.sum(jnp.exp(each - higher[:, None]), axis=1)
        return higher, total

    chunks = (contrastive + DRAWS_AT_A_TIME - 1) // DRAWS_AT_A_TIME
    nothing = jnp.full(own.shape, jnp.finfo(float).min), jnp.zeros(own.shape)
    top, total = jax.lax.fori_loop(0, chunks, chunk, nothing)
    return own, top + jnp.log(total)


def _chunk(
    key: jax.Array, system: BaseSystem, table: history.Table, steps: Int[Array, ""], i: Int[Array, ""]
) -> Float[Array, "C K"]:
    """Return the log-likelihood of each record under one chunk of contrastive draws."""
    draws = system.parameters.draw(jax.random.fold_in(key, i), (1, DRAWS_AT_A_TIME))
    return history.log_likelihood(likelihoods.of(system), table, steps, draws)[1]


def _blame(key: jax.Array, system: BaseSystem, record: Record, contrastive: int) -> None:
    """Find the contrastive draw whose likelihood is no number, and raise."""
    steps = record.designs.shape[1]
    table = history.tabulate(record)
    chunk = eqx.filter_jit(_chunk)
    for i in range(-(-contrastive // DRAWS_AT_A_TIME)):
        interrupts.check()
        bad = np.argwhere(np.isnan(chunk(key, system, table, jnp.asarray(steps), jnp.asarray(i))))
        if len(bad):
            row, column = bad[0]
            draws = system.parameters.draw(jax.random.fold_in(key, i), (1, DRAWS_AT_A_TIME))
            theta = jnp.stack([value[0, column] for value in draws])
            faults.check(
                system, faults.Fault(jnp.array(steps - 1), record.observations[row], record.designs[row], theta)
            )
