"""`nestbed serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from nestbed.faces.cli import listing
from nestbed.numerics.errors import NestbedError

TOKEN = "NESTBED_TOKEN"
"""The environment variable that has the token."""


def serve(
    folder: Path = Path(),
    *,
    system: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="")] = (),
    host: str = "127.0.0.1",
    port: listing.Whole = 8765,
    token: str | None = None,
    name: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="")] = (),
) -> None:
    """Serve sessions, runs and designs of a folder: a page to watch and steer by, and JSON for programs on rigs.

    For example:

    nestbed serve

    nestbed serve results --system my_motor.py:Motor

    NESTBED_TOKEN=$(openssl rand -hex 24) nestbed serve --host 0.0.0.0

    Every session has a folder in FOLDER/sessions; what was confirmed is on disk, and a server that is started again
    goes on with all of them. Sessions can be of built-in systems, of those named here, and of the runs and designs in
    the folder; nobody can make the server read or run any other file.

    Parameters
    ----------
    folder
        What is served; by default where the command is started.
    system
        Systems of your own, as path/to/file.py:ClassName.
    host
        Address to listen at; by default only programs on this machine reach it. Any other needs a token.
    port
        Port to listen at; 0: any that is free.
    token
        What requests must bring, at least 16 characters; by default that in NESTBED_TOKEN, and for an address that
        others reach one that is made and printed. Other users of the machine can see it here, not in the variable.
    name
        Names by which the server may be called, beside those of this machine.
    """
    import os

    try:
        import fastapi  # noqa: F401

        from nestbed.faces.server.running import run
    except ImportError as error:
        raise NestbedError(
            f"nestbed serve needs packages that are not installed ({error.name}): pip install 'nestbed[serve]'."
        ) from None
    run(folder, system, host=host, port=port, token=token or os.environ.get(TOKEN) or None, names=name)
