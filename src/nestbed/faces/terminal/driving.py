"""What a session shows while it runs: the design, sensors with limits, the posterior sharpening, what was gained."""

import math
import sys
import time as clocks
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from nestbed.faces.terminal.console import SafeConsole, say
from nestbed.model import limits
from nestbed.numerics.text import visible

if TYPE_CHECKING:
    from nestbed.live.driving import Drive
    from nestbed.live.session import Session

WIDE = 24
"""Characters of a bar."""
WORDS = 3
"""Warnings that are shown at a time."""
OFTEN = 0.125
"""Seconds from one page to the next at least: a fast rig is not kept waiting."""


class Watching:
    """Watches a session: live in a terminal, a line every few steps elsewhere."""

    def __init__(self, session: "Session"):
        self.console = SafeConsole(stderr=True)
        self.live = Live(console=self.console, auto_refresh=False) if self.console.is_terminal else None
        pairs = zip(session.system.parameter_names, session.system.parameters.draws, strict=True)
        self.before = {name: float(np.std(np.asarray(draws))) for name, draws in pairs}
        self.expected: float | None = None
        self.told, self.shown = len(session.warnings), -math.inf
        self.last: Drive | None = None

    def __enter__(self) -> "Watching":
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.live is not None:
            if self.last is not None:
                self.live.update(self._page(self.last), refresh=True)
            self.live.stop()

    def __call__(self, now: "Drive") -> None:
        """Show how it goes once the rig was started and after each step."""
        session = now.session
        if self.expected is None:
            self.expected = session.gain + session.expected_gain().remaining
        if self.live is None:
            self._say(session)
        elif clocks.monotonic() - self.shown >= OFTEN:
            self.live.update(self._page(now), refresh=True)
            self.shown = clocks.monotonic()
        self.last = now

    def _say(self, session: "Session") -> None:
        for words in session.warnings[self.told :]:
            say(f"session: {words}", sys.stderr)
        self.told = len(session.warnings)
        tenth = session.step % max(1, session.horizon // 10) == 0
        if session.step and (tenth or session.step == session.horizon):
            say(f"experiment {session.step}/{session.horizon}: {self._gained(session)}", sys.stderr)

    def _gained(self, session: "Session") -> str:
        return f"gained {session.gain:.2f} nats, {self.expected:.2f} were expected in all"

    def _page(self, now: "Drive") -> Any:
        session = now.session
        late = f", {now.late} late" if now.late else ""
        head = f"experiment {session.step} of {session.horizon}{late}: {self._gained(session)}"
        words = [Text(visible(each), style="yellow") for each in session.warnings[-WORDS:]]
        return Group(Text(head, style="bold"), self._values(session), self._posterior(session), *words)

    def _values(self, session: "Session") -> Table:
        system = session.system
        table = Table("", "now", "", "limits", box=None)
        if session.history:
            last = session.history[-1]
            for i, name in enumerate(system.design_names):
                ends = system.designs.low[i], system.designs.high[i]
                table.add_row(*_row(system, name, f"{last.applied[i]:.4g}", last.applied[i], ends))
            for name, value in zip(system.observation_names, last.observation, strict=True):
                table.add_row(
                    *_row(system, name, "–" if math.isnan(value) else f"{value:.4g}", value, _ends(system, name))
                )
        for name, (mean, sd) in session.posterior.states.items():
            if name not in system.observation_names:
                table.add_row(*_row(system, name, f"{mean:.4g} ± {sd:.2g}", mean, _ends(system, name)))
        return table

    def _posterior(self, session: "Session") -> Table:
        table = Table("parameter", "mean", "sd", "share of the prior's sd", box=None)
        known = session.posterior
        for name, mean in known.mean.items():
            share = known.sd[name] / self.before[name]
            full = max(1, round(WIDE * min(1.0, share)))
            bar = "█" * full + "·" * (WIDE - full)
            table.add_row(_named(session.system, name), f"{mean:.4g}", f"{known.sd[name]:.2g}", f"{bar} {share:.0%}")
        return table


def _row(system: Any, name: str, now: str, value: float, ends: tuple[float, float]) -> tuple[str, str, Text, str]:
    """Return a value with where it is between its limits, which are red where they are broken."""
    return _named(system, name), now, _slider(value, *ends), _words(*ends)


def _slider(value: float, low: float, high: float) -> Text:
    if not (math.isfinite(low) and math.isfinite(high) and math.isfinite(value)):
        beyond = value < low or value > high
        return Text("beyond its limit" if beyond else "", style="red")
    at = round((WIDE - 1) * (value - low) / (high - low))
    within = min(max(at, 0), WIDE - 1)
    return Text("─" * within + "●" + "─" * (WIDE - 1 - within), style="red" if not low <= value <= high else "")


def _words(low: float, high: float) -> str:
    if not (math.isfinite(low) or math.isfinite(high)):
        return ""
    return " … ".join(f"{end:g}" if math.isfinite(end) else "" for end in (low, high))


def _named(system: Any, name: str) -> str:
    unit = system.units.get(name, "")
    return f"{name} ({unit})" if unit else name


def _ends(system: Any, name: str) -> tuple[float, float]:
    return limits.bounds(system, name) if name in system.limits else (-math.inf, math.inf)
