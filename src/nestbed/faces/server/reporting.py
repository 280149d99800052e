"""Record and report of a session, to take away: the report is made beside the session, which goes on meanwhile."""

from concurrent.futures import Executor, Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from nestbed.faces.server.refusal import conflict
from nestbed.numerics import storage

if TYPE_CHECKING:
    from nestbed.faces.server.hosted import Hosted
    from nestbed.live.session import Session

LARGEST = 2**27
"""Bytes of a file to take away."""


class Kept(NamedTuple):
    """What a report needs of a session, as it is at one moment."""

    system: Any
    key: Any
    records: Any
    gain: float


class Report(NamedTuple):
    """A report that is made, after so many steps."""

    step: int
    page: Future[bytes]


def record(hosted: "Hosted") -> bytes:
    """Return the record as CSV; in the session's thread."""
    from nestbed.faces import sessions

    sessions.save_record(hosted.session, hosted.folder)
    return storage.read_bytes(hosted.folder / sessions.RECORD, LARGEST)


def report(hosted: "Hosted", background: Executor) -> Report:
    """Return the report of what is known now, one that is on its way if there is one; in the session's thread."""
    session = hosted.session
    if not session.step:
        raise conflict("there is nothing to report before the first experiment.")
    if hosted.report is None or (hosted.report.page.done() and hosted.report.step != session.step):
        kept = Kept(session.system, session.key, session.records, session.gain)
        hosted.report = Report(session.step, background.submit(_made, kept, hosted.folder))
    return hosted.report


def _made(kept: Kept, folder: Path) -> bytes:
    from nestbed.faces import results, sessions

    sessions.save(cast("Session", kept), folder)
    return storage.read_bytes(folder / results.REPORT, LARGEST)
