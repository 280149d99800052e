"""A policy as C99 without dependencies: policy.h, policy.c, and check.c, which compares a few steps."""

import textwrap
from typing import Any

import numpy as np

from nestbed.exports.about import About, noise_names
from nestbed.exports.c_code import Code, written
from nestbed.exports.c_expressions import TYPES, digits
from nestbed.exports.program import Program
from nestbed.exports.tracing import traced

HEADER = """/* {title}

{words}

   What is given, and what comes back:
{names}
*/
#ifndef POLICY_H
#define POLICY_H

#include <stdint.h>

/* Compile with -DPOLICY_SINGLE where only float is fast: the file is then without double. */
{single}#ifdef POLICY_SINGLE
typedef float policy_real;
#else
typedef double policy_real;
#endif

enum {{ {sizes} }};

/* All memory that there is: what is carried from step to step, then room to work in. Make it static. */
typedef struct {{
{memory}
}} policy;

/* The design before the first one. */
extern const policy_real policy_rest[{designs}];

/* Begin a record. */
void policy_init(policy *p);

/* From what was seen, and the design before, to the next design; u may be u_previous. */
void policy_step(policy *p, const policy_real y[], const policy_real u_previous[],{noise} policy_real u[]);

#endif
"""
SOURCE = """/* {title}: see policy.h. */
#include "policy.h"

#include <math.h>
#include <stdlib.h>

typedef policy_real real;
#define R(number) ((real)(number))
#ifdef POLICY_SINGLE
#define REAL(function) function##f
#else
#define REAL(function) function
#endif

const policy_real policy_rest[{designs}] = {{ {rest} }};

{parts}
void policy_init(policy *p)
{{
{start}
}}

void policy_step(policy *p, const policy_real y[], const policy_real u_previous[],{noise} policy_real u[])
{{
{unused}{steps}
}}
"""
CHECK = """/* Compares a few steps with what nestbed found: cc -std=c99 policy.c check.c -lm && ./a.out */
#include "policy.h"

#include <math.h>
#include <stdio.h>

enum {{ STEPS = {steps} }};
static const policy_real y[STEPS][{seen}] = {{ {y} }};
static const policy_real u_previous[STEPS][{designs}] = {{ {u_previous} }};
static const policy_real expected[STEPS][{designs}] = {{ {u} }};
static const policy_real half_box[{designs}] = {{ {half} }};
{noise_table}static policy p;

int main(void)
{{
    policy_real u[{designs}];
    double most = 0.0;
    policy_init(&p);
    for (int t = 0; t < STEPS; ++t) {{
        policy_step(&p, y[t], u_previous[t],{noise} u);
        for (int i = 0; i < {designs}; ++i) {{
            const double off = fabs((double)(u[i] - expected[t][i]) / (double)half_box[i]);
            most = off <= most ? most : off; /* NaN is off */
        }}
    }}
    printf("at most %.1e of half the box off\\n", most);
    return !(most < (sizeof(policy_real) < sizeof(double) ? {loose} : {tight}));
}}
"""
WIDTH = 116
README = """
`policy.c` and `policy.h` are C99 without dependencies but math.h, without malloc: all memory is in the struct, so that
several records can go on at once. `-DPOLICY_SINGLE` makes `policy_real` float in place of double. Compile without
`-ffast-math`, which takes NaN for a number. Whether they do here what they did where they were written:

```
cc -std=c99 -O2 policy.c check.c -o check -lm && ./check
cc -std=c99 -O2 -DPOLICY_SINGLE policy.c check.c -o check -lm && ./check
```

```c
#include "policy.h"

static policy p;
static policy_real y[POLICY_OBSERVATIONS], u[POLICY_DESIGNS];

void begin(void)
{{
    policy_init(&p);
    for (int i = 0; i < POLICY_DESIGNS; ++i) u[i] = policy_rest[i];
}}

void sample(void) /* once per step, when y has been read */
{{
{drawn}    policy_step(&p, y, u, {noise}u); /* from the design that was applied before to the next */
}}
```
"""


def files(about: About) -> dict[str, bytes]:
    """Return the files by name."""
    program = traced(about.policy, about.system)  # whether double or single is chosen where it is compiled
    noise = noise_names(program)
    names = {value: f"p->carry_{i}" for i, value in enumerate(program.carry)}
    names |= {program.y: "y", program.u_previous: "u_previous", **dict(zip(program.noise, noise, strict=True))}
    code = written(program, names, [*(f"p->carry_{i}" for i in range(len(program.carry))), "u"])
    given = "".join(f" const policy_real {name}[]," for name in noise)
    header, source = _header(program, about, code, given), _source(program, about, code, given)
    return {"policy.h": header.encode(), "policy.c": source.encode(), "check.c": _check(program, about).encode()}


