"""Files that are whole or not there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(path: str | Path) -> Iterator[Path]:
    """A temporary path beside `path` with the same suffix, which takes its name when the block ends without an error.

    Raises:
        ValueError: the folder cannot be written, before the block runs.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror}. Choose a folder that you may write to.") from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp's files are private
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
