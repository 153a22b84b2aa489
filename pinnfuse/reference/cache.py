"""Results of the reference solvers, kept in the user's cache directory.

A file is named after the solver and a digest of its name, version and parameters. It is written beside its final name
and renamed, so a reader never sees half of one. It carries a digest of its arrays: what is damaged, or was written by
others, is computed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pinnfuse.files import cache_directory as directory
from pinnfuse.files import whole_file

Arrays = dict[str, NDArray[Any]]


def cached(solver: str, version: int, parameters: Mapping[str, Any], compute: Callable[[], Arrays]) -> Arrays:
    """The arrays of `compute()`, from the cache where they are there.

    Args:
        solver: name of the solver.
        version: raise it when the solver's numbers change.
        parameters: everything that the result depends on; plain numbers, strings and lists.
        compute: called when there is no good file. An unwritable directory is no error: the result is just not kept.
    """
    key = json.dumps([solver, version, dict(parameters)], sort_keys=True)
    path = directory() / f"{solver}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.npz"
    stored = _read(path, key)
    if stored is not None:
        return stored
    with _alone(path):
        stored = _read(path, key)  # another process may have computed it meanwhile
        if stored is not None:
            return stored
        arrays = compute()
        with contextlib.suppress(OSError):
            _write(path, key, arrays)
    return arrays


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process of a machine at a time, so that a run computes a reference once. Without file locks: all of them."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError, ImportError):
            import fcntl  # not on Windows

            lock = Path(tempfile.gettempdir()) / f"{path.stem}-{os.getuid()}.lock"
            file = held.enter_context(lock.open("w"))
            fcntl.flock(file, fcntl.LOCK_EX)  # released when the process ends, however it does
        yield


def _read(path: Path, key: str) -> Arrays | None:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except Exception:  # np.load raises many kinds, and each of them means the same
        return None
    return arrays if str(arrays.pop("seal", "")) == _seal(key, arrays) else None


def _seal(key: str, arrays: Arrays) -> str:
    """A digest of the key and of names, types, shapes and numbers of the arrays."""
    found = hashlib.sha256(key.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        found.update(f"{name} {array.dtype.str} {array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def _write(path: Path, key: str, arrays: Arrays) -> None:
    with whole_file(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, seal=np.array(_seal(key, arrays)), **arrays)
