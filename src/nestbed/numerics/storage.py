"""Plain arrays and text in files that are whole at every moment.

A folder may come from anywhere. Its files are read and written only if they are files, never through links, pipes or
devices, and no further than what is expected of them.
"""

import contextlib
import io
import json
import math
import os
import re
import secrets
import stat
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import jax
import jax.numpy as jnp
import numpy as np

from nestbed.numerics.errors import NestbedError

DAMAGES = (OSError, KeyError, TypeError, ValueError)
"""What a damaged or foreign file may raise when it is read and unpacked."""
HEADER = 4096
"""Bytes that an array's header may take."""
CONTENTS = 2**20
"""Bytes that the table of contents of an .npz file may take."""

_CAREFUL = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_BINARY = getattr(os, "O_BINARY", 0)
_LEFT = re.compile(r"\..+\.[0-9a-f]{16}\.part")


def writable(folder: Path) -> Path:
    """Make the folder and see that files can be written there, so that nothing is computed in vain."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _beside(folder / "writable"):
            pass
    except OSError as error:
        reason = "it is a file" if os.path.isfile(folder) else error.strerror
        raise NestbedError(f"cannot write to the folder {folder}: {reason}; choose another.") from None
    return folder


@contextlib.contextmanager
def saving(folder: Path) -> Iterator[None]:
    """Turn a failed write into a sentence; what was written before is still whole."""
    try:
        yield
    except OSError as error:
        raise NestbedError(
            f"could not save to {folder}: {error.strerror}; what it held before is whole, so free some room and "
            "resume.",
            topic="resume",
        ) from None


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep a second process out of the folder; the lock goes with the process, however it ends."""
    try:
        import fcntl
    except ImportError:  # not on this platform
        yield
        return
    with _opened(folder / ".lock", os.O_RDWR | os.O_CREAT) as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise NestbedError(f"another process is at work in {folder}; wait for it or choose another.") from None
        _tidy(folder)
        yield


def plain(file: Path) -> None:
    """Raise if there is something that is not a file, such as a link."""
    with contextlib.suppress(FileNotFoundError):
        _require_file(file, os.lstat(file))


def unlinked(folder: Path, path: str | Path) -> Path:
    """Return a folder within another, or raise if the way there leads through a link."""
    place = folder
    for part in Path(path).parts:
        place = place / part
        if place.is_symlink() or (os.path.lexists(place) and not place.is_dir()):
            raise NestbedError(
                f"{place} is {_kind(os.lstat(place))}, where a folder is expected; remove it or choose another folder."
            )
    return place


def inside(folder: Path, path: str | Path) -> Path:
    """Make a folder within another; none of them may be a link."""
    place = unlinked(folder, path)
    place.mkdir(parents=True, exist_ok=True)
    _tidy(place)
    return place


def write(file: Path, data: bytes, before: Path | None = None) -> None:
    """Write beside the file, then move into its place: it is whole at every moment. `before` keeps what it held."""
    plain(file)
    with _beside(file) as (stream, beside):
        stream.write(data)
        _flush(stream)
        stream.close()
        if before is not None and os.path.lexists(file):
            plain(before)
            os.replace(file, before)
        os.replace(beside, file)


