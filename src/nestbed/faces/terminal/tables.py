"""Tables of systems and of estimates."""

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from nestbed.faces.terminal.console import SafeConsole, or_dash

if TYPE_CHECKING:
    from nestbed.evaluation.comparison import Comparison, PolicyEstimate
    from nestbed.evaluation.estimates import Estimate
    from nestbed.model.system import BaseSystem
    from nestbed.planning.identifiability import Identifiability


def systems(loaded: "dict[str, BaseSystem]") -> None:
    """Print systems with their states, designs, parameters and settings."""
    table = Table(title="Built-in systems", show_lines=True)
    table.add_column("system", no_wrap=True)
    for heading in ("state", "designs", "unknown parameters"):
        table.add_column(heading)
    for name, system in loaded.items():
        limits = zip(system.design_names, system.designs.low, system.designs.high, strict=True)
        d = system.defaults
        settings = f"T = {d.horizon}, N = {d.trajectories}\nM = {d.particles}, η = {d.eta:g}\nslew {d.slew_penalty:g}"
        table.add_row(
            Text.assemble((name, "bold"), "\n", (settings, "dim")),
            "\n".join(_with_unit(n, system) for n in system.state_names),
            "\n".join(f"{n} in [{low:g}, {high:g}] {system.units.get(n, '')}" for n, low, high in limits),
            "\n".join(_with_unit(n, system) for n in system.parameter_names),
        )
    SafeConsole().print(table)


def _with_unit(name: str, system: "BaseSystem") -> str:
    return f"{name} ({system.units[name]})" if name in system.units else name


def identifiability(found: "Identifiability") -> None:
    """Print each parameter's standard deviation before and after, and what is told."""
    table = Table(title="what the inputs tell", caption="standard deviations; % of the parameter's own size")
    table.add_column("parameter", no_wrap=True)
    for heading in ("prior", "expected after", "share left", "done twice"):
        table.add_column(heading, justify="right")
    for row in found.rows:
        table.add_row(*row)
    console = SafeConsole()
    console.print(table)
    console.print(Text(found.sentence))


def comparison(estimates: "Comparison", title: str, caption: str) -> None:
    """Print one line per policy, the best in bold, and how sure it is that one beats another, if that can be known."""
    if estimates[0].certificate is not None:
        _certified(estimates, title, caption)
        return
    bounded = estimates[0].spce is not None
    order = "\nin expectation sPCE ≤ EIG ≤ sNMC" if bounded else ""
    table = Table(title=title, caption=f"{caption}{order}")
    table.add_column("policy", no_wrap=True)
    for heading in ("EIG (nats)", "sd over seeds", "standard error"):
        table.add_column(heading, justify="right")
    for heading in ("sPCE", "sNMC") if bounded else ():
        table.add_column(heading, justify="right", no_wrap=True)
    doubts = estimates.doubts
    best = None if doubts else max(estimate.mean for estimate in estimates)
    for estimate in estimates:
        table.add_row(estimate.policy, *_cells(estimate), style="bold" if estimate.mean == best else "")
    console = SafeConsole()
    console.print(table)
    if doubts:
        console.print(Text(f"Who gains more is not known: estimates ({', '.join(doubts)}) are too low, as was warned."))
    elif len(estimates) > 1:
        console.print(_chances(estimates))


def _certified(estimates: "Comparison", title: str, caption: str) -> None:
    """Print certificates, and how much less each policy gains than the best."""
    ranked = sorted(estimates, key=lambda estimate: -estimate.mean)
    best = ranked[0].policy
    table = Table(title=f"{title}, in nats", caption=caption)
    table.add_column("policy", no_wrap=True)
    limited = estimates[0].violation is not None
    for heading in ("EIG", "95 % interval", *(["limits broken"] if limited else ["bounds"]), "below best"):
        table.add_column(heading, justify="right", no_wrap=True)
    for estimate in estimates:
        found = estimate.certificate
        assert found is not None
        less = "–"
        if estimate.policy != best:
            gap = estimates.difference(best, estimate.policy)
            less = f"{gap.mean:.2f} ± {0.5 * (gap.interval.high - gap.interval.low):.2f}"
        beside = _range(found.lower, found.upper, 3)
        if estimate.violation is not None:
            beside = f"{100 * estimate.violation.probability:.{3 if estimate.violation.probability > 0.1 else 2}g} %"
        cells = [f"{found.mean:.2f}", _range(*found.interval), beside, less]
        table.add_row(estimate.policy, *cells, style="bold" if estimate.policy == best else "")
    SafeConsole().print(table)


def _range(low: float, high: float, digits: int = 2) -> str:
    return f"{low:.{digits}f} … {high:.{digits}f}"


def _cells(estimate: "PolicyEstimate") -> list[str]:
    bounds = [bound for bound in (estimate.spce, estimate.snmc) if bound is not None]
    return [
        f"{estimate.mean:.2f}",
        or_dash(estimate.sd, 2),
        or_dash(estimate.standard_error, 3),
        *(f"{bound.mean:.2f}±{or_dash(bound.standard_error, 2)}" for bound in bounds),
    ]


def _chances(estimates: "Comparison") -> Table:
    """Return the probability that each policy beats each other one, numbered to save room."""
    table = Table(
        title="probability that the policy of the row gains more than that of the column",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("policy", no_wrap=True)
    for i in range(len(estimates)):
        table.add_column(str(i + 1), justify="right", no_wrap=True)
    for i, estimate in enumerate(estimates):
        chances = [estimates.beats(estimate.policy, other.policy) for other in estimates]
        cells = ["–" if i == j else _chance(chance) for j, chance in enumerate(chances)]
        table.add_row(f"{i + 1} {estimate.policy}", *cells)
    return table


def _chance(value: float) -> str:
    """Return a probability of two digits that never claims to be certain."""
    return "–" if value != value else ">.99" if value > 0.995 else "<.01" if value < 0.005 else f"{value:.2f}"[1:]


def evaluation(rows: "list[tuple[str, Estimate, str]]", title: str, caption: str) -> None:
    """Print what is known of one policy: an estimate a line, with a remark."""
    table = Table(title=title, caption=caption)
    table.add_column("")
    for heading in ("nats", "st. error", "sd of seeds"):
        table.add_column(heading, justify="right")
    table.add_column("estimate or bound", no_wrap=True)
    for name, estimate, remark in rows:
        numbers = (f"{estimate.mean:.2f}", or_dash(estimate.standard_error, 3), or_dash(estimate.sd, 2))
        table.add_row(name, *numbers, remark)
    SafeConsole().print(table)
