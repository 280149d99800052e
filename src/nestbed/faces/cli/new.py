"""`nestbed new`."""

from __future__ import annotations

from pathlib import Path

from nestbed.numerics.errors import NestbedError

TEMPLATE = '''"""{title}: a system of your own. Change what is here until it is yours; each part says what it is for."""

import jax.numpy as jnp
import numpyro.distributions as dist

import nestbed as nb


class {name}(nb.System):
    """A cart on a track, pushed by a motor: its mass and its friction are unknown."""

    # What changes over time, and what you apply: each design with its lower and upper limit.
    state = ("position", "velocity")
    designs = nb.Box(force=(-2.0, 2.0))

    # What is unknown, and what you believe of it before the first experiment: any NumPyro distribution.
    # dist.LogNormal(log(1.5), 0.3) is "1.5, give or take 30 %".
    prior = {{
        "mass": dist.LogNormal(0.4, 0.3),
        "friction": dist.LogNormal(-1.0, 0.5),
    }}

    # Time from one sample to the next, and how strongly chance pushes each state, per root of time.
    step = 0.1
    diffusion = (0.0, 0.05)

    # Where an experiment begins: a number for each state, or a distribution where you do not know it well.
    start = {{"position": dist.Normal(0.0, 0.01), "velocity": 0.0}}

    # What is seen, with the standard deviation of its noise. Leave it out if every state is seen as it is.
    # Sensors that have no state's name need a method: def observe(self, x, theta): return x.position
    sensors = {{"position": 0.002}}

    # What must not happen, and how much a design may change from one sample to the next; leave out what you need not.
    limits = {{"position": (-0.5, 0.5)}}
    slew = {{"force": 2.0}}

    # Names of units, for tables and figures.
    units = {{"time": "s", "position": "m", "velocity": "m/s", "force": "N", "mass": "kg", "friction": "N s/m"}}

    # How many samples one experiment has.
    defaults = nb.Defaults(horizon=40)

    def drift(self, x, u, theta):
        """Return how fast each state changes, in their order; use jax.numpy (jnp) for sines, roots and the like."""
        drag = theta.friction * x.velocity + 0.05 * jnp.tanh(x.velocity / 0.01)
        return x.velocity, (u.force - drag) / theta.mass
'''


def new(file: Path) -> None:
    """Write a system of your own to start from: it runs as it is, and every part of it says what it is for.

    For example:

    nestbed new my_cart.py

    nestbed check my_cart.py:MyCart

    Parameters
    ----------
    file
        The file to write; the class is named after it.
    """
    from nestbed.faces.terminal import say

    file = file if file.suffix else file.with_suffix(".py")
    if file.suffix != ".py":
        raise NestbedError(f"{file} is no Python file; give a name such as my_system.py.")
    if file.exists():
        raise NestbedError(f"{file} is there already and was left as it is; give another name.")
    words = "".join(letter if letter.isalnum() else " " for letter in file.stem).split()
    name = "".join(word[:1].upper() + word[1:] for word in words)
    if not name.isidentifier():
        raise NestbedError(f"{file.name} makes no name for a class; give one that begins with a letter.")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(TEMPLATE.format(title=name, name=name), encoding="utf-8")
    except OSError as error:
        raise NestbedError(f"cannot write {file}: {error.strerror}; choose another place.") from None
    say(f"Wrote {file}. Next: nestbed check {file}:{name}, then nestbed run {file}:{name}")
