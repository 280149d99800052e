"""What there is of a kind, by name: one entry each, which is imported when it is first used.

Entries are light, so that help can list them without loading what they stand for.
"""

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any, Generic, TypeVar

from nestbed.numerics.errors import NestbedError, did_you_mean


@dataclass(frozen=True)
class Entry:
    """A name, where its implementation is ("module:attribute"), and what it is, in a few words."""

    name: str
    home: str
    help: str

    def load(self) -> Any:
        """Return the implementation."""
        return resolve(self.home)


E = TypeVar("E", bound=Entry)


class Registry(Mapping[str, E], Generic[E]):
    """The entries of one kind, in the order in which they are shown."""

    def __init__(self, kind: str, *entries: E):
        self.kind = kind
        self._entries = {entry.name: entry for entry in entries}

    def __getitem__(self, name: str) -> E:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, name: Any) -> E:
        """Return the entry of that name, or say which there are."""
        if str(name) not in self._entries:
            raise NestbedError(f"there is no {self.kind} {name!r}; {did_you_mean(str(name), self)}.")
        return self._entries[str(name)]

    def add(self, entry: E) -> None:
        """Add one more, for as long as the process runs."""
        if entry.name in self._entries:
            raise NestbedError(f"there is a {self.kind} {entry.name!r} already; choose another name.")
        self._entries[entry.name] = entry

    @contextmanager
    def having(self, entry: E) -> Iterator[None]:
        """Have one more entry for a while."""
        self.add(entry)
        try:
            yield
        finally:
            self._entries.pop(entry.name, None)

    @property
    def help(self) -> str:
        """All names, each with what it is."""
        return ", ".join(f"{entry.name} ({entry.help})" for entry in self._entries.values())


def resolve(home: str) -> Any:
    """Return what "module:attribute" names; the attribute may be dotted."""
    module, _, path = home.partition(":")
    return reduce(getattr, path.split("."), importlib.import_module(module))
