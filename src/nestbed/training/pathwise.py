"""Pathwise feedback: the best plan there is, and a network that changes it by what is seen.

The plan comes from the search of `nb.design`. The network on top of it climbs the expected Gauss–Newton gain by
gradients through simulator and policy, on new rigs at every step: first on a few plans of different kinds, then on the
one that came furthest. In the end plan, feedback with and without its noise and the baselines are certified on the same
rigs, and the simplest that nothing surely beats is handed out.
"""

import dataclasses
import time
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, UInt32

from nestbed.evaluation.certificate import Certificate, certificate
from nestbed.evaluation.comparison import Comparison, PolicyEstimate, compare
from nestbed.evaluation.violation import AIM, RECORDS, Violation, check_risk, violation
from nestbed.information import objective
from nestbed.information.smoothness import smooth
from nestbed.likelihood.simulation import simulate
from nestbed.model.system import BaseSystem
from nestbed.model.target import Target, targeted
from nestbed.numerics import blocks, interrupts
from nestbed.numerics.errors import NestbedError, at_least_one
from nestbed.numerics.progress import Progress, Watch
from nestbed.planning import design
from nestbed.planning.design import BESIDE, WIDEST, adapted
from nestbed.planning.plan import PLAN
from nestbed.policies import feedback
from nestbed.policies.base import Policy
from nestbed.policies.feedback import Feedback
from nestbed.policies.signals import Replay
from nestbed.training import gradient
from nestbed.training.config import Config, FeedbackConfig, option
from nestbed.training.gradient import GradientInfo
from nestbed.training.trainer import Metrics, Trainer, better

