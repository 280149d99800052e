"""Plans made anew at every step: what is left of the horizon is searched again with what was learned so far."""

import math
import time
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt32

from nestbed import likelihood as likelihoods
from nestbed.belief import proposal
from nestbed.information import objective, search
from nestbed.information.objective import Situation
from nestbed.likelihood import sensitivity
from nestbed.likelihood.base import Likelihood, Record
from nestbed.likelihood.sensitivity import Past
from nestbed.model import checks, limits
from nestbed.model.system import BaseSystem
from nestbed.model.target import Target, Wanted, targeted
from nestbed.numerics import noise
from nestbed.numerics.errors import NestbedError, at_least_one, outside
from nestbed.policies.adaptive import stir
from nestbed.policies.base import Hashable, bound
from nestbed.policies.signals import Chirp, Constant, MaximumLength, inputs_of

FIT_STEPS = 8
"""Gauss–Newton steps of a fit, from where the last one ended."""
FIRST_ROUNDS, FIRST = 12, 16
"""Rounds of the search for the first plan, where none is given, and its sequences."""
MARGIN = 3.0
"""Standard deviations that plans keep from limits."""
MOST = 100_000
"""Rounds where only time limits them."""
JUDGES = 64
"""Rigs that tell whether a plan leads beyond limits."""
HOLDS = (1, 2, 4, 8)


class Memory(NamedTuple):
    """What was seen and done, where the fit to it ended, and what is planned from here on."""

    done: Int[Array, ""]
    word: UInt32[Array, ""]  # stirred from all that was seen: what random numbers are drawn from
    record: Record  # of one rig
    location: Float[Array, "1 d"]  # whitened
    plan: Float[Array, "T du"]  # in the unit box; the first row is the next design
    changes: Int[Array, ""]  # of the limits, that the plan knows of


