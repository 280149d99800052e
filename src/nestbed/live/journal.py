"""What a session wrote down: one line of JSON for each thing that happened, on disk before the next may happen.

A killed process leaves at most a torn last line, which is dropped: what it would have said was never confirmed. Where
the disk takes nothing more, lines wait in memory and are tried again with the next one.
"""

import json
from pathlib import Path
from typing import Any

from nestbed.numerics import storage
from nestbed.numerics.errors import NestbedError

HEAD, LINES = "session.json", "journal.jsonl"
FORMAT = 3
SURE = "suggest"
"""Lines that follow from those before them."""
LARGEST = 2**30
"""Bytes that a journal may have at most."""


class Journal:
    """The lines of one session, in a folder or, without one, in memory."""

    def __init__(self, folder: Path | None):
        self.folder = folder
        self.entries: list[dict[str, Any]] = []
        self.waiting: list[bytes] = []  # lines that the disk did not take yet
        self.trouble = ""  # why it did not, as a sentence

    def open(self, head: dict[str, Any], *, mend: bool = True) -> dict[str, Any]:
        """Return what the folder says of its session, or write what is said now; read the lines there are.

        Without `mend` a torn last line stays: a session that is still running may be in the middle of it.
        """
        if self.folder is None:
            return head
        file = self.folder / HEAD
        if not file.exists():
            if (self.folder / LINES).exists():
                raise NestbedError(
                    f"{self.folder} holds the lines of a session, but {HEAD}, which says of what, is missing; restore "
                    "it from a copy, or give another directory."
                )
            with storage.saving(self.folder):
                storage.write(file, json.dumps({"format": FORMAT, **head}).encode())
            return head
        try:
            known = storage.read_json(file, LARGEST)
            form = known["format"]
        except storage.DAMAGES as error:
            raise NestbedError(f"{file} is damaged ({error}); restore it from a copy.") from None
        if form != FORMAT:
            raise NestbedError(
                f"the session in {self.folder} is of format {form!r}, but this version of nestbed has format {FORMAT}; "
                "go on with the version that began it, or give another directory."
            )
        self._read(mend)
        return dict(known)

    def _read(self, mend: bool) -> None:
        assert self.folder is not None
        file = self.folder / LINES
        if not file.exists():
            return
        data = storage.read_bytes(file, LARGEST)
        whole, _, torn = data.rpartition(b"\n")
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                self.entries.append(dict(storage.parse_json(line)))
            except (TypeError, ValueError):
                raise NestbedError(f"line {number} of {file} is damaged; restore it from a copy.") from None
        if torn and mend:
            storage.write(file, whole + b"\n" if whole else b"")

    def add(self, entry: dict[str, Any]) -> None:
        """Write a line down; where the disk takes none, keep it and say why in `trouble`.

        What can be computed again (`SURE`) need not outlive the power: it waits for the disk with the next line.
        """
        self.entries.append(entry)
        if self.folder is None:
            return
        self.waiting.append(json.dumps(entry).encode() + b"\n")
        self.again(flush=entry["kind"] != SURE)

    def again(self, flush: bool = True) -> None:
        """Write down what waits."""
        if self.folder is None or not self.waiting:
            return
        try:
            self._mended()
            storage.append(self.folder / LINES, b"".join(self.waiting), flush=flush)
        except OSError as error:
            self.trouble = (
                f"the disk takes nothing more ({error.strerror}), so the session goes on in memory: "
                f"{len(self.waiting)} lines of {self.folder / LINES} wait to be written; free some room."
            )
        else:
            self.waiting, self.trouble = [], ""

    def _mended(self) -> None:
        """Cut off what a failed write has left of a line; what it wrote of those before waits no longer."""
        assert self.folder is not None
        file = self.folder / LINES
        if not self.trouble or not file.exists():
            return
        whole, _, torn = storage.read_bytes(file, LARGEST).rpartition(b"\n")
        if torn:
            storage.write(file, whole + b"\n" if whole else b"")
        done = len(whole.splitlines())
        self.waiting = [json.dumps(entry).encode() + b"\n" for entry in self.entries[done:]]