LEARNED, NOISY = "learned", "noisy"
COMPARED = (PLAN, LEARNED, NOISY, *BESIDE)
"""What is compared in the end."""
SIMPLER = (PLAN, LEARNED, NOISY)
"""What may be handed out, the simplest first; no signal surely beats the plan of a search."""
CERTIFIED = 1024
"""Records of that certificate."""
SCORED = 512
"""Rigs that plans with a little feedback are scored on, to choose one."""
QUIET, LAST_RATE = 0.05, 0.02
"""What noise and learning rate fall to, as shares of what they begin with."""
PLAN_RATE = 3.0
"""Step size of the plan, in that of the network."""
SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Shares of the feedback that are tried until limits are kept."""
GRADIENTS = ("auto", "pathwise", "score")
SCORE_NOISE = 0.15
"""Standard deviation of designs that score gradients need at least."""


@dataclasses.dataclass(frozen=True)
class PathwiseConfig(Config):
    """The designed plan with feedback, by gradients through the simulator. The horizon comes from `system.defaults`."""

    method: ClassVar[str] = "pathwise"
    compares: ClassVar[bool] = True

    iterations: int = option(16, "rounds of gradient steps and evaluation; all is compared in the last")
    learning_rate: float = option(2e-2, "step size of Adam, at the start; it falls to nothing")
    clip: float = option(5.0, "gradients longer than this are shortened to it; 0: never")
    rounds: int = option(40, "rounds of the search for the plan that feedback is put on")
    basins: int = option(3, "plans that feedback is tried on in the first iteration, before it is refined on one")
    steps: int = option(100, "gradient steps per iteration")
    batch: int = option(64, "B: simulated rigs per gradient step")
    noise: float = option(0.5, "standard deviation of the designs at the start, in units of half the box; it falls")
    gradient: str = option("auto", "pathwise, score (for drifts that jump) or auto: as the drift allows", GRADIENTS)
    records: int = option(256, "records of the certificate after each iteration")
    target: tuple[str, ...] = option((), "parameters, or methods (theta), of interest; all parameters if empty")
    risk: float = option(0.01, "probability with which any of the system's limits may be broken within the horizon")
    policy: FeedbackConfig = dataclasses.field(default_factory=FeedbackConfig)

    @property
    def sizes(self) -> FeedbackConfig:
        """The feedback."""
        return self.policy

    @property
    def judged(self) -> int:
        """As told."""
        return self.records

    def check(self) -> None:
        """Raise unless every value is there and possible."""
        super().check()
        counts = ("rounds", "basins", "steps", "batch", "records")
        at_least_one(**{name: getattr(self, name) for name in counts})
        if self.records < 2:
            raise NestbedError("records is 1, but an error needs at least 2.")
        if not 0.0 <= self.noise <= 1.0:
            raise NestbedError(f"noise is {self.noise!r}, but it must be from 0 to 1, in units of half the box.")
        check_risk(self.risk)

    @property
    def headline(self) -> str:
        """T, and what is spent."""
        return (
            f"plan and feedback, T = {self.horizon}, {self.rounds} rounds of search, {self.iterations * self.steps} "
            f"gradient steps × {self.batch} rigs"
        )

    @property
    def details(self) -> str:
        """The optimiser and the network."""
        return f"pathwise gradients, adam {self.learning_rate:g}, noise {self.noise:g}, {self.policy}"

    @property
    def remedies(self) -> str:
        """A smaller learning rate, and more steps."""
        return f"{super().remedies} or more steps (now {self.steps})"

    @property
    def extendable(self) -> bool:
        """Never: learning rate and noise fall towards the last iteration."""
        return False


class Verdict(NamedTuple):
    """The comparison, by policy in the order of `COMPARED`; of what is learned there is nothing before the end."""

    lower: Float[Array, "P R"]
    upper: Float[Array, "P R"]
    ess: Float[Array, "P R"]
    broken: Float[Array, " P"]  # how often limits are
    limit: Int[Array, " P"]  # which most often; −1: none
    winner: Int[Array, ""]  # by its number; −1: not yet known


class State(NamedTuple):
    """All that training carries from one iteration to the next."""

    iteration: Int[Array, ""]
    policy: Feedback  # without the noise it is trained with; in the end that which won
    optimiser: Any
    plans: Float[Array, "B T du"]  # that feedback is tried on, in the unit box, the best first
    margin: Float[Array, ""]  # standard deviations that are kept from limits
    smooth: Bool[Array, ""]  # whether gradients go through the simulator
    best: Feedback
    best_eig: Float[Array, ""]
    rigs: UInt32[Array, " 2"]  # words of the key of the rigs that all is compared on
    verdict: Verdict


class Pathwise(Trainer[PathwiseConfig]):
    """One training run's fixed parts: system, configuration and target."""

    def __init__(self, system: BaseSystem, config: PathwiseConfig):
        super().__init__(system, config)
        self.target = targeted(system, config.target or None)

    def begin(
        self, key: jax.Array, progress: Watch[Progress] | None = None, start: Float[np.ndarray, "T du"] | None = None
    ) -> tuple[State, Metrics]:
        """Return the plan, searched for or given, with feedback that still has to be learned."""
        c, begun = self.config, time.perf_counter()
        plan_key, smooth_key, policy_key = jax.random.split(key, 3)
        compared, found = self._planned(plan_key, progress) if start is None else self._given(plan_key, start)
        plans = jnp.asarray(self.system.designs.unscale(np.resize(found[: c.basins], (c.basins, *found.shape[1:]))))
        through = c.gradient == "pathwise" or (
            c.gradient == "auto" and smooth(smooth_key, self.system, plans[0], self.target)
        )
        if c.gradient == "auto" and not through:
            warnings.warn(
                f"the gain of {self.system.name} jumps where designs change a little (contacts, dead zones, rounding), "
                "so that gradients through the simulator mislead: score gradients are taken, which need more steps.",
                stacklevel=2,
            )
        policy = feedback.begin(policy_key, self.system, plans[0], c.policy.width)
        plan = next(each for each in compared if each.policy == PLAN)
        blank = self._start(policy, plans)
        state = blank._replace(
            smooth=jnp.array(bool(through)),
            best_eig=jnp.array(plan.mean),
            rigs=jax.random.key_data(design.keys(plan_key)[-1]),
            verdict=self._told(blank.verdict, compared),
        )
        estimated = {"eig": plan.mean, "eig_error": plan.standard_error}
        return state, {"iteration": 0, **estimated, "seconds": time.perf_counter() - begun}

    def _planned(self, key: jax.Array, progress: Watch[Progress] | None) -> tuple[Comparison, Any]:
        """Return what the best plan and the baselines gain, and the plan with others of other kinds."""
        c = self.config
        settings: Any = {"horizon": c.horizon, "target": self.target, "risk": c.risk, "rounds": c.rounds}
        plan = design.designed(key, self.system, progress=progress, **settings)
        assert plan.others is not None
        return plan.comparison, np.concatenate([plan.inputs[None], plan.others])

    def _given(self, key: jax.Array, start: Float[np.ndarray, "T du"]) -> tuple[Comparison, Any]:
        """Return what given inputs and the baselines gain, and the inputs."""
        c, certifying = self.config, design.keys(key)[-1]
        beside = design.baselines(certifying, design.Goal(self.system, c.horizon, self.target, c.risk)).comparison
        return Comparison([*self._compared(certifying, {PLAN: Replay(self.system, start)}), *beside]), start[None]

    def _compared(self, key: jax.Array, policies: Mapping[str, Policy]) -> Comparison:
        c = self.config
        return compare(key, self.system, policies, horizon=c.horizon, records=CERTIFIED, target=self.target)

    def iterate(self, key: jax.Array, state: State) -> tuple[State, Metrics]:
        """Do one iteration: of the first, the best of a few plans is kept; in the last, all is compared."""
        climb_key, choice_key, evaluation_key = jax.random.split(key, 3)
        clock = [time.perf_counter()]
        done = int(state.iteration)

        # Climb
        learner, optimiser, climbed = self._climbed(climb_key, choice_key, state)
        climbed.check()
        margin = self._margin(choice_key, state.margin, learner)
        clock.append(time.perf_counter())

        # Evaluate
        state = state._replace(iteration=state.iteration + 1, policy=learner, optimiser=optimiser, margin=margin)
        if done + 1 == self.config.iterations:
            state, estimated = self._judged(key, state)
        else:
            estimated = self._evaluated(evaluation_key, learner)
            best, best_eig = better(learner, estimated, state.best, state.best_eig)
            state = state._replace(best=best, best_eig=best_eig)
        clock.append(time.perf_counter())
        return state, {
            "iteration": done + 1,
            **estimated,
            "gain": float(climbed.objective),
            "noise": self._loud(done + 1, state.smooth),
            "gradient_norm": float(climbed.norm),
            "seconds": clock[-1] - clock[0],
            "seconds_gradient": clock[1] - clock[0],
            "seconds_evaluation": clock[2] - clock[1],
        }

    def template(self) -> State:
        """Return the shapes and types of a state, to read a saved one into."""
        c = self.config

        def blank() -> State:
            policy = c.policy.make(jax.random.key(0), self.system, c.horizon)
            return self._start(policy, jnp.zeros((c.basins, *policy.plan.shape)))

        return eqx.filter_eval_shape(blank)

    def comparison(self, state: State) -> tuple[Comparison, str] | None:
        """Return the certificates of the last iteration, and which policy won."""
        winner = int(state.verdict.winner)
        if winner < 0:
            return None
        if winner >= len(COMPARED):
            raise NestbedError("the run's comparison is damaged; restore the folder from a copy, or train again.")
        return self._comparison(state.verdict), COMPARED[winner]

    def _comparison(self, verdict: Verdict) -> Comparison:
        found = jax.tree.map(np.asarray, verdict)
        names, limits = None if self.target is None else self.target.names, self._limits
        estimates = []
        for i, name in enumerate(COMPARED):
            parts = found.lower[i], found.upper[i], found.ess[i]
            own = Certificate(*parts, DRAWS, self.config.horizon, names, origin=(0,))
            which = limits[found.limit[i]] if 0 <= found.limit[i] < len(limits) else ""
            broken = Violation(float(found.broken[i]), RECORDS, which) if limits else None
            estimates.append(PolicyEstimate(own.values, policy=name, certificate=own, violation=broken))
        return Comparison(estimates)

    def _start(self, policy: Feedback, plans: Float[Array, "B T du"]) -> State:
        optimiser = gradient.start(transformation(self.config), policy, learned(policy))
        size = len(COMPARED)
        rows = jnp.zeros((size, CERTIFIED))
        verdict = Verdict(rows, rows, rows, jnp.zeros(size), jnp.full(size, -1), jnp.array(-1))
        margin = jnp.array(WIDEST if self.system.limits else 0.0)
        rigs, nothing = jnp.zeros(2, jnp.uint32), jnp.zeros(())
        return State(jnp.array(0), policy, optimiser, plans, margin, jnp.array(True), policy, nothing, rigs, verdict)

    def _loud(self, iteration: int, smooth: Bool[Array, ""]) -> float:
        """Return the standard deviation of designs after some iterations."""
        return float(loudness(self.config, jnp.asarray(iteration / self.config.iterations), bool(smooth)))

    def _climbed(self, key: jax.Array, choice_key: jax.Array, state: State) -> tuple[Feedback, Any, GradientInfo]:
        """Return a policy after gradient steps; in the first iteration, the best of those on several plans."""
        c = self.config

        def on(policy: Feedback, optimiser: Any) -> tuple[Feedback, Any, GradientInfo]:
            share = jnp.asarray((float(state.iteration)) / c.iterations)
            numbers = share, state.margin
            return ascend(key, self.system, policy, optimiser, self.target, c, *numbers, smooth=bool(state.smooth))

        if int(state.iteration) > 0:
            return on(state.policy, state.optimiser)
        others = [feedback.begin(choice_key, self.system, plan, c.policy.width) for plan in state.plans[1:]]
        others = [policy for i, policy in enumerate(others, 1) if _is_new(state.plans, i)]
        tried = [on(state.policy, state.optimiser)]
        if not others:
            return tried[0]
        tried += blocks.run(len(others), 1, lambda i: on(others[i], state.optimiser))
        margin = state.margin
        scores = [float(score(choice_key, self.system, found[0], self.target, c, margin)) for found in tried]
        return tried[int(np.argmax(np.nan_to_num(scores, nan=-np.inf)))]

    def _margin(self, key: jax.Array, margin: Float[Array, ""], policy: Feedback) -> Float[Array, ""]:
        """Return how far to keep from limits, by how often they are broken."""
        if not self.system.limits:
            return margin
        found = violation(key, self.system, policy, horizon=self.config.horizon).probability
        return jnp.array(adapted(float(margin), found, AIM * self.config.risk))

    def _evaluated(self, key: jax.Array, policy: Feedback) -> Metrics:
        c = self.config
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is to be known is told of the last one
            found = certificate(key, self.system, policy, horizon=c.horizon, records=c.records, target=self.target)
        return {"eig": found.mean, "eig_error": found.standard_error}

    def _judged(self, key: jax.Array, state: State) -> tuple[State, Metrics]:
        """Compare what was learned with all that is simpler, on the same rigs, and hand out what won."""
        c, learner = self.config, state.policy
        share = self._share(key, learner)
        noisy = learner.with_noise(self._loud(c.iterations, state.smooth)).alone(share)
        plan = feedback.begin(key, self.system, state.plans[0], c.policy.width).alone()
        policies = {PLAN: plan, LEARNED: learner.alone(share), NOISY: noisy}
        interrupts.check()
        rigs = jax.random.wrap_key_data(state.rigs, impl="threefry2x32")
        compared = self._compared(rigs, {name: policies[name] for name in (LEARNED, NOISY)})
        found = self._comparison(self._told(state.verdict, compared))
        name = handed_out(found, c.risk)
        verdict = self._told(state.verdict, compared)._replace(winner=jnp.array(COMPARED.index(name)))
        handed = next(each for each in found if each.policy == name)
        state = state._replace(policy=policies[name], best=learner, best_eig=jnp.array(compared[0].mean))
        return state._replace(verdict=verdict), {"eig": handed.mean, "eig_error": handed.standard_error}

    def _share(self, key: jax.Array, policy: Feedback) -> float:
        """Return how much of the feedback keeps to the limits, as the plan without it does."""
        if not self.system.limits:
            return 1.0
        for share in SHARES:
            found = violation(key, self.system, policy.alone(share), horizon=self.config.horizon)
            if found.probability <= AIM * self.config.risk:
                return share
        return SHARES[-1]

    def _told(self, verdict: Verdict, found: Comparison) -> Verdict:
        """Return the comparison with what was found of some of its policies."""
        limits = self._limits
        for each in found:
            if each.policy in COMPARED and each.certificate is not None:
                i, own, broken = COMPARED.index(each.policy), each.certificate, each.violation
                verdict = verdict._replace(
                    lower=verdict.lower.at[i].set(own.lower_values),
                    upper=verdict.upper.at[i].set(own.upper_values),
                    ess=verdict.ess.at[i].set(own.ess),
                    broken=verdict.broken.at[i].set(0.0 if broken is None else broken.probability),
                    limit=verdict.limit.at[i].set(
                        -1 if broken is None or not broken.limit else limits.index(broken.limit)
                    ),
                )
        return verdict

    @property
    def _limits(self) -> list[str]:
        """What can be broken, by name."""
        return [*self.system.limits, *(f"the slew of {name}" for name in self.system.slew)]


