"""A mean with its error: the one type in which every estimate and every bound is given."""

import math
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from nestbed.numerics.intervals import Interval, of_mean


@dataclass(frozen=True, eq=False)
class Estimate:
    """The mean of independent values, one of each simulated record, in nats."""

    values: Float[np.ndarray, " N"] = field(repr=False)
    seeds: int = 1  # equal parts of the values, whose means' spread is `sd`
    steps: Float[np.ndarray, "N T"] | None = field(repr=False, default=None)  # by experiment, where that is known
    limit: str = field(repr=False, default="")  # a sentence, where what estimated them could show no more

    @property
    def mean(self) -> float:
        """The mean of all values."""
        return float(self.values.mean())

    @property
    def standard_error(self) -> float:
        """Of the mean; NaN for a single value."""
        count = len(self.values)
        return float(self.values.std(ddof=1) / np.sqrt(count)) if count > 1 else math.nan

    @property
    def sd(self) -> float:
        """Standard deviation of the seeds' means; NaN for a single seed."""
        means = self.values.reshape(self.seeds, -1).mean(axis=1)
        return float(means.std(ddof=1)) if self.seeds > 1 else math.nan

    @property
    def interval(self) -> Interval:
        """Where the expected value lies, with 95 % confidence: by Student's t, corrected for skewness."""
        return of_mean(self.values)

    @property
    def gains(self) -> Float[np.ndarray, " N"]:
        """Information gained by each record: another name for the values."""
        return self.values

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.standard_error:.2f} nats"

    def __repr__(self) -> str:
        return f"Estimate(mean={self.mean!r}, standard_error={self.standard_error!r}, records={len(self.values)})"