class Replan(Hashable):
    """At each step, or every few, search the remaining horizon again under a Gaussian fitted to the record so far.

    The search begins from what is left of the plan before and takes something else only where that is expected to gain
    more, on rigs drawn from the fit. It needs no training; a decision takes from milliseconds on. Of a posterior with
    several modes it sees one. Beyond its horizon it repeats its last design.
    """

    first: Float[Array, "T du"]  # the plan to begin with, in the unit box
    words: UInt32[Array, " 2"]  # of the key: keys themselves cannot be pickled
    margin: Float[Array, ""]
    changes: Int[Array, ""]  # of the limits so far: after one, it is searched at once
    longest: int = eqx.field(static=True)  # experiments in all
    every: int = eqx.field(static=True)
    particles: int = eqx.field(static=True)
    candidates: int = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    rounds: int = eqx.field(static=True)
    seconds: float | None = eqx.field(static=True)
    target: Target | None = eqx.field(static=True)
    system: BaseSystem = eqx.field(static=True)

    def __init__(
        self,
        system: BaseSystem,
        *,
        horizon: int | None = None,
        every: int = 1,
        particles: int = 64,
        candidates: int = 4,
        steps: int = 10,
        rounds: int = 1,
        seconds: float | None = None,
        plan: Any = None,
        target: Wanted | tuple[Wanted, ...] | Target | None = None,
        key: jax.Array | None = None,
    ):
        """Make the policy.

        Args:
            system: the model; its limits and slew are kept.
            horizon: T, experiments in all; by default the plan's, or the system's.
            every: experiments between one search and the next.
            particles: rigs, drawn from what is known, that plans are judged on.
            candidates: sequences that are moved uphill in a round: the plan, and children of it.
            steps: of Adam that each of them takes in a round.
            rounds: of a search; the same number gives the same designs.
            seconds: that a search may take, in place of rounds.
            plan: inputs to begin with, one row per experiment, or a signal or an `nb.Plan`; by default searched for.
            target: parameters of interest, as `nb.design` takes it; all parameters by default.
            key: of its random numbers.
        """
        checks.instance(system)
        at_least_one(every=every, particles=particles, candidates=candidates, steps=steps, rounds=rounds)
        if seconds is not None and (isinstance(seconds, bool) or not 0.0 < seconds < math.inf):
            raise NestbedError(f"seconds is {seconds!r}, but it must be a positive number, such as 0.5, or None.")
        own = noise.as_key(jax.random.key(0) if key is None else key)
        self.system, self.target = system, targeted(system, target)
        given = None if plan is None else inputs_of(system, plan, horizon)
        self.longest = len(given) if given is not None else system.horizon if horizon is None else horizon
        at_least_one(horizon=self.longest)
        self.every, self.particles, self.candidates, self.steps = every, particles, candidates, steps
        self.rounds, self.seconds = (rounds, None) if seconds is None else (MOST, float(seconds))
        self.words, self.margin = jax.random.key_data(own), jnp.asarray(MARGIN if system.limits else 0.0)
        unit = _searched(own, system, self.longest, self.target) if given is None else system.designs.unscale(given)
        self.first, self.changes = jnp.asarray(unit), jnp.zeros((), jnp.int32)
        if given is not None and system.limits:
            _tell_of_limits(own, system, self.first)

    def limited(self, changes: Mapping[str, Any]) -> "Replan":
        """Return the policy under other limits; it goes on from what it remembers, in the middle of a record too."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the plan to begin with is behind it
            tighter = Replan(
                self.system.replace(limits={**self.system.limits, **changes}),
                every=self.every,
                particles=self.particles,
                candidates=self.candidates,
                steps=self.steps,
                rounds=self.rounds,
                seconds=self.seconds,
                plan=self.system.designs.clip(self.system.designs.scale(np.asarray(self.first))),
                target=self.target,
                key=self.key,
            )
        return eqx.tree_at(lambda policy: policy.changes, tighter, self.changes + 1)

    @property
    def key(self) -> jax.Array:
        """The key that its random numbers are drawn from."""
        return jax.random.wrap_key_data(self.words, impl="threefry2x32")

    def init(self) -> Memory:
        """Return nothing seen, and the plan to begin with."""
        system = self.system
        observations = jnp.zeros((1, self.longest + 1, len(system.observation_names)))
        record = Record(observations, jnp.zeros((1, self.longest, len(system.design_names))))
        nothing = jnp.zeros((1, len(system.parameter_names)))
        return Memory(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.uint32), record, nothing, self.first, self.changes)

    @bound
    def step(
        self, key: jax.Array, carry: Memory, y: Float[Array, " dy"], u_previous: Float[Array, " du"]
    ) -> tuple[Memory, Float[Array, " du"]]:
        """Take in what was seen, plan again, and return the first design of the plan; compiled when first called."""
        return _step(self, carry, jnp.asarray(y, float), jnp.asarray(u_previous, float))

    def planned(self, carry: Memory) -> Float[np.ndarray, "T du"]:
        """Return the designs that it means to apply from here on, unless what will be seen changes them."""
        return np.asarray(self.system.designs.clip(self.system.designs.scale(np.asarray(carry.plan))))

    def decide(
        self, carry: Memory, y: Float[Array, " dy"], u_previous: Float[Array, " du"]
    ) -> tuple[Memory, Float[Array, " du"]]:
        """Do the same as part of a program."""
        word = stir(carry.word, y)
        own_key = jax.random.fold_in(self.key, word)
        record = self._recorded(carry, y, u_previous)
        situation, location = self._situation(own_key, record, carry, y, u_previous)
        due = (carry.done % self.every == 0) | (carry.changes != self.changes)
        plan = jax.lax.cond(due, self._again, lambda key, plan, situation: plan, own_key, carry.plan, situation)
        plan = plan[jnp.minimum(jnp.arange(self.longest), jnp.maximum(situation.left - 1, 0))]  # no row beyond the end
        wanted = self.system.designs.scale(plan[0])
        u = self.system.designs.clip(limits.slewed(self.system, wanted, u_previous))
        rest = jnp.concatenate([plan[1:], plan[-1:]])
        return Memory(carry.done + 1, word, record, location, rest, self.changes), u

    def _recorded(self, carry: Memory, y: Float[Array, " dy"], u_previous: Float[Array, " du"]) -> Record:
        observations, designs = carry.record
        last = jnp.maximum(carry.done - 1, 0)
        done = jnp.where(carry.done > 0, u_previous, designs[0, 0])
        return Record(observations.at[0, carry.done].set(y), designs.at[0, last].set(done))

    def _situation(
        self, key: jax.Array, record: Record, carry: Memory, y: Float[Array, " dy"], u_previous: Float[Array, " du"]
    ) -> tuple[Situation, Float[Array, "1 d"]]:
        """Return what is known by now: a Gaussian around the fit to the record."""
        likelihood = likelihoods.of(self.system)
        fitted = proposal.fit(likelihood, record, carry.done, carry.location, steps=FIT_STEPS)
        normals = noise.normals(key, (self.particles, fitted.location.shape[1]))
        draws = fitted.location[0] + normals @ fitted.spread[0].T
        precision = fitted.factor[0] @ fitted.factor[0].T
        left = jnp.asarray(self.longest, jnp.int32) - carry.done
        past = None if likelihood.markov else self._past(likelihood, record, carry.done, draws)
        return Situation(tuple(draws.T), precision, u_previous, left, y, past), fitted.location

    def _past(self, likelihood: Likelihood, record: Record, done: Int[Array, ""], draws: Float[Array, "M d"]) -> Past:
        """Return what a filter of the hidden states says by now, for each of the parameters drawn."""
        rows = Record(*(jnp.broadcast_to(part, (len(draws), *part.shape[1:])) for part in record))
        theta, slopes = proposal.parameters(self.system.parameters, tuple(value[:, None] for value in draws.T))
        return sensitivity.past(likelihood, rows, done, theta, slopes)

    def _again(self, key: jax.Array, plan: Float[Array, "T du"], situation: Situation) -> Float[Array, "T du"]:
        """Return the best of the plan and of what some rounds of search make of it."""
        begun = _clock(situation.left) if self.seconds is not None else jnp.zeros(())

        def go_on(so_far: Any) -> Any:
            turn, _ = so_far
            if self.seconds is None:
                return turn < self.rounds
            return (turn == 0) | (_clock(turn) - begun < self.seconds)

        def turn(so_far: Any) -> Any:
            count, plan = so_far
            return count + 1, self._round(jax.random.fold_in(key, count), plan, situation)

        return jax.lax.while_loop(go_on, turn, (jnp.zeros((), jnp.int32), plan))[1]

    def _round(self, key: jax.Array, plan: Float[Array, "T du"], situation: Situation) -> Float[Array, "T du"]:
        child_key, climb_key, judge_key = jax.random.split(key, 3)
        system, target = self.system, self.target
        children = search.mutate(child_key, jnp.broadcast_to(plan, (self.candidates - 1, *plan.shape)), situation.left)
        sequences = jnp.concatenate([plan[None], children])
        rate, steps = jnp.asarray(search.LAST_RATE * 2.0), jnp.asarray(self.steps)
        climbed = search.steps_uphill(climb_key, system, sequences, target, rate, steps, self.margin, situation).unit
        every = jnp.concatenate([plan[None], climbed])
        rigs = objective.draw(judge_key, system, plan.shape[0], self.particles, situation)
        gains, fines, _ = objective.worth(system, rigs, every, target, self.margin, situation)
        scores = jnp.mean(gains, axis=1) - fines
        return every[jnp.argmax(jnp.where(jnp.isfinite(scores), scores, -jnp.inf))]


@eqx.filter_jit
def _step(
    policy: Replan, carry: Memory, y: Float[Array, " dy"], u_previous: Float[Array, " du"]
) -> tuple[Memory, Float[Array, " du"]]:
    return policy.decide(carry, y, u_previous)


def _clock(after: Int[Array, ""]) -> Float[Array, ""]:
    """Return the time, in seconds, when `after` is known."""
    shape = jax.ShapeDtypeStruct((), jnp.float64)
    return jax.pure_callback(lambda _: np.float64(time.monotonic()), shape, after, vmap_method="sequential")


BROKEN = 1e-3
"""Share of a limit's scale, on average over rigs, by which a plan goes beyond it where that is told."""


