"""A plan: the inputs that were found, what they gain, and what they can tell."""

import csv
import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from nestbed.evaluation import experiments
from nestbed.evaluation.certificate import Certificate
from nestbed.evaluation.comparison import Comparison, PolicyEstimate
from nestbed.evaluation.judging import TOGETHER
from nestbed.evaluation.violation import Violation
from nestbed.model import limits
from nestbed.model.system import BaseSystem
from nestbed.numerics import storage
from nestbed.numerics.errors import NestbedError
from nestbed.planning.identifiability import Identifiability
from nestbed.policies.base import prepare
from nestbed.policies.signals import Replay
from nestbed.systems import load, name_of

INPUTS, FACTS, VALUES = "inputs.csv", "plan.json", "gains.npz"
PLAN = "plan"
"""What the plan is called beside the baselines."""
LARGEST = 1 << 24
"""Bytes that a file of a plan may have."""


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """The best inputs found for a system, in its own units, one row per experiment."""

    system: BaseSystem
    inputs: Float[np.ndarray, "T du"]
    target: tuple[str, ...] | None
    comparison: Comparison  # of the plan and the baselines, certified on the same rigs
    identifiability: Identifiability
    rounds: int  # of the search
    seconds: float  # that it took
    origin: str = PLAN  # the plan itself, or the baseline that gained more, whose signal was taken instead
    risk: float = 0.01  # probability with which limits may be broken
    key: tuple[int, ...] = ()  # its words
    versions: Mapping[str, str] = field(default_factory=dict)  # of what it was found with

    @property
    def policy(self) -> Replay:
        """The inputs as a policy."""
        return Replay(self.system, self.inputs)

    @property
    def gain(self) -> Certificate:
        """What the inputs gain, certified."""
        found = self.comparison[0].certificate
        assert found is not None
        return found

    @property
    def violation(self) -> Violation | None:
        """How often limits are broken, over prior and noise; None where there are none."""
        return self.comparison[0].violation

    @property
    def horizon(self) -> int:
        """How many experiments there are."""
        return len(self.inputs)

    def predicted(self) -> list[tuple[str, tuple[Any, Any, Any]]]:
        """Return where the inputs lead: for each observation and state its name, and 5 %, 50 % and 95 % of rigs."""
        policy = prepare(self.policy, self.system, self.horizon)
        _, found = experiments.simulated_rigs(jax.random.key(0), self.system, policy, self.horizon, TOGETHER)
        names = self.system.observation_names
        seen = {name: np.asarray(found.record.observations[..., i]) for i, name in enumerate(names)}
        for i, name in enumerate(self.system.state_names if self.system.hidden else ()):
            seen.setdefault(name, np.asarray(found.states[..., i]))
        for name in self.system.limits:
            if name not in seen:
                states = tuple(jnp.moveaxis(found.states[:, 1:], -1, 0))
                designs = tuple(jnp.moveaxis(found.record.designs, -1, 0))
                reached = np.asarray(limits.value(self.system, name, states, designs))
                seen[name] = np.concatenate([reached[:, :1], reached], axis=1)
        return [(name, tuple(np.quantile(rows, (0.05, 0.5, 0.95), axis=0))) for name, rows in seen.items()]

    def save(self, folder: str | Path) -> Path:
        """Write the inputs (CSV), the gains of plan and baselines, and what can be told (JSON)."""
        place = storage.writable(Path(folder))
        facts = {
            "system": name_of(self.system),
            "target": self.target,
            "rounds": self.rounds,
            "seconds": self.seconds,
            "origin": self.origin,
            "risk": self.risk,
            "key": [*self.key],
            "versions": {**self.versions},
            "violations": [None if each.violation is None else vars(each.violation) for each in self.comparison],
            "policies": [each.policy for each in self.comparison],
            "draws": self.gain.draws,
            "identifiability": self.identifiability.facts(),
        }
        arrays = {}
        for i, each in enumerate(self.comparison):
            assert each.certificate is not None
            arrays[f"lower_{i}"], arrays[f"upper_{i}"] = each.certificate.lower_values, each.certificate.upper_values
            arrays[f"ess_{i}"] = each.certificate.ess
        with storage.saving(place):
            storage.write(place / INPUTS, inputs_as_csv(self.system, self.inputs).encode())
            storage.write(place / VALUES, storage.npz(arrays))
            storage.write(place / FACTS, json.dumps(facts, indent=1).encode())
        return place

    def __str__(self) -> str:
        return f"{self.horizon} inputs for {self.system.name}: {self.gain}\n{self.comparison}\n{self.identifiability}"

    __repr__ = __str__


