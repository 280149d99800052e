"""`nestbed export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from nestbed.exports.registry import FORMATS
from nestbed.faces.cli import listing
from nestbed.numerics.errors import NestbedError


def export(
    source: str,
    *,
    format: Annotated[str, listing.entries("The form: {}.", FORMATS)],
    system: Annotated[str | None, listing.system()] = None,
    precision: Literal["double", "single"] = "double",
    sampled: Annotated[bool, Parameter(negative="")] = False,
    horizon: listing.Whole | None = None,
    seed: listing.Whole = 0,
    out: Path | None = None,
) -> None:
    """Write a policy or a plan as files that run without nestbed: on a microcontroller, in another language.

    For example:

    nestbed export runs/pendulum --format c

    nestbed export runs/spring --system my_spring.py:Spring --format onnx --precision single --out spring-onnx

    nestbed export designs/heater --format csv

    A step is (carry, y, u_previous) → (carry, u): what is remembered, what is seen, the design before, the next design.
    The folder's README.md shows its use, and check.json has a few steps to compare with. `nestbed compare` says what
    the policy gains; a policy that infers as it goes runs by `nestbed run` alone.

    Parameters
    ----------
    source
        The folder of a run, a policy file (.npz), the folder of a design, inputs (.csv) or a baseline; the last two
        need --system.
    system
        The model, where the source does not say.
    precision
        double: as the policy computes, networks in single and all else in double precision; single: all of it. A C file
        is of double precision unless -DPOLICY_SINGLE is given where it is compiled; single gives it in the file.
    sampled
        Keep the noise that a recurrent policy was trained with: a step is then given standard normal numbers as well.
        Without it, designs are those in the middle.
    horizon
        T: designs in CSV; by default the source's own.
    seed
        Seed of the observations in check.json, and of the designs in CSV where they are drawn.
    out
        Folder for the files; by default exports/SOURCE-FORMAT.
    """
    from nestbed.exports.folder import export as write
    from nestbed.faces.cli import sources
    from nestbed.faces.terminal import say
    from nestbed.numerics.errors import seed_from
    from nestbed.policies.recurrent import Mean

    seed_from(seed)
    FORMATS.find(format)
    found = sources.policy(source, system, horizon)
    policy = found.policy
    if sampled:
        if not isinstance(policy, Mean):
            raise NestbedError(f"{source} has no recurrent policy with noise of its own to keep; leave --sampled out.")
        policy = policy.policy
    name = "/".join(Path(source).parts[-2:])
    folder = Path("exports") / f"{Path(source).resolve().stem}-{format}" if out is None else out
    length = found.horizon if horizon is None else horizon
    single = precision == "single"
    written = write(policy, found.system, folder, format=format, horizon=length, single=single, seed=seed, source=name)
    say(f"Saved {folder}: {', '.join(written)}")
    say(f"README.md there shows how to use {'them' if len(written) > 1 else 'it'}.")
