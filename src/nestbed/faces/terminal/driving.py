"""What a session shows while it runs: the design, sensors with limits, the posterior sharpening, what was gained."""

import sys
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from nestbed.faces.terminal.console import SafeConsole, say
from nestbed.numerics.text import visible

if TYPE_CHECKING:
    from nestbed.live.driving import Drive
    from nestbed.live.session import Session

WIDE = 24
"""Characters of a bar."""
WORDS = 3
"""Warnings that are shown at a time."""


class Watching:
    """Watches a session: live in a terminal, a line every few steps elsewhere."""

    def __init__(self, session: "Session"):
        self.console = SafeConsole(stderr=True)
        self.live = Live(console=self.console, refresh_per_second=8) if self.console.is_terminal else None
        self.before = session.posterior.sd
        self.expected = session.expected_gain().remaining
        self.told = len(session.warnings)

    def __enter__(self) -> "Watching":
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.live is not None:
            self.live.stop()

    def __call__(self, now: "Drive") -> None:
        """Show how it goes after a step."""
        session = now.session
        if self.live is not None:
            self.live.update(self._page(now))
            return
        for words in session.warnings[self.told :]:
            say(f"session: {words}", sys.stderr)
        self.told = len(session.warnings)
        if session.step % max(1, session.horizon // 10) == 0 or session.step == session.horizon:
            say(f"experiment {session.step}/{session.horizon}: {self._gained(session)}", sys.stderr)

    def _gained(self, session: "Session") -> str:
        return f"gained {session.gain:.2f} of {self.expected:.2f} nats expected"

    def _page(self, now: "Drive") -> Any:
        session = now.session
        late = f", {now.late} late" if now.late else ""
        head = f"experiment {session.step} of {session.horizon}{late}: {self._gained(session)}"
        words = [Text(visible(each), style="yellow") for each in session.warnings[-WORDS:]]
        return Group(Text(head, style="bold"), self._values(session), self._posterior(session), *words)

    def _values(self, session: "Session") -> Table:
        system, last = session.system, session.history[-1]
        table = Table("", "now", "limits", box=None)
        low, high = system.designs.low, system.designs.high
        for i, name in enumerate(system.design_names):
            table.add_row(_named(system, name), f"{last.applied[i]:.4g}", f"{low[i]:g} … {high[i]:g}")
        for name, value in zip(system.observation_names, last.observation, strict=True):
            table.add_row(_named(system, name), f"{value:.4g}", _limits(system, name))
        for name, (mean, sd) in session.posterior.states.items():
            if name not in system.observation_names:
                table.add_row(_named(system, name), f"{mean:.4g} ± {sd:.2g}", _limits(system, name))
        return table

    def _posterior(self, session: "Session") -> Table:
        table = Table("parameter", "mean", "sd", "of the prior's", box=None)
        known = session.posterior
        for name, mean in known.mean.items():
            share = min(1.0, known.sd[name] / self.before[name])
            bar = "█" * max(1, round(WIDE * share)) + "·" * (WIDE - max(1, round(WIDE * share)))
            table.add_row(_named(session.system, name), f"{mean:.4g}", f"{known.sd[name]:.2g}", f"{bar} {share:.0%}")
        return table


def _named(system: Any, name: str) -> str:
    unit = system.units.get(name, "")
    return f"{name} ({unit})" if unit else name


def _limits(system: Any, name: str) -> str:
    low, high = system.limits.get(name, (None, None))
    ends = ["" if end is None else f"{end:g}" for end in (low, high)]
    return " … ".join(ends) if any(ends) else ""