def load_plan(folder: str | Path, system: BaseSystem | None = None) -> Plan:
    """Return the plan that a folder holds; a system of one's own is to be given."""
    place = Path(folder)
    try:
        facts = storage.read_json(place / FACTS, LARGEST)
        model = load(facts["system"]) if system is None else system
        count = len(facts["policies"])
        wanted = {f"{part}_{i}": LARGEST for i in range(count) for part in ("lower", "upper", "ess")}
        arrays = storage.read(place / VALUES, wanted)
        inputs = read_inputs(place / INPUTS, model)
        target = None if facts["target"] is None else tuple(str(name) for name in facts["target"])
        estimates = []
        for i, name in enumerate(facts["policies"]):
            lower, upper, ess = (np.asarray(arrays[f"{part}_{i}"], float) for part in ("lower", "upper", "ess"))
            found = Certificate(lower, upper, ess, int(facts["draws"]), len(inputs), target, origin=(0,))
            told = facts["violations"][i]
            broken = None if told is None else Violation(**told)
            estimates.append(PolicyEstimate(found.values, policy=str(name), certificate=found, violation=broken))
        known = Identifiability.of(facts["identifiability"])
        spent = int(facts["rounds"]), float(facts["seconds"]), str(facts["origin"]), float(facts["risk"])
        origin = tuple(map(int, facts.get("key", ()))), {k: str(v) for k, v in dict(facts.get("versions", {})).items()}
    except NestbedError:
        raise
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise NestbedError(f"{place} holds no plan that nestbed can read ({error}); design one again.") from None
    return Plan(model, inputs, target, Comparison(estimates), known, *spent, *origin)


def inputs_as_csv(system: BaseSystem, inputs: Float[np.ndarray, "T du"]) -> str:
    """Return inputs as CSV: a row per experiment, with the time when it begins and a column for each design."""
    stream = io.StringIO()
    writer = csv.writer(stream)
    time = [] if "time" in system.design_names else ["time"]  # when each is applied, in the unit of the step
    writer.writerow(["experiment", *time, *system.design_names])
    for t, row in enumerate(inputs):
        writer.writerow([t, *(f"{t * system.step:.12g}" for _ in time), *(repr(float(value)) for value in row)])
    return stream.getvalue()


def read_inputs(file: Path, system: BaseSystem) -> Float[np.ndarray, "T du"]:
    """Return the inputs of a CSV file: one row per experiment, a column for each design, by its name."""
    try:
        rows = list(csv.DictReader(io.StringIO(storage.read_bytes(file, LARGEST).decode())))
    except (OSError, ValueError, csv.Error) as error:
        raise NestbedError(f"{file} cannot be read as CSV ({error}); give one row per experiment.") from None
    names = list(rows[0]) if rows else []
    missing = [name for name in system.design_names if name not in names]
    if missing:
        raise NestbedError(
            f"{file} has the columns {', '.join(map(str, names)) or 'of an empty file'}, but {system.name} needs one "
            f"for each design: {', '.join(system.design_names)}."
        )
    found = np.array([[_number(file, t, row[name]) for name in system.design_names] for t, row in enumerate(rows)])
    outside = np.argwhere(~system.designs.contains(found))
    if len(outside):
        t, channel = outside[0]
        box = system.designs
        raise NestbedError(
            f"{file} has {system.design_names[channel]} = {found[t, channel]:g} in experiment {t}, outside the limits "
            f"({box.low[channel]}, {box.high[channel]}) of {system.name}; keep it inside."
        )
    return np.asarray(system.designs.clip(found))


def _number(file: Path, t: int, text: Any) -> float:
    try:
        value = float(text)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise NestbedError(f"{file} has {text!r} in experiment {t}, but inputs are finite numbers.")
    return value
