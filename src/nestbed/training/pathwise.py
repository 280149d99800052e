"""Pathwise feedback: the best plan there is, and a network that changes it by what is seen.

The plan comes from the search of `nb.design`. The network on top of it climbs the expected Gauss–Newton gain by
gradients through simulator and policy, on new rigs at every step: first on a few plans of different kinds, then on the
one that came furthest. In the end plan, feedback with and without its noise and the baselines are certified on the same
rigs, and the simplest that nothing surely beats is handed out.
"""

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
from nestbed.evaluation.violation import AIM, violation
from nestbed.information.smoothness import smooth
from nestbed.model.system import BaseSystem
from nestbed.model.target import targeted
from nestbed.numerics import blocks, interrupts
from nestbed.numerics.errors import NestbedError
from nestbed.numerics.progress import Progress, Watch
from nestbed.planning import design
from nestbed.planning.design import WIDEST, adapted
from nestbed.planning.plan import PLAN
from nestbed.policies import feedback
from nestbed.policies.base import Policy
from nestbed.policies.feedback import Feedback
from nestbed.policies.signals import Replay
from nestbed.training import gradient
from nestbed.training.ascent import ascend, learned, loudness, score, transformation
from nestbed.training.gradient import GradientInfo
from nestbed.training.pathwise_config import PathwiseConfig
from nestbed.training.trainer import Metrics, Trainer, better
from nestbed.training.verdict import CERTIFIED, COMPARED, LEARNED, NOISY, Verdict, handed_out

SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Shares of the feedback that are tried until limits are kept."""


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
            verdict=blank.verdict.given(self.system, compared),
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
        return state.verdict.comparison(self.system, self.config.horizon, self.target), COMPARED[winner]

    def _start(self, policy: Feedback, plans: Float[Array, "B T du"]) -> State:
        optimiser = gradient.start(transformation(self.config), policy, learned(policy))
        margin = jnp.array(WIDEST if self.system.limits else 0.0)
        rigs, nothing = jnp.zeros(2, jnp.uint32), jnp.zeros(())
        return State(
            jnp.array(0), policy, optimiser, plans, margin, jnp.array(True), policy, nothing, rigs, Verdict.blank()
        )

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
        verdict = state.verdict.given(self.system, compared)
        found = verdict.comparison(self.system, c.horizon, self.target)
        name = handed_out(found, c.risk)
        verdict = verdict._replace(winner=jnp.array(COMPARED.index(name)))
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


def _is_new(plans: Float[Array, "B T du"], i: int) -> bool:
    """Return whether a plan is none of those before it, which fill up the list where there were too few."""
    return not any(bool(jnp.all(plans[i] == plans[j])) for j in range(i))
