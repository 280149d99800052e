"""What is exported, and what the files say of it: where it comes from, names and units, a few steps to compare with."""

import importlib.metadata
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from nestbed.exports.program import Program
from nestbed.exports.tracing import traced
from nestbed.model.system import BaseSystem
from nestbed.policies.base import looks_at_nothing, prepare
from nestbed.policies.feedback import Feedback
from nestbed.policies.recurrent import predictive_scales
from nestbed.policies.signals import Replay

CHECKED = 5
"""Steps to compare with."""


@dataclass(frozen=True, eq=False)
class About:
    """A policy on its way out."""

    policy: Any
    system: BaseSystem
    source: str  # where it was taken from
    horizon: int | None  # experiments that it was made for
    single: bool = False
    seed: int = 0

    @cached_property
    def program(self) -> Program:
        """One step."""
        return traced(self.policy, self.system, single=self.single)

    @cached_property
    def adapts(self) -> bool:
        """Whether designs hang on what is seen."""
        return not looks_at_nothing(self.policy) and self.program.adapts

    @property
    def title(self) -> str:
        """What it is, in a line."""
        kind = "A policy that adapts to what is seen" if self.adapts else "A plan"
        return f"{kind}, for {self.system.name}"

    @property
    def origin(self) -> str:
        """Where it comes from."""
        version = importlib.metadata.version("nestbed")
        return f"Written by nestbed {version} from {self.source} ({type(self.policy).__name__})."

    @property
    def half(self) -> Any:
        """Half the box of each design."""
        return 0.5 * np.subtract(self.system.designs.high, self.system.designs.low)

    @cached_property
    def words(self) -> list[str]:
        """What whoever uses it must know, sentence by sentence."""
        system, found = self.system, [self.origin, after(self.policy, self.horizon)]
        if self.adapts:
            found.append(
                "A reading that was not measured must not be handed in as NaN, which this and all later designs could "
                "become: give what is expected of it, or the last one that was measured."
            )
        if system.slew and not looks_at_nothing(self.policy):
            most = ", ".join(f"{name} by {value:g}{self._unit(name)}" for name, value in system.slew.items())
            found.append(f"Designs change by no more than the slew from the one before that it is given: {most}.")
        if system.limits:
            found.append(
                f"The limits of the rig ({', '.join(system.limits)}) are not watched here: keep what protects it."
            )
        if not looks_at_nothing(self.policy) and self.program.noise:
            found.append("Its noise comes from outside: independent standard normal numbers, new ones at every step.")
        return found

    @property
    def lines(self) -> list[str]:
        """Each observation and design, with unit and limits."""
        box, rest = self.system.designs, self.system.rest_design
        seen = [f"y[{i}]: {name}{self._unit(name)}" for i, name in enumerate(self.system.observation_names)]
        return seen + [
            f"u[{i}]: {name}{self._unit(name)}, from {box.low[i]:g} to {box.high[i]:g}; {rest[i]:g} before the first"
            for i, name in enumerate(box.names)
        ]

    @property
    def facts(self) -> dict[str, Any]:
        """All of it but the steps, as plain data."""
        units, box = self.system.units, self.system.designs
        return {
            "title": self.title,
            "notes": self.words,
            "system": self.system.name,
            "precision": "single" if self.single else "double",
            "experiments": self.horizon,
            "step": {"length": self.system.step, "unit": units.get("time")},
            "y": [{"name": name, "unit": units.get(name)} for name in self.system.observation_names],
            "u": [
                {"name": name, "unit": units.get(name), "low": low, "high": high, "rest": rest}
                for name, low, high, rest in zip(box.names, box.low, box.high, self.system.rest_design, strict=True)
            ],
        }

    @property
    def arguments(self) -> dict[str, Any]:
        """What a step carries and draws, as plain data."""
        program = self.program
        carried = zip(program.carry, program.start, strict=True)
        return {
            "carry": [{"type": str(each.dtype), "start": start.tolist()} for each, start in carried],
            "noise": {name: [*each.shape] for name, each in zip(noise_names(program), program.noise, strict=True)},
        }

    @cached_property
    def steps(self) -> dict[str, list[Any]]:
        """What the policy does in a few steps, after observations about as far from the middle as are usual."""
        random = np.random.default_rng(self.seed)
        middle, spread = np.array(predictive_scales(self.system)).T
        seen = middle + spread * random.standard_normal((CHECKED, len(middle)))
        noise = [random.standard_normal((CHECKED, *each.shape)) for each in self.program.noise]
        designs = self._run(seen, noise)
        found = {"y": seen, "u_previous": np.vstack([self.system.rest_design, designs[:-1]]), "u": designs}
        found |= dict(zip(noise_names(self.program), noise, strict=True))
        return {name: each.tolist() for name, each in found.items()}

    def _run(self, seen: Any, noise: Any) -> Float[np.ndarray, "T du"]:
        """Return the designs of the policy itself; where noise is given, of its program in double precision."""
        if noise:
            program = traced(self.policy, self.system)
            carry: Any = [*program.start]
            step: Any = jax.jit(lambda carry, y, u, noise: _drawn(program, [*carry, y, u, *noise]))
        else:
            ready = prepare(self.policy, self.system)
            carry, step = ready.init(), jax.jit(lambda carry, y, u, noise: ready.step(jax.random.key(0), carry, y, u))
        u, found = np.array(self.system.rest_design), []
        for t, y in enumerate(seen):
            carry, u = step(carry, jnp.asarray(y), jnp.asarray(u, float), [jnp.asarray(each[t]) for each in noise])
            found.append(np.asarray(u, float))
        return np.array(found)

    def _unit(self, name: str) -> str:
        unit = self.system.units.get(name)
        return f" ({unit})" if unit else ""


def _drawn(program: Program, inputs: list[Any]) -> Any:
    typed = [jnp.asarray(value, place.dtype) for value, place in zip(inputs, program.inputs, strict=True)]
    *carry, u = program.step(typed)
    return carry, u


def noise_names(program: Program) -> list[str]:
    """Return what the noise of each draw is called."""
    return ["noise" if i == 0 else f"noise_{i}" for i in range(len(program.noise))]


def after(policy: Any, horizon: int | None) -> str:
    """Return what a policy does when all experiments that it was made for are done."""
    while not isinstance(policy, Replay | Feedback) and hasattr(policy, "policy"):
        policy = policy.policy
    made = f"It was made for {horizon} experiments" if horizon else "It was made for no certain number of experiments"
    if isinstance(policy, Replay):
        return f"{made}; after {len(policy.table) * policy.hold} it begins again."
    if isinstance(policy, Feedback):
        return f"{made}; after {policy.trained_for} its plan begins again, which is not what it was made for."
    return f"{made} and goes on after them as before, which it was not made for." if horizon else f"{made}."
