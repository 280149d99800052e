"""Beliefs: the running parameter posterior of each record, exact or by particles."""

from typing import TYPE_CHECKING, Any

from nestbed.numerics.lazy import exported

if TYPE_CHECKING:
    from nestbed.belief.base import Belief
    from nestbed.belief.exact import Exact
    from nestbed.belief.guided import Guided
    from nestbed.belief.ibis import IBIS
    from nestbed.belief.making import make, simplest

__all__ = ["IBIS", "Belief", "Exact", "Guided", "make", "simplest"]


def __getattr__(name: str) -> Any:
    return exported(
        __name__,
        name,
        {
            "Belief": "base",
            "Exact": "exact",
            "Guided": "guided",
            "IBIS": "ibis",
            "make": "making",
            "simplest": "making",
        },
    )


def __dir__() -> list[str]:
    return __all__