def check(about: About) -> dict[str, Any]:
    """Return a few steps to compare with."""
    return about.steps


def readme(about: About) -> str:
    """Return how to use them."""
    noise = [(name, each.size) for name, each in zip(noise_names(about.program), about.program.noise, strict=True)]
    return README.format(
        noise="".join(f"{name}, " for name, _ in noise),
        drawn="".join(
            f"    policy_real {name}[{size}]; /* fill it with standard normal numbers */\n" for name, size in noise
        ),
    )


def _header(program: Program, about: About, code: Code, noise: str) -> str:
    carried = [f"{_kind(value)} carry_{i}[{value.size}];" for i, value in enumerate(program.carry)]
    room = [each.replace("real ", "policy_real ", 1) if each.startswith("real ") else each for each in code.memory]
    sizes = {"POLICY_OBSERVATIONS": program.y.size, "POLICY_DESIGNS": len(about.system.design_names)}
    sizes |= {
        f"POLICY_{name.upper()}": each.size for name, each in zip(noise_names(program), program.noise, strict=True)
    }
    return HEADER.format(
        title=_harmless(about.title),
        words=textwrap.indent(textwrap.fill(_harmless(" ".join(about.words)), WIDTH - 3), "   "),
        names=textwrap.indent(_harmless("\n".join(about.lines)), "   "),
        single="#ifndef POLICY_SINGLE\n#define POLICY_SINGLE\n#endif\n" if about.single else "",
        sizes=", ".join(f"{name} = {size}" for name, size in sizes.items()),
        memory=textwrap.indent("\n".join([*carried, *room] or ["unsigned char nothing;"]), "    "),
        designs=len(about.system.design_names),
        noise=noise,
    )


def _source(program: Program, about: About, code: Code, noise: str) -> str:
    steps = "\n".join(code.steps)
    unused = [name for name in ("y", "u_previous", "p") if f"{name}[" not in steps and f"{name}->" not in steps]
    start = [_begun(i, value) for i, value in enumerate(program.start)] or ["(void)p;"]
    return SOURCE.format(
        title=_harmless(about.title),
        designs=len(about.system.design_names),
        rest=", ".join(map(str, about.system.rest_design)),
        parts="".join(f"{each}\n\n" for each in [*code.tables, *code.functions]),
        start=textwrap.indent("\n".join(start), "    "),
        noise=noise,
        unused="".join(f"    (void){name};\n" for name in unused),
        steps=textwrap.indent(steps, "    "),
    )


def _begun(i: int, value: Any) -> str:
    """Return how a part of the carry begins."""
    numbers = value.ravel()
    if (numbers == numbers[0]).all():
        return f"for (int i = 0; i < {numbers.size}; ++i) {{\n    p->carry_{i}[i] = {digits(numbers[0])};\n}}"
    kind, listed = TYPES[str(value.dtype)], textwrap.fill(", ".join(map(digits, numbers)), WIDTH - 8)
    return (
        f"{{\n    static const {kind} first[] = {{\n{textwrap.indent(listed, '        ')}\n    }};\n"
        f"    for (int i = 0; i < {numbers.size}; ++i) {{\n        p->carry_{i}[i] = first[i];\n    }}\n}}"
    )


def _check(program: Program, about: About) -> str:
    def rows(name: str) -> str:
        return ", ".join(
            "{" + ", ".join(repr(float(each)) for each in np.ravel(row)) + "}" for row in about.steps[name]
        )

    names = noise_names(program)
    tables = [
        f"static const policy_real {name}[STEPS][{each.size}] = {{ {rows(name)} }};\n"
        for name, each in zip(names, program.noise, strict=True)
    ]
    return CHECK.format(
        steps=len(about.steps["y"]),
        seen=program.y.size,
        designs=len(about.system.design_names),
        y=rows("y"),
        u_previous=rows("u_previous"),
        u=rows("u"),
        half=", ".join(repr(float(each)) for each in about.half),
        noise_table="".join(tables),
        noise="".join(f" {name}[t]," for name in names),
        loose="1e-4",
        tight="1e-6",
    )


def _kind(value: Any) -> str:
    kind = TYPES[str(value.dtype)]
    return f"policy_{kind}" if kind == "real" else kind


def _harmless(text: str) -> str:
    """Return text that ends no comment."""
    return text.replace("\\", "/").replace("*/", "* /").replace("/*", "/ *")