DRAWS = 64
"""L of the certificates."""


def handed_out(comparison: Comparison, risk: float) -> str:
    """Return the simplest policy that none surely beats, of those that keep to the risk as well as the plan does."""
    named = {each.policy: each for each in comparison}
    own = named[PLAN].violation
    least = risk if own is None else max(risk, own.probability)
    within = [name for name in SIMPLER if (v := named[name].violation) is None or v.probability <= least]
    best = max(within, key=lambda name: named[name].mean)
    drawn = [name for name in named if name not in SIMPLER]
    above = [name for name in drawn if comparison.difference(name, best).interval.low > 0.0]
    if above:
        warnings.warn(f"{above[0]} inputs gain more than what was learned; give more rounds and steps.", stacklevel=3)
    return next(name for name in within if name == best or comparison.difference(best, name).interval.low <= 0.0)


def _is_new(plans: Float[Array, "B T du"], i: int) -> bool:
    """Return whether a plan is none of those before it, which fill up the list where there were too few."""
    return not any(bool(jnp.all(plans[i] == plans[j])) for j in range(i))


def learned(policy: Feedback) -> Any:
    """Return which leaves gradients move: the plan and the network."""
    fixed = lambda p: (p.expected, p.spread, p.log_std, p.share)  # noqa: E731
    return eqx.tree_at(fixed, jax.tree.map(eqx.is_inexact_array, policy), (False,) * 4)


