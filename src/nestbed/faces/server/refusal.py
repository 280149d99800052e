"""What is said where a request cannot be done: one sentence, and the status of HTTP that goes with it."""

from nestbed.numerics.errors import NestbedError

RETRY = 2
"""Seconds after which to ask again where something is not ready yet."""


class RefusedError(NestbedError):
    """A request that cannot be done, with its status."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


def absent(what: str) -> RefusedError:
    """Say that there is no such thing."""
    return RefusedError(404, what)


def conflict(what: str) -> RefusedError:
    """Say that it does not go with what was done before."""
    return RefusedError(409, what)


def unready(what: str) -> RefusedError:
    """Say that it is on its way."""
    return RefusedError(503, f"{what}; ask again in {RETRY} s.")
