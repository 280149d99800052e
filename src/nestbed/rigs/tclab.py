"""The temperature-control lab, the board or its emulator, by the package `tclab`."""

import time as clocks
from typing import Any

import numpy as np
from jaxtyping import Float

from nestbed.rigs.base import extra

STEP = 0.3223
"""Kelvin that the converter of the board tells apart; what lies between is cut off."""


class TemperatureLab:
    """One heater of the board: the design is its power in %, what is seen is its temperature.

    The board itself is `TemperatureLab()`; `TemperatureLab(emulated=True)` runs the package's emulator, as fast as it
    can. Temperatures are above the first one measured, unless `ambient` says what the room's is, and in the middle of
    the converter's steps, so that what it cuts off is no offset. `seconds` is what one experiment lasts.
    """

    def __init__(self, *, seconds: float = 10.0, heater: int = 1, emulated: bool = False, ambient: float | None = None):
        try:
            import tclab
        except ImportError:
            raise extra("tclab", "tclab") from None
        self.seconds, self.heater, self.emulated, self.ambient = seconds, heater, emulated, ambient
        self.lab: Any = tclab.TCLabModel(synced=False) if emulated else tclab.TCLab()
        self._now, self._since = 0.0, clocks.monotonic()

    def reset(self) -> Float[np.ndarray, " 1"]:
        """Switch the heater off and measure."""
        self._power(0.0)
        if self.ambient is None:
            self.ambient = self._temperature()
        self._since = clocks.monotonic() - self._now
        return self._seen()

    def apply(self, u: Any) -> Float[np.ndarray, " 1"]:
        """Heat for one experiment, then measure."""
        self._power(float(np.asarray(u).reshape(-1)[0]))
        self._wait()
        return self._seen()

    def close(self) -> None:
        """Switch the heater off and let the board go."""
        self._power(0.0)
        self.lab.close()

    def _power(self, percent: float) -> None:
        (self.lab.Q1 if self.heater == 1 else self.lab.Q2)(percent)

    def _temperature(self) -> float:
        return float(self.lab.T1 if self.heater == 1 else self.lab.T2) + 0.5 * STEP

    def _seen(self) -> Float[np.ndarray, " 1"]:
        return np.array([self._temperature() - (self.ambient or 0.0)])

    def _wait(self) -> None:
        """Let time pass: that of the emulator is told; for that of the board one waits, from one sample to the next."""
        self._now += self.seconds
        if self.emulated:
            self.lab.update(self._now)
        else:
            clocks.sleep(max(0.0, self._since + self._now - clocks.monotonic()))