def transformation(config: PathwiseConfig) -> optax.GradientTransformation:
    """Return Adam with a falling rate, larger for the plan; a gradient that is not finite is passed over."""
    first, count = config.learning_rate, config.iterations * config.steps
    rate = optax.linear_schedule(first, LAST_RATE * first, count)

    def faster(updates: Any, _: Any = None) -> Any:
        return eqx.tree_at(lambda p: p.plan, updates, PLAN_RATE * updates.plan)

    adam = optax.chain(optax.adam(rate, b2=0.99), optax.stateless(faster))
    return optax.apply_if_finite(gradient.clipped(adam, config.clip), count)


@eqx.filter_jit
def ascend(
    key: jax.Array,
    system: BaseSystem,
    policy: Feedback,
    optimiser: Any,
    target: Target | None,
    config: PathwiseConfig,
    share: Float[Array, ""],
    margin: Float[Array, ""],
    *,
    smooth: bool,
) -> tuple[Feedback, Any, GradientInfo]:
    """Do an iteration's gradient steps, each on rigs of its own, with noise that falls; `share` of all are done."""
    shares = share + jnp.arange(config.steps) / (config.iterations * config.steps)
    sds = loudness(config, shares, smooth)

    def value(policy: Feedback, batch: Any) -> Float[Array, ""]:
        run_key, sd = batch
        way = gain if smooth else scored_gain
        return way(run_key, system, policy.with_noise(sd), target, config.batch, margin)

    keys = jax.random.split(key, config.steps)
    return gradient.ascend(policy, optimiser, transformation(config), value, (keys, sds), learned(policy))


