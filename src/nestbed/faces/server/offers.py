"""What sessions can be started from, and nothing else: built-in systems, those named when the server was started, and
the runs and designs in its folder. No request makes the server read another file, or run one.
"""

import functools
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from nestbed.faces.server import knowing
from nestbed.faces.server.course import plain
from nestbed.faces.server.refusal import absent
from nestbed.numerics.errors import NestbedError, did_you_mean
from nestbed.policies.registry import BASELINES
from nestbed.systems.registry import SYSTEMS

if TYPE_CHECKING:
    from nestbed.faces.server.archive import Archive
    from nestbed.model.system import BaseSystem

REPLAN = "replan"
POLICIES = {REPLAN: "plans made anew at every step", **{name: entry.help for name, entry in BASELINES.items()}}
"""Policies by name, each with what it is."""
USUAL = "prbs"


class Offer(NamedTuple):
    """A system, what chooses its designs, and for how many experiments that is made."""

    system: "BaseSystem"
    policy: Any
    horizon: int | None


class Offers:
    """The systems and policies of one server."""

    def __init__(self, archive: "Archive", own: Sequence[str] = ()):
        """Load the systems of the user's own that were named at the start, as path/to/file.py:ClassName."""
        self.archive = archive
        self.own: dict[str, BaseSystem] = {}
        self._loading = threading.Lock()
        for each in own:
            from nestbed.systems import load, name_of

            system = load(each)
            name = name_of(system)
            if name in self.own or (name in SYSTEMS and name != each):
                raise NestbedError(f"{each} is called {name} as another system is; rename its class.")
            self.own[name] = system

    def systems(self) -> list[dict[str, str]]:
        """Return the systems there are, each with what it is."""
        mine = [{"name": name, "help": "given when the server was started"} for name in self.own]
        return [
            *mine,
            *({"name": each.name, "help": each.help} for each in SYSTEMS.values() if each.name not in self.own),
        ]

    def units(self, name: str) -> dict[str, str]:
        """Return the units of a system, nothing where it is not known here."""
        return dict(self.system(name).units) if name in self.own or name in SYSTEMS else {}

    def policies(self) -> list[dict[str, str]]:
        """Return the policies there are by name, each with what it is."""
        return [{"name": name, "help": words} for name, words in POLICIES.items()]

    def system(self, name: str) -> "BaseSystem":
        """Return a system by its name."""
        if name in self.own:
            return self.own[name]
        if name not in SYSTEMS:
            known = [each["name"] for each in self.systems()]
            raise absent(
                f"there is no system {name!r} here; {did_you_mean(name, known)}; one of your own is named when "
                "the server is started."
            )
        from nestbed.systems import load

        with self._loading:
            return load(name)

    def check(self, start: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
        """Return the name of the system of a session, and those of its parameters; raise if there is none."""
        kind = _kind(start)
        if kind != "system":
            if start.get("policy"):
                raise NestbedError(f"a policy goes with a system, but this session is of a {kind}; leave it out.")
            name = self.archive.system_of(kind, start[kind])
            return name, self.system(name).parameter_names
        if start.get("policy", USUAL) not in POLICIES:
            raise absent(f"there is no policy {start['policy']!r}; {did_you_mean(start['policy'], POLICIES)}.")
        return start["system"], self.system(start["system"]).parameter_names

    def find(self, start: dict[str, Any]) -> Offer:
        """Return what a session begins with, by the settings that it was asked for with."""
        kind = _kind(start)
        if kind == "system":
            return self._named(start["system"], start["policy"], start.get("horizon"))
        return self._kept(kind, start[kind])

    def _named(self, system: str, policy: str, horizon: int | None) -> Offer:
        model = self.system(system)
        length = model.horizon if horizon is None else horizon
        if policy == REPLAN:
            from nestbed.policies.replan import Replan

            return Offer(model, Replan(model, horizon=length), length)
        from nestbed.policies.registry import baseline

        return Offer(model, baseline(policy, model, length), length)

    def _kept(self, kind: str, name: str) -> Offer:
        """Return the policy of a run, or the inputs of a design, in the folder that is served."""
        from nestbed.faces.cli import sources

        place, title = self.archive.place(kind, name), self.archive.system_of(kind, name)
        candidate = next(iter(sources.trained([place], self.system(title)).values()))
        return Offer(candidate.system, candidate.policy, candidate.horizon)

    @functools.lru_cache(64)  # noqa: B019
    def outcome(self, name: str, changed: float) -> dict[str, Any] | None:
        """Return what a finished training was compared with, and who won; `changed` is when its folder did."""
        from nestbed.runs.folder import load_run

        place, system = self.archive.place("run", name), self.archive.system_of("run", name)
        if system not in (*self.own, *SYSTEMS):
            return None
        run = load_run(place, self.system(system))
        if run.comparison is None:
            return None
        return {
            "sentence": run.outcome,
            "winner": run.winner,
            "gains": [
                {"policy": each.policy, "mean": each.mean, "interval": list(each.interval)} for each in run.comparison
            ],
        }

    @functools.lru_cache(64)  # noqa: B019  # there is one of it for as long as the process runs
    def about(self, name: str) -> dict[str, Any]:
        """Return what a form needs to know of a system."""
        return {"name": name, "horizon": self.system(name).horizon, **describe(self.system(name))}


def _kind(start: dict[str, Any]) -> str:
    """Return which of the three a session starts from."""
    given = [name for name in ("system", "run", "design") if start.get(name)]
    if len(given) != 1:
        told = f"but got {' and '.join(given)}" if given else "but got none of them"
        raise NestbedError(f"a session starts from one of system, run and design, {told}.")
    return given[0]


def describe(system: "BaseSystem") -> dict[str, Any]:
    """Return names, units and limits of a system, and the prior of its parameters."""
    from nestbed.model import limits

    units, box = system.units, system.designs
    ends = zip(system.design_names, box.low, box.high, system.rest_design, strict=True)
    hidden = [name for name in system.state_names if name not in system.observation_names]

    def one(name: str) -> dict[str, Any]:
        low, high = limits.bounds(system, name) if name in system.limits else (None, None)
        return {"name": name, "unit": str(units.get(name, "")), "low": low, "high": high}

    others = [name for name in system.limits if name not in (*system.observation_names, *hidden)]
    return dict(
        plain(
            {
                "class": system.name,
                "step_length": system.step,
                "designs": [
                    {"name": name, "unit": str(units.get(name, "")), "low": low, "high": high, "rest": rest}
                    for name, low, high, rest in ends
                ],
                "sensors": [one(name) for name in system.observation_names],
                "hidden": [one(name) for name in hidden],
                "limits": [one(name) for name in others],
                "parameters": knowing.prior(system),
            }
        )
    )
