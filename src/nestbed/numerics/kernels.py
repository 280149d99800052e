"""How filters run fast on CPUs: what XLA is told beside what is computed.

XLA makes one kernel for each result of a step, and computes anew in each what several of them need; sines, cosines and
exponentials it takes for cheap. Here a value is computed `once`, and elementary functions are `faster`. Both change how
something is computed and, but for a last digit, never what; elsewhere than on CPUs they do nothing. The tag is a name
of XLA's own, in no document: where it is not known, programs are slower and the same.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata

from nestbed.numerics import elementary, rewriting

T = TypeVar("T")

APART = {"inlineable": "false"}
"""Of a call: what goes in and comes out is in memory, and nothing is fused across."""


def once(values: T) -> T:
    """Return the same arrays, each of them computed once and not anew wherever it is needed; numbers stay numbers."""
    arrays = [leaf for leaf in jax.tree.leaves(values) if not isinstance(leaf, float | int)]
    if not arrays or not _on_cpu():
        return values
    kept = iter(_same(*arrays))
    return jax.tree.map(lambda leaf: leaf if isinstance(leaf, float | int) else next(kept), values)


def faster(function: Callable[..., T]) -> Callable[..., T]:
    """Return a function whose sines, cosines, logarithms and exponentials are fast ones, each computed once."""

    @functools.wraps(function)
    def run(*arguments: Any) -> T:
        return (rewriting.rewritten(function, FASTER) if _on_cpu() else function)(*arguments)

    return run


def _on_cpu() -> bool:
    return jax.default_backend() == "cpu"


def _tagged(function: Callable[..., Any], tags: dict[str, str]) -> Callable[..., Any]:
    """Return a function as a call with tags, which calls within it do not have."""

    @jax.jit
    def inner(*arguments: Any) -> Any:
        with set_xla_metadata(**dict.fromkeys(tags)):
            return function(*arguments)

    def call(*arguments: Any) -> Any:
        with set_xla_metadata(**tags):
            return inner(*arguments)

    return call


_same = _tagged(lambda *arrays: arrays, APART)


def _once(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return jax.jit(lambda x: _same(function(x))[0])


FASTER: dict[str, Callable[[Any], Any]] = {
    "sin": _once(elementary.sin),
    "cos": _once(elementary.cos),
    "log": jax.jit(elementary.log),  # of a variance, which one sum alone needs
    "exp": _once(jnp.exp),  # fast already, but taken for cheap
}
"""What stands for functions of doubles."""