def _tell_of_limits(key: jax.Array, system: BaseSystem, unit: Float[Array, "T du"]) -> None:
    """Say so where a plan leads beyond limits on average: the first searches lead away from it."""
    rigs = objective.draw(key, system, unit.shape[0], JUDGES)
    found = objective.simulate(system, rigs, objective.applied(system, unit[None]))
    if float(objective.fine(system, found, JUDGES, jnp.zeros(()))[0]) > objective.FINE * BROKEN:
        warnings.warn(
            "the plan to begin with leads beyond the system's limits: searches lead away from it, but the first may "
            "not do so in one step; give a plan that keeps them, as nb.design finds it.",
            stacklevel=outside(),
        )


def _searched(key: jax.Array, system: BaseSystem, horizon: int, target: Target | None) -> Float[np.ndarray, "T du"]:
    """Return a plan to begin with, from signals of today and a few rounds of search."""
    signals = [
        *(Constant(system, level) for level in (-1.0, 0.0, 1.0)),
        Chirp(system, horizon=horizon),
        *(MaximumLength(system, hold, horizon=horizon) for hold in HOLDS if hold < horizon),
    ]
    known = np.stack([np.asarray(system.designs.unscale(signal.signal(horizon))) for signal in signals])
    sequences = np.clip(np.resize(known, (FIRST, *known.shape[1:])), -1.0, 1.0)
    margin = MARGIN if system.limits else 0.0
    return search.evolve(key, system, sequences, target, FIRST_ROUNDS, margin)[0]
