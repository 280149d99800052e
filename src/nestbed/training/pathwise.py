"""Pathwise feedback: the best plan there is, and a network that changes it by what is seen.

The plan comes from the search of `nb.design`. The network on top of it climbs the expected Gauss–Newton gain by
gradients through simulator and policy, on new rigs at every step: first on that plan and on plans for known rigs, the
better half of which goes on, then on the one that came furthest. In the end plan, feedback with and without its noise
and the baselines are certified on the same rigs, and the simplest that nothing surely beats is handed out.
"""

import math
import time
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32

from nestbed.evaluation.certificate import certificate
from nestbed.evaluation.comparison import Comparison, compare
from nestbed.evaluation.violation import AIM, FARTHEST, WIDEST, margin, violation
from nestbed.information.smoothness import smooth
from nestbed.model.system import BaseSystem
from nestbed.model.target import targeted
from nestbed.numerics import blocks, interrupts
from nestbed.numerics.errors import NestbedError, NonFiniteError
from nestbed.numerics.progress import Progress, Watch, renamed
from nestbed.planning import design
from nestbed.planning.goal import Goal
from nestbed.planning.plan import PLAN
from nestbed.planning.playable import played, replayed, tell_of_limits
from nestbed.policies import feedback
from nestbed.policies.base import Policy
from nestbed.policies.feedback import Feedback
from nestbed.training import gradient
from nestbed.training.ascent import ascend, learned, loudness, score, transformation
from nestbed.training.gradient import GradientInfo
from nestbed.training.pathwise_config import TURNS, PathwiseConfig
from nestbed.training.trainer import Metrics, Trainer, better
from nestbed.training.verdict import COMPARED, LEARNED, NOISY, Verdict, handed_out

SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Shares of the feedback that are tried until limits are kept."""
CALMING, WIDER = 6, 0.3
"""Turns more that may follow where limits are broken too often in the end, each with a margin wider by so much."""


class State(NamedTuple):
    """All that training carries from one iteration to the next."""

    iteration: Int[Array, ""]
    policy: Feedback  # without the noise it is trained with; in the end that which won
    optimiser: Any
    plan: Float[Array, "T du"]  # the best without feedback, in the unit box
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
        units = jnp.asarray(self.system.designs.unscale(found))
        through = c.gradient == "pathwise" or (
            c.gradient == "auto" and smooth(smooth_key, self.system, units[0], self.target)
        )
        if c.gradient == "auto" and not through:
            warnings.warn(
                f"the gain of {self.system.name} jumps where designs change a little (contacts, dead zones, rounding), "
                "so that gradients through the simulator mislead: score gradients are taken, which need more steps.",
                stacklevel=2,
            )
        plan = next(each for each in compared if each.policy == PLAN)
        policies = [feedback.begin(policy_key, self.system, unit, c.policy.width) for unit in units]
        blank = self._start(policies[0])
        state = blank._replace(
            plan=units[0],
            smooth=jnp.array(bool(through)),
            best_eig=jnp.array(plan.mean),
            rigs=jax.random.key_data(design.keys(plan_key)[-1]),
            verdict=blank.verdict.given(self.system, compared),
        )
        policy, optimiser = self._tried(policy_key, state, policies, progress)
        estimated = {"eig": plan.mean, "eig_error": plan.standard_error}
        state = state._replace(policy=policy, optimiser=optimiser)
        return state, {"iteration": 0, **estimated, "seconds": time.perf_counter() - begun}

    def _planned(self, key: jax.Array, progress: Watch[Progress] | None) -> tuple[Comparison, Any]:
        """Return what the best plan and the baselines gain, and the plan, with others for known rigs."""
        c = self.config
        settings: Any = {"horizon": c.horizon, "target": self.target, "risk": c.risk, "rounds": c.rounds}
        plan, others = design.designed(key, self.system, progress=progress, rigs=c.basins - 1, **settings)
        return plan.comparison, np.concatenate([plan.inputs[None], others])

    def _given(self, key: jax.Array, start: Float[np.ndarray, "T du"]) -> tuple[Comparison, Any]:
        """Return what given inputs and the baselines gain, and the inputs."""
        c, certifying = self.config, design.keys(key)[-1]
        goal = Goal(self.system, c.horizon, self.target, c.risk)
        inputs = replayed(goal, played(certifying, goal, self.system.designs.unscale(start))[0])
        if not np.allclose(inputs.signal(c.horizon), start):
            warnings.warn(
                f"the inputs to begin with break limits more often than the risk of {100 * c.risk:g} %, or a slew: "
                "they are calmed until they do not.",
                stacklevel=2,
            )
        own = self._compared(certifying, {PLAN: inputs})
        tell_of_limits(own[0].violation, c.risk)
        beside = design.baselines(certifying, goal).comparison
        return Comparison([*own, *beside]), inputs.signal(c.horizon)[None]

    def _tried(
        self, key: jax.Array, state: State, policies: list[Feedback], progress: Watch[Progress] | None
    ) -> tuple[Feedback, Any]:
        """Return feedback, a little learned, on the plan where it came furthest: half go on after each turn."""
        climb_key, choice_key = jax.random.split(key)
        found = [(policy, state.optimiser) for policy in policies]
        for turn in range(TURNS):
            watch = renamed(progress, f"feedback on {len(found)} plans, turn {turn + 1} of {TURNS}")
            found = self._turn(jax.random.fold_in(climb_key, turn), state, found, turn, watch)
            scores = [float(score(choice_key, policy, self.target, self.config, state.margin)) for policy, _ in found]
            order = np.argsort(-np.nan_to_num(scores, nan=-np.inf), kind="stable")
            kept = 1 if turn == TURNS - 1 else -(-len(found) // 2)
            found = [found[i] for i in order[:kept]]
        return found[0]

    def _turn(
        self, key: jax.Array, state: State, found: list[tuple[Feedback, Any]], turn: int, watch: Watch[Progress] | None
    ) -> list[tuple[Feedback, Any]]:
        """Return several policies after one more turn of gradient steps; the first is alone, so that one compiles."""

        def on(i: int) -> tuple[Feedback, Any]:
            return self._ascended(key, state, *found[i], turn)[:2]

        first = on(0)
        return [first, *(blocks.run(len(found) - 1, 1, lambda i: on(i + 1), watch) if found[1:] else [])]

    def _compared(self, key: jax.Array, policies: Mapping[str, Policy]) -> Comparison:
        c = self.config
        return compare(key, self.system, policies, horizon=c.horizon, target=self.target)

    def iterate(self, key: jax.Array, state: State) -> tuple[State, Metrics]:
        """Do one iteration; in the last, all is compared."""
        climb_key, margin_key, evaluation_key = jax.random.split(key, 3)
        clock = [time.perf_counter()]
        done = int(state.iteration)

        # Climb
        learner, optimiser, climbed = self._ascended(climb_key, state, state.policy, state.optimiser, TURNS + done)
        climbed.check()
        state = state._replace(iteration=state.iteration + 1, policy=learner, optimiser=optimiser)
        state = state._replace(margin=self._margin(margin_key, state.margin, learner))
        clock.append(time.perf_counter())

        # Evaluate
        if done + 1 == self.config.iterations:
            state, estimated = self._judged(key, self._calmed(margin_key, state))
        else:
            state, estimated = self._evaluated(evaluation_key, state)
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

        return eqx.filter_eval_shape(lambda: self._start(c.policy.make(jax.random.key(0), self.system, c.horizon)))

    def comparison(self, state: State) -> tuple[Comparison, str] | None:
        """Return the certificates of the last iteration, and which policy won."""
        winner = int(state.verdict.winner)
        if winner < 0:
            return None
        if winner >= len(COMPARED):
            raise NestbedError("the run's comparison is damaged; restore the folder from a copy, or train again.")
        return state.verdict.comparison(self.system, self.config.horizon, self.target), COMPARED[winner]

    def _start(self, policy: Feedback) -> State:
        optimiser = gradient.start(transformation(self.config), policy, learned(policy))
        margin = jnp.array(WIDEST if self.system.limits else 0.0)
        rigs, nothing = jnp.zeros(2, jnp.uint32), jnp.zeros(())
        return State(
            jnp.array(0),
            policy,
            optimiser,
            policy.plan,
            margin,
            jnp.array(True),
            policy,
            nothing,
            rigs,
            Verdict.blank(),
        )

    def _loud(self, iteration: int, smooth: Bool[Array, ""]) -> float:
        """Return the standard deviation of designs after some iterations."""
        return float(loudness(self.config, jnp.asarray((TURNS + iteration) / self.config.turns), bool(smooth)))

    def _ascended(
        self, key: jax.Array, state: State, policy: Feedback, optimiser: Any, turns: int
    ) -> tuple[Feedback, Any, GradientInfo]:
        """Return a policy after one more turn of gradient steps."""
        numbers = jnp.asarray(turns / self.config.turns), state.margin
        smooth = bool(state.smooth)
        return ascend(key, self.system, policy, optimiser, self.target, self.config, *numbers, smooth=smooth)

    def _margin(self, key: jax.Array, before: Float[Array, ""], policy: Feedback) -> Float[Array, ""]:
        """Return how far to keep from limits, by how runs spread where they come nearest to them; as before if none do.

        So it is where runs lead to no numbers too.
        """
        c = self.config
        if not self.system.limits:
            return before
        try:
            return jnp.array(margin(key, self.system, policy, c.horizon, AIM * c.risk))
        except NonFiniteError:
            return before

    def _keeps(self, key: jax.Array, policy: Feedback) -> bool:
        """Return whether a policy keeps to the limits, with room for what chance adds, and leads to numbers."""
        if not self.system.limits:
            return True
        try:
            found = violation(key, self.system, policy, horizon=self.config.horizon)
        except NonFiniteError:
            return False
        return found.probability <= AIM * self.config.risk

    def _calmed(self, key: jax.Array, state: State) -> State:
        """Return the state after more turns, each farther from limits, until they are kept."""
        for turn in range(CALMING):
            if self._keeps(key, state.policy):
                break
            state = state._replace(margin=jnp.minimum(state.margin + WIDER, FARTHEST))
            own = jax.random.fold_in(key, turn)
            policy, optimiser, _ = self._ascended(own, state, state.policy, state.optimiser, self.config.turns)
            state = state._replace(policy=policy, optimiser=optimiser)
        return state

    def _evaluated(self, key: jax.Array, state: State) -> tuple[State, Metrics]:
        """Certify what was learned; what leads where there are no numbers is dropped for the best so far.

        The best is among those that keep to the limits.
        """
        c = self.config
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what is to be known is told of the last one
                settings: Any = {"horizon": c.horizon, "records": c.records, "target": self.target}
                found = certificate(key, self.system, state.policy, **settings)
        except NonFiniteError as error:
            warnings.warn(f"what was learned is dropped for the best so far, since {error}", stacklevel=2)
            return state._replace(policy=state.best), {"eig": float(state.best_eig), "eig_error": math.nan}
        estimated = {"eig": found.mean, "eig_error": found.standard_error}
        best, best_eig = better(state.policy, estimated, state.best, state.best_eig)
        if best is state.policy and not self._keeps(key, best):
            return state, estimated
        return state._replace(best=best, best_eig=best_eig), estimated

    def _judged(self, key: jax.Array, state: State) -> tuple[State, Metrics]:
        """Compare what was learned with all that is simpler, on the same rigs, and hand out what won."""
        c = self.config
        plan = feedback.begin(key, self.system, state.plan, c.policy.width).alone()
        interrupts.check()
        learner, policies, compared = self._learned(key, state, plan)
        verdict = state.verdict.given(self.system, compared)
        found = verdict.comparison(self.system, c.horizon, self.target)
        name = handed_out(found, c.risk)
        verdict = verdict._replace(winner=jnp.array(COMPARED.index(name)))
        handed = next(each for each in found if each.policy == name)
        state = state._replace(policy=policies[name], best=learner, best_eig=jnp.array(compared[0].mean))
        more = found.difference(LEARNED, PLAN)
        adapting = {"adapting": more.mean, "adapting_low": more.interval.low, "adapting_high": more.interval.high}
        estimated = {"eig": handed.mean, "eig_error": handed.standard_error, **adapting}
        return state._replace(verdict=verdict), estimated

    def _learned(
        self, key: jax.Array, state: State, plan: Feedback
    ) -> tuple[Feedback, dict[str, Feedback], Comparison]:
        """Return what was learned, as it is compared, and its gains: the last policy, or else the best, or the plan.

        As much of its feedback as keeps to the limits; what breaks them with any share of it is dropped.
        """
        rigs = jax.random.wrap_key_data(state.rigs, impl="threefry2x32")
        for learner in (state.policy, state.best):
            share = next((share for share in SHARES if self._keeps(key, learner.alone(share))), None)
            if share is None:
                continue
            noisy = learner.with_noise(self._loud(self.config.iterations, state.smooth)).alone(share)
            policies = {LEARNED: learner.alone(share), NOISY: noisy}
            try:
                return learner, {PLAN: plan, **policies}, self._compared(rigs, policies)
            except NonFiniteError as error:
                warnings.warn(f"what was learned is dropped for what was before it, since {error}", stacklevel=2)
        policies = {LEARNED: plan, NOISY: plan}
        return plan, {PLAN: plan, **policies}, self._compared(rigs, policies)