def loudness(config: PathwiseConfig, shares: Float[Array, "*n"], smooth: bool) -> Float[Array, "*n"]:
    """Return the standard deviation of designs when such shares of all gradient steps are done."""
    loudest = config.noise if smooth else max(config.noise, SCORE_NOISE)
    return loudest * (1.0 - (1.0 - QUIET) * shares) + TINY


TINY = 1e-6
"""Noise that is always there, so that designs have a density."""


def gain(
    key: jax.Array, system: BaseSystem, policy: Feedback, target: Target | None, batch: int, margin: Float[Array, ""]
) -> Float[Array, ""]:
    """Return the expected Gauss–Newton gain less the fine for nearing limits, on one batch of rigs."""
    gains, fine, _ = _played(key, system, policy, target, batch, margin)
    counted = jnp.isfinite(gains)
    return jnp.sum(jnp.where(counted, gains, 0.0)) / jnp.sum(counted) - fine


def scored_gain(
    key: jax.Array, system: BaseSystem, policy: Feedback, target: Target | None, batch: int, margin: Float[Array, ""]
) -> Float[Array, ""]:
    """Return the same number with the score as its gradient: needed where the simulator has none."""
    still = jax.tree.map(lambda leaf: jax.lax.stop_gradient(leaf) if eqx.is_array(leaf) else leaf, policy)
    gains, fine, record = jax.lax.stop_gradient(_played(key, system, still, target, batch, margin))
    likely = jax.vmap(policy.log_likelihood)(*record)
    surrogate = jnp.mean((gains - jnp.mean(gains)) * likely)
    return jnp.mean(gains) - fine + surrogate - jax.lax.stop_gradient(surrogate)


def _played(
    key: jax.Array, system: BaseSystem, policy: Feedback, target: Target | None, batch: int, margin: Float[Array, ""]
) -> tuple[Float[Array, " B"], Float[Array, ""], Any]:
    """Return what a policy gains on each of a batch of rigs, its fine, and the records."""
    rigs_key, record_key = jax.random.split(key)
    rigs = objective.draw(rigs_key, system, 0, batch)
    record = simulate(record_key, system, policy, rigs.theta, policy.plan.shape[0])
    found = objective.information(system, rigs.w, record)
    known = jnp.diag(jnp.asarray(objective.precision(system)))
    gains = objective.about(found, known, objective.slopes(system, rigs.w, target))
    return gains, objective.fine(system, record, batch, margin)[0], record


@eqx.filter_jit
def score(
    key: jax.Array,
    system: BaseSystem,
    policy: Feedback,
    target: Target | None,
    config: PathwiseConfig,
    margin: Float[Array, ""],
) -> Float[Array, ""]:
    """Return the gain of the mean policy, on the same rigs for all."""
    keys = jax.random.split(key, SCORED // config.batch + 1)
    values = jax.lax.map(lambda k: gain(k, system, policy, target, config.batch, margin), keys)
    return jnp.mean(values)
