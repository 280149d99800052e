"""From a policy to the program of one of its steps."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from nestbed.exports.building import Builder
from nestbed.exports.program import Operand, Operation, Program, Value
from nestbed.model.system import BaseSystem
from nestbed.numerics.errors import NestbedError
from nestbed.policies.base import prepare

CALLS = frozenset(
    {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "checkpoint", "remat2"}
)
"""Primitives that stand for what is written within them."""
TRUNCATED = frozenset({"_truncated_normal"})
"""Calls that make numbers of the key as standard normal ones are made, which they are not."""
SEARCHING = frozenset({"Replan", "Greedy", "Myopic"})
"""Policies that infer and search at every step."""


def traced(policy: Any, system: BaseSystem, *, single: bool = False) -> Program:
    """Return one step of a policy as a program, in the policy's own types or all of it in single precision."""
    _check_belief(policy)
    ready, builder = prepare(policy, system), Builder(single)
    start = jax.tree.map(jnp.asarray, ready.init())
    leaves, structure = jax.tree.flatten(start)

    def step(key: Any, leaves: Any, y: Any, u_previous: Any) -> Any:
        carry, u = ready.step(key, jax.tree.unflatten(structure, leaves), y, u_previous)
        return jax.tree.leaves(carry), u

    seen, designs = jnp.zeros(len(system.observation_names)), jnp.zeros(len(system.design_names))
    written = jax.make_jaxpr(step)(jax.random.key(0), leaves, seen, designs)
    shapes: list[Any] = [var.aval for var in written.jaxpr.invars]
    key = builder.value((), shapes[0].dtype, from_key=True)
    *carry, y, u_previous = (builder.value(each.shape, each.dtype) for each in shapes[1:])
    *carry_next, u = _walk(written.jaxpr, written.consts, [key, *carry, y, u_previous], builder)
    found = _pruned(builder, carry, y, u_previous, carry_next, u, [builder.constant(leaf).array for leaf in leaves])
    _check_key(found, type(policy).__name__)
    return found


def _walk(jaxpr: Jaxpr, constants: Any, arguments: list[Operand], builder: Builder) -> list[Operand]:
    """Add the equations of a jaxpr, and of those within it, to the program."""
    known: dict[Any, Operand] = dict(zip(jaxpr.invars, arguments, strict=True))
    known |= {var: builder.constant(value) for var, value in zip(jaxpr.constvars, constants, strict=True)}

    def read(var: Any) -> Operand:
        if not isinstance(var, Literal):
            return known[var]
        kind: Any = var.aval
        return builder.constant(np.asarray(var.val, kind.dtype))

    for equation in jaxpr.eqns:
        inputs = [read(var) for var in equation.invars]
        inner = _inner(equation)
        if equation.params.get("name") in TRUNCATED:
            places: list[Any] = [var.aval for var in equation.outvars]
            outputs: list[Operand] = [builder.value(each.shape, each.dtype) for each in places]  # made by nothing
        elif inner is None:
            shapes = [var.aval for var in equation.outvars]
            outputs = builder.add(equation.primitive, inputs, equation.params, shapes)
        else:
            outputs = _walk(inner.jaxpr, inner.consts, inputs, builder)
        known |= dict(zip(equation.outvars, outputs, strict=True))
    return [read(var) for var in jaxpr.outvars]


def _inner(equation: Any) -> ClosedJaxpr | None:
    """Return what a call stands for; None of any other primitive."""
    if equation.primitive.name not in CALLS:
        return None
    found = next(equation.params[name] for name in ("jaxpr", "call_jaxpr", "fun_jaxpr") if name in equation.params)
    return found if isinstance(found, ClosedJaxpr) else ClosedJaxpr(found, ())


def _pruned(builder: Builder, carry: Any, y: Any, u_previous: Any, carry_next: Any, u: Any, start: Any) -> Program:
    """Return the program with nothing in it, and nothing carried, that no design hangs on."""
    kept: set[int] = set()
    while True:
        wanted = {u, *(carry_next[i] for i in kept)}
        operations: list[Operation] = []
        for each in reversed(builder.operations):
            if wanted & {*each.outputs}:
                operations.append(each)
                wanted |= {*each.inputs}
        needed = {i for i, value in enumerate(carry) if value in wanted}
        if needed <= kept:
            break
        kept |= needed
    order = sorted(kept)
    chosen = [tuple(each[i] for i in order) for each in (carry, carry_next, start)]
    noise = tuple(each for each in builder.noise if each in wanted)
    return Program(chosen[0], y, u_previous, noise, tuple(reversed(operations)), chosen[1], u, chosen[2])


def _check_belief(policy: Any) -> None:
    """Refuse a policy that infers and searches as it goes, also within another."""
    while policy is not None:
        name = type(policy).__name__
        if name in SEARCHING and type(policy).__module__.startswith("nestbed."):
            raise NestbedError(
                f"{name} keeps a belief about the parameters and searches at every step, which needs nestbed itself: "
                "let a session (nb.Session) choose the designs, or export a policy that was trained (nb.train), which "
                "has learned to react, or a plan (nb.design)."
            )
        policy = getattr(policy, "policy", None)


def _check_key(found: Program, name: str) -> None:
    """Refuse random numbers that are no standard normal ones."""
    made = {*found.inputs, *(value for each in found.operations for value in each.outputs)}
    used = {each for operation in found.operations for each in operation.inputs if isinstance(each, Value)}
    if (used | {each for each in found.outputs if isinstance(each, Value)}) - made:
        raise NestbedError(
            f"the policy {name} draws its designs by other random numbers than standard normal ones, which are all "
            "that an exported step can be given; export a sequence drawn beforehand (csv), or a policy without noise."
        )
