"""`nestbed run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from nestbed.faces.cli import listing
from nestbed.numerics.errors import NestbedError


def run(
    source: str,
    *,
    rig: str = "simulated",
    system: Annotated[str | None, listing.system()] = None,
    rate: float | None = None,
    wait: float | None = None,
    horizon: listing.Whole | None = None,
    risk: float = 0.01,
    stop_below: float | None = None,
    theta: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="")] = (),
    seed: listing.Whole = 0,
    out: Path | None = None,
) -> None:
    """Run the best inputs on a rig: the next design out, the measurement in, while the posterior sharpens.

    For example:

    nestbed run nonlinear_pendulum

    nestbed run runs/pendulum --rig my_rig.py:Rig --rate 20 --out results/monday

    nestbed run designs/heater/inputs.csv --system heater --rig my_rig.py:Board

    Every step is on disk before the next: the same command goes on with a session that was cut off, with the rig
    started again. Whatever ends a session, Ctrl-C too, the rig is left at its rest design.

    Parameters
    ----------
    source
        What chooses the designs: a system (plans made anew at every step), the folder of a run or of a design, a policy
        file, inputs (.csv) or a baseline; the last two need --system, and so does a design for a system in a file.
    rig
        path/to/file.py:Name, a class or a function that makes an object with reset() → y, apply(u) → y and perhaps
        close(); "simulated" is the model itself, with parameters that are drawn.
    system
        The model, where the source does not say.
    rate
        Samples per second; without one the rig says itself how long a step takes. Samples that come late are counted
        and used with their real times.
    wait
        Seconds after which a rig that does not answer is given up; by default 20 periods and 5 s with a rate, else for
        ever.
    horizon
        T: experiments; by default the source's own.
    risk
        Probability with which the whole session may break a limit: designs that would take more than their share of it
        are changed.
    stop_below
        Nats expected of the remaining experiments below which the session ends.
    theta
        True parameters of a simulated rig, as name=value; those not named are drawn.
    seed
        Seed of all randomness.
    out
        Folder of the session: journal, record (CSV), posterior, figures and a page; by default sessions/SYSTEM.
    """
    import jax

    from nestbed.faces import sessions
    from nestbed.faces.cli import sources
    from nestbed.faces.terminal import bars, say
    from nestbed.faces.terminal.driving import Watching
    from nestbed.live.driving import drive
    from nestbed.live.session import Session
    from nestbed.numerics.errors import seed_from
    from nestbed.rigs.loading import load as load_rig
    from nestbed.systems import name_of

    seed_from(seed)
    if rig == "simulated" and rate is not None:
        raise NestbedError("a simulated rig keeps its own time; leave --rate out, or name a rig of your own by --rig.")
    found = sources.live(source, system, horizon)
    model = found.system
    folder = Path("sessions") / name_of(model) if out is None else out
    key = jax.random.key(seed)
    machine = load_rig(rig, model, jax.random.fold_in(key, 1), theta)
    with bars.Working("session"):
        session = Session(
            model,
            found.policy,
            key,
            directory=folder,
            horizon=found.horizon,
            risk=risk,
            stop_below=stop_below,
            gaps=rate is not None,
        )
        session.warm()
    with session:
        if session.step:
            say(f"Going on after experiment {session.step} of {session.horizon}.")
        if horizon is not None and horizon > session.horizon:
            session.extend(horizon)
        if session.done is None:
            try:
                with Watching(session) as watch:
                    driven = drive(session, machine, rate=rate, wait=wait, watch=watch)
            except NestbedError:  # of the rig: what was measured is there to look at
                sessions.save_record(session, folder)
                raise
            ended, late = driven.ended, driven.late
        else:
            ended, late = session.done, 0
        say(f"{ended[:1].upper()}{ended[1:]}")
        if late:
            say(f"{late} samples came late and count with their real times.")
        with bars.Working("posterior"):
            written = sessions.save(session, folder)
    say(f"Saved {folder}: {', '.join(written)}")
