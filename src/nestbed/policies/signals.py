"""The excitations that engineers use today: signals fixed beforehand, whatever the outcomes."""

import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nestbed.model import checks
from nestbed.model.system import BaseSystem
from nestbed.numerics.errors import NestbedError, at_least_one
from nestbed.policies.base import Hashable, bound


class Replay(Hashable):
    """A given signal, one row of designs per experiment; it begins again when it ends."""

    open_loop: ClassVar[bool] = True
    table: Float[Array, "period du"]
    system: BaseSystem = eqx.field(static=True)
    hold: int = eqx.field(static=True)  # experiments that each row is held for

    def __init__(self, system: BaseSystem, designs: Any, hold: int = 1):
        checks.instance(system)
        at_least_one(hold=hold)
        count = len(system.design_names)
        table = checks.numbers("the signal", designs)
        if table.ndim != 2 or table.shape[1] != count or not len(table):
            raise NestbedError(
                f"the signal has the shape {table.shape}, but {system.name} needs one row of {count} design(s) "
                f"{system.design_names} per experiment."
            )
        self.table, self.system, self.hold = jnp.array(table), system, hold

    def signal(self, horizon: int) -> Float[np.ndarray, "T du"]:
        """Return its designs over so many experiments."""
        held = np.repeat(np.asarray(self.table), self.hold, axis=0)
        return np.resize(held, (horizon, held.shape[1]))

    def init(self) -> Int[Array, ""]:
        """Return no experiment done."""
        return jnp.zeros((), jnp.int32)

    @bound
    def step(
        self, key: jax.Array, carry: Int[Array, ""], y: Float[Array, " dy"], u_previous: Float[Array, " du"]
    ) -> tuple[Int[Array, ""], Float[Array, " du"]]:
        """Return the next row."""
        return carry + 1, self.table[(carry // self.hold) % self.table.shape[0]]


def inputs_of(system: BaseSystem, plan: Any, horizon: int | None = None) -> Float[np.ndarray, "T du"]:
    """Return the inputs of a plan, of a signal or of a table, over so many experiments; by default all of them."""
    given = getattr(plan, "policy", plan)
    signal = given if isinstance(given, Replay) else Replay(system, given)
    rows = len(signal.table) * signal.hold
    if horizon is not None and type(signal) is Replay and rows != horizon:
        raise NestbedError(
            f"the plan has {rows} rows, but the horizon is {horizon}; give one row per experiment, or make the horizon "
            f"{rows}."
        )
    found = signal.signal(rows if horizon is None else horizon)
    outside = np.argwhere(~system.designs.contains(found))  # NaN among them
    if len(outside):
        t, channel = outside[0]
        raise NestbedError(
            f"the plan has {system.design_names[channel]} = {found[t, channel]:g} in experiment {t}, but the limits of "
            f"{system.name} are {system.designs.low[channel]} and {system.designs.high[channel]}; keep it inside."
        )
    return np.asarray(system.designs.clip(found))


class Constant(Replay):
    """The same design always: one number per channel, from −1 (the lower limit) to 1 (the upper), or one for all."""

    def __init__(self, system: BaseSystem, level: Any = 1.0):
        checks.instance(system)
        unit = np.broadcast_to(checks.numbers("the level", level), (1, len(system.design_names)))
        super().__init__(system, _within(system, unit))


class Chirp(Replay):
    """A sine between the limits whose frequency rises linearly over the horizon, and then begins again.

    Frequencies are in cycles per unit of time; by default from one cycle per horizon to a tenth of the sampling rate.
    Several channels are spread over half a cycle of phase.
    """

    def __init__(
        self, system: BaseSystem, low: float | None = None, high: float | None = None, horizon: int | None = None
    ):
        checks.instance(system)
        steps = _horizon(system, horizon)
        low, high = _band(system, low, high, steps)
        time = system.step * np.arange(steps)
        phase = 2.0 * math.pi * (low * time + 0.5 * (high - low) * time**2 / (system.step * steps))
        count = len(system.design_names)
        super().__init__(system, _within(system, np.sin(phase[:, None] + math.pi * np.arange(count) / count)))


class Multisine(Replay):
    """A sum of sines of equal power at harmonics of one cycle per horizon, with Schroeder's phases, scaled to the box.

    Frequencies are in cycles per unit of time; by default from one cycle per horizon to a tenth of the sampling rate.
    Several channels take the harmonics in turn, so that they are uncorrelated over a horizon.
    """

    def __init__(
        self, system: BaseSystem, low: float | None = None, high: float | None = None, horizon: int | None = None
    ):
        checks.instance(system)
        steps, count, wanted = _horizon(system, horizon), len(system.design_names), high
        low, high = _band(system, low, high, steps)
        base = 1.0 / (system.step * steps)
        first = max(1, math.ceil(low / base - 1e-9))
        last = math.floor(high / base + 1e-9)
        if wanted is None:
            last = max(last, min(first + count - 1, steps // 2))
        harmonics = np.arange(first, last + 1)
        if len(harmonics) < count:
            raise NestbedError(
                f"from {low:g} to {high:g} there are {len(harmonics)} harmonics of one cycle per horizon, but the "
                f"{count} channels of {system.name} need one each; widen the band or lengthen the horizon."
            )
        time = system.step * np.arange(steps)
        columns = []
        for channel in range(count):
            own = harmonics[channel::count]
            phases = -math.pi * np.arange(len(own)) * (np.arange(len(own)) + 1) / len(own)
            wave = np.cos(2.0 * math.pi * base * own * time[:, None] + phases).sum(axis=1)
            columns.append(wave / np.abs(wave).max())
        super().__init__(system, _within(system, np.stack(columns, axis=1)))


class MaximumLength(Replay):
    """A pseudo-random binary signal of maximum length between the limits, each value held for `hold` experiments.

    A shift register of `order` stages repeats after 2^order − 1 values; by default the shortest that does not repeat
    within the horizon. Several channels are the same sequence shifted evenly against each other.
    """

    def __init__(self, system: BaseSystem, hold: int = 4, order: int | None = None, horizon: int | None = None):
        checks.instance(system)
        at_least_one(hold=hold)
        from scipy.signal import max_len_seq

        steps, count = _horizon(system, horizon), len(system.design_names)
        least = math.ceil(math.log2(count + 1))  # stages without which two channels would be the same
        order = max(2, least, math.ceil(math.log2(steps / hold + 1))) if order is None else order
        if not isinstance(order, int) or not max(2, least) <= order <= 20:
            raise NestbedError(
                f"order is {order!r}, but a shift register of {count} channel(s) has from {max(2, least)} to 20 stages."
            )
        signs = 2.0 * max_len_seq(order)[0] - 1.0
        shifts = [round(channel * len(signs) / count) for channel in range(count)]
        super().__init__(system, _within(system, np.stack([np.roll(signs, -s) for s in shifts], axis=1)), hold)


def _horizon(system: BaseSystem, horizon: int | None) -> int:
    steps = system.horizon if horizon is None else horizon
    at_least_one(horizon=steps)
    return steps


def _band(system: BaseSystem, low: float | None, high: float | None, steps: int) -> tuple[float, float]:
    """Return the lowest and the highest frequency, the defaults filled in."""
    nyquist = 0.5 / system.step
    for name, value in (("low", low), ("high", high)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise NestbedError(f"{name} is {value!r}, but it must be a frequency, in cycles per unit of time.")
    low = min(1.0 / (system.step * steps), nyquist) if low is None else low
    high = max(0.1 / system.step, low) if high is None else high
    if not 0 < low <= high <= nyquist * (1 + 1e-9):
        raise NestbedError(
            f"the frequencies are {low!r} to {high!r}, but they must be positive, in rising order and at most "
            f"{nyquist:g}, half the sampling rate of {system.name} (step = {system.step:g})."
        )
    return low, high


def _within(system: BaseSystem, unit: Float[np.ndarray, "period du"]) -> Float[np.ndarray, "period du"]:
    """Return a signal within ±1 stretched to the box."""
    return system.designs.clip(system.designs.scale(unit))
