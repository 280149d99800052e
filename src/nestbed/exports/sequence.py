"""A plan as CSV: designs in order, of a policy that looks at nothing."""

import json

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from nestbed.exports.about import About
from nestbed.numerics.errors import NestbedError
from nestbed.planning.plan import INPUTS, inputs_as_csv
from nestbed.policies.base import prepare

README = """
`inputs.csv` has one row per experiment: when each design is applied, and one column per design. In any language; here
in Python:

```python
import csv
import json

with open("inputs.csv", newline="") as stream:
    rows = list(csv.DictReader(stream))
names = {names}
check = json.load(open("check.json"))
off = max(abs(float(row[name]) - u[i]) for row, u in zip(rows, check["u"]) for i, name in enumerate(names))
for row in rows:
    u = [float(row[name]) for name in names]  # apply these for one step
print(f"{{len(rows)}} designs; at most {{off:.1e}} off")
```
"""


def files(about: About) -> dict[str, bytes]:
    """Return the files by name."""
    if about.adapts:
        raise NestbedError(
            f"the policy {type(about.policy).__name__} adapts its designs to what is seen, so that no sequence stands "
            "for it; export it as c, onnx or jax, or export a plan (nb.design)."
        )
    facts = json.dumps({**about.facts, "seed": about.seed}, indent=1, ensure_ascii=False) + "\n"
    return {INPUTS: inputs_as_csv(about.system, _designs(about)).encode(), "policy.json": facts.encode()}


def readme(about: About) -> str:
    """Return how to use them."""
    return README.format(names=json.dumps([*about.system.design_names], ensure_ascii=False))


def check(about: About) -> dict[str, object]:
    """Return the first rows."""
    return {"u": _designs(about)[:5].tolist()}


def _designs(about: About) -> Float[np.ndarray, "T du"]:
    """Return what the policy chooses one after the other, from the rest design on."""
    system, horizon = about.system, about.horizon or about.system.horizon
    ready, key = prepare(about.policy, system, horizon), jax.random.key(about.seed)
    nothing = jnp.zeros(len(system.observation_names))
    step = jax.jit(lambda t, carry, u: ready.step(jax.random.fold_in(key, t), carry, nothing, u))
    carry, u, found = ready.init(), jnp.array(system.rest_design), []
    for t in range(horizon):
        carry, u = step(t, carry, jnp.asarray(u, float))
        found.append(np.asarray(u, float))
    return np.array(found)