def append(file: Path, data: bytes, flush: bool = True) -> None:
    """Write at the end of a file; after a failure its last line may be torn.

    Without `flush` it outlives the process, but not the power.
    """
    with _opened(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as stream:
        stream.write(data)
        if flush:
            _flush(stream)


def read_bytes(file: Path, most: int) -> bytes:
    """Return what a file holds, if that is not more than `most` bytes."""
    with _opened(file, os.O_RDONLY) as stream:
        data = stream.read(most + 1)
    if len(data) > most:
        raise NestbedError(f"{file} holds more than the {most:,} bytes that are expected at most; restore it.")
    return data


def read_json(file: Path, most: int) -> Any:
    """Return what a JSON file holds."""
    return parse_json(read_bytes(file, most))


def parse_json(data: bytes | str) -> Any:
    """Return what JSON says; whatever it is, it is a ValueError if it is not JSON."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def npz(arrays: dict[str, np.ndarray]) -> bytes:
    """Return arrays as the bytes of an .npz file."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


def read(file: Path, wanted: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Return some arrays of an .npz file, by name with the bytes that each may hold at most; no code is ever run."""
    with _opened(file, os.O_RDONLY) as stream:
        try:
            with zipfile.ZipFile(_Bounded(stream)) as archive:
                return {name: _array(_member(archive, name, most)) for name, most in wanted.items()}
        except Exception as error:  # a wrong byte may raise almost anything
            raise ValueError(f"it is damaged ({type(error).__name__}: {error})") from None


class _Bounded:
    """A file of which no long piece is ever read at once, whatever the file itself says of its lengths."""

    def __init__(self, stream: BinaryIO):
        self.stream = stream
        self.seek, self.tell, self.seekable = stream.seek, stream.tell, stream.seekable

    def read(self, size: int = -1) -> bytes:
        """Return so many bytes, or the rest."""
        data = self.stream.read(CONTENTS + 1 if size < 0 else min(size, CONTENTS + 1))
        if len(data) > CONTENTS:
            raise ValueError(f"it has pieces of more than {CONTENTS} bytes")
        return data


def _member(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """Return one member as it is after decompression, which stops where more than expected comes out."""
    entry = archive.getinfo(f"{name}.npy")
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # others inflate without a limit
        raise ValueError(f"{name} is packed in a way that numpy does not use")
    pieces, left = [], most + HEADER + 1
    with archive.open(entry) as stream:
        while left > 0 and (piece := stream.read(min(left, CONTENTS))):
            pieces.append(piece)
            left -= len(piece)
    if left <= 0:
        raise ValueError(f"{name} holds more than {most} bytes")
    return b"".join(pieces)


def _array(data: bytes) -> np.ndarray:
    """Return the array that a member holds, if its header says just what follows it."""
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
    shape, fortran, kind = header(stream, max_header_size=HEADER)
    if kind.hasobject or math.prod(shape) * kind.itemsize != len(data) - stream.tell():
        raise ValueError(f"an array of {kind}{list(shape)} does not take {len(data) - stream.tell()} bytes")
    return np.frombuffer(data, kind, offset=stream.tell()).reshape(shape, order="F" if fortran else "C")


def pack(tree: Any) -> dict[str, np.ndarray]:
    """Return a pytree's arrays by their paths, such as policy/encoder/0/weight."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {_path(path): np.asarray(leaf) for path, leaf in leaves}


def sizes(template: Any) -> dict[str, int]:
    """Return the bytes that each array of a template takes."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(template)
    return {_path(path): math.prod(leaf.shape) * leaf.dtype.itemsize for path, leaf in leaves}


def unpack(template: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Fill a template with stored arrays; their names, shapes and types must fit."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    values = []
    for path, leaf in leaves:
        value = arrays[_path(path)]
        if value.shape != leaf.shape or value.dtype != leaf.dtype:
            raise ValueError(f"{_path(path)} is {value.dtype}{list(value.shape)}, not {leaf.dtype}{list(leaf.shape)}")
        values.append(jnp.asarray(value))
    return jax.tree.unflatten(structure, values)


def _path(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


@contextlib.contextmanager
def _opened(file: Path, flags: int) -> Iterator[BinaryIO]:
    """Open what is certainly a file; a link or a pipe put in its place meanwhile is refused as well."""
    plain(file)
    handle = os.open(file, flags | _CAREFUL | _BINARY, 0o666)
    with os.fdopen(handle, "rb" if flags == os.O_RDONLY else "wb") as stream:
        _require_file(file, os.fstat(handle))
        yield stream


@contextlib.contextmanager
def _beside(file: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """Make a new file beside another, under a name that nobody can foresee; it is gone again unless it was moved."""
    beside = file.with_name(f".{file.name}.{secrets.token_hex(8)}.part")
    try:
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CAREFUL | _BINARY, 0o666)
        with os.fdopen(handle, "wb") as stream:
            yield stream, beside
    finally:
        beside.unlink(missing_ok=True)


def _tidy(folder: Path) -> None:
    """Remove what a killed process left beside its files."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if _LEFT.fullmatch(entry.name):
                os.unlink(entry.path)


def _flush(stream: BinaryIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _require_file(file: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise NestbedError(
            f"{file} is {_kind(found)}, but only plain files are read and written in such a folder; remove it, or put "
            "the file itself there."
        )


def _kind(found: os.stat_result) -> str:
    kinds = {stat.S_IFLNK: "a link", stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFREG: "a file"}
    return kinds.get(stat.S_IFMT(found.st_mode), "a device or a socket")
