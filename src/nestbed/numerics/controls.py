"""Control variates: quantities whose mean is known to be zero take variance from those whose mean is sought."""

import numpy as np
from jaxtyping import Float

FOLDS = 4
"""Parts of the values; the coefficients of each part come from the others, so that no mean is biased by them."""
ROOM = 8
"""Values of the other parts that each coefficient needs; with fewer values the last controls are left out."""


def adjusted(values: Float[np.ndarray, "N *k"], controls: Float[np.ndarray, "N p"]) -> Float[np.ndarray, "N *k"]:
    """Return values of the same expectation and less variance: each less a regression on the controls.

    The first control counts with the coefficient 1 before any regression.
    """
    count = len(values)
    less = values - controls[:, :1].reshape(count, *[1] * (values.ndim - 1))
    used = controls[:, : max(0, count * (FOLDS - 1) // FOLDS // ROOM)]
    if count < 2 * FOLDS or not used.size:
        return less
    part = np.arange(count) % FOLDS
    result = np.empty_like(less)
    for fold in range(FOLDS):
        others, mine = part != fold, part == fold
        design = np.column_stack([np.ones(others.sum()), used[others]])
        coefficients = np.linalg.lstsq(design, less[others], rcond=None)[0][1:]
        result[mine] = less[mine] - used[mine] @ coefficients
    return result
