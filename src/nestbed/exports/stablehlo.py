"""A policy as StableHLO: a program that plain jax runs, on any of its platforms."""

import json
from collections.abc import Callable
from typing import Any

import jax

from nestbed.exports.about import About, noise_names
from nestbed.exports.program import Program
from nestbed.numerics.errors import NestbedError

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
"""Where the program runs."""
WIDE = 'jax.config.update("jax_enable_x64", True)  # it computes in double precision\n'
README = """
`policy.stablehlo` is a program for jax {version} or newer (what it guarantees: half a year in both directions):
(carry, y, u_previous[, noise]) → (carry, u), without nestbed. `policy.json` has names, units and what a record
begins with. It needs `pip install jax flatbuffers`.

```python
import json

import jax
import jax.numpy as jnp

{wide}about, check = json.load(open("policy.json")), json.load(open("check.json"))
step = jax.jit(jax.export.deserialize(bytearray(open("policy.stablehlo", "rb").read())).call)

carry = tuple(jnp.asarray(each["start"], each["type"]) for each in about["carry"])  # the beginning of a record
u = jnp.asarray([each["rest"] for each in about["u"]], "{kind}")
off = 0.0
for t, y in enumerate(check["y"]):  # in their place, what your rig shows
    carry, u = step(carry, jnp.asarray(y, u.dtype), u{noise})  # the last: the design that was applied before
    for value, known, each in zip(u, check["u"][t], about["u"]):
        off = max(off, 2.0 * abs(float(value) - known) / (each["high"] - each["low"]))
print(f"at most {{off:.1e}} of half the box off")
assert off < {tolerance}
```
"""


def files(about: About) -> dict[str, bytes]:
    """Return the files by name."""
    try:
        import flatbuffers  # noqa: F401  # what jax writes its programs by
    except ImportError:
        raise NestbedError("the export to jax needs the package flatbuffers: pip install 'nestbed[export]'.") from None
    program = about.program
    shapes = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in program.inputs]
    held = len(program.carry)
    exported = jax.export.export(jax.jit(_function(program)), platforms=PLATFORMS)(tuple(shapes[:held]), *shapes[held:])
    facts = json.dumps({**about.facts, **about.arguments}, indent=1, ensure_ascii=False) + "\n"
    return {"policy.stablehlo": bytes(exported.serialize()), "policy.json": facts.encode()}


def check(about: About) -> dict[str, Any]:
    """Return a few steps to compare with."""
    return about.steps


def readme(about: About) -> str:
    """Return how to use them."""
    noise = "".join(f", jnp.asarray(check['{name}'][t], u.dtype)" for name in noise_names(about.program))
    return README.format(
        version=jax.__version__,
        noise=noise,
        kind="float32" if about.single else "float64",
        wide="" if about.single else WIDE,
        tolerance="1e-4" if about.single else "1e-6",
    )


def _function(program: Program) -> Callable[..., Any]:
    """Return the program as a function (carry, y, u_previous, *noise) → (carry, u)."""

    def step(carry: Any, *given: Any) -> Any:
        *carry_next, u = program.step([*carry, *given])
        return tuple(carry_next), u

    return step
