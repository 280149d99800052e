"""Plain arrays and text in files that are whole at every moment."""

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nestbed.errors import NestbedError

DAMAGES = (OSError, KeyError, TypeError, ValueError)
"""What a damaged or foreign file may raise when it is read and unpacked."""


def writable(folder: Path) -> Path:
    """Make the folder and see that files can be written there, so that nothing is computed in vain."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        reason = "it is a file" if folder.is_file() else error.strerror
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
            "continue with --resume (resume=True)."
        ) from None


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep a second process out of the folder; the lock goes with the process, however it ends."""
    try:
        import fcntl
    except ImportError:  # not on this platform
        yield
        return
    with (folder / ".lock").open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise NestbedError(f"another process is training in {folder}; wait for it or choose another.") from None
        yield


def write(file: Path, data: bytes, before: Path | None = None) -> None:
    """Write beside the file, then move into its place: it is whole at every moment. `before` keeps what it held."""
    beside = file.with_name(f".{file.name}.part")
    try:
        with beside.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if before is not None and file.exists():
            os.replace(file, before)
        os.replace(beside, file)
    finally:
        beside.unlink(missing_ok=True)


def npz(arrays: dict[str, np.ndarray]) -> bytes:
    """Return arrays as the bytes of an .npz file."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


def read(file: Path) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file; it may hold no code, which `allow_pickle` would run."""
    data = file.read_bytes()
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return dict(arrays)
    except Exception as error:  # a wrong byte may raise almost anything
        raise ValueError(f"it is damaged ({type(error).__name__}: {error})") from None


def pack(tree: Any) -> dict[str, np.ndarray]:
    """Return a pytree's arrays by their paths, such as policy/encoder/0/weight."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {_path(path): np.asarray(leaf) for path, leaf in leaves}


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
