"""Files that are whole or not there."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: temporary files of killed processes stay
    fcntl = None  # type: ignore[assignment]


class Unwritable(OSError, ValueError):
    """A file that cannot be written: its folder may not be, it is none, or the disk is full."""


def cache_directory() -> Path:
    """$PINNFUSE_CACHE, or `pinnfuse` in the platform's cache directory."""
    if chosen := os.environ.get("PINNFUSE_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "pinnfuse"


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """A temporary path beside `path` with the same suffix, which takes its name when the block ends without an error.

    A killed process leaves its temporary file, and the next one that writes `path` removes it.

    Raises:
        Unwritable: the folder cannot be written, or `path` is no file, before the block runs; the disk is full.
    """
    path = Path(path).resolve()  # a link stays one, and what it points to is replaced
    handle, temporary = _temporary(path)
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp's files are private
        os.replace(temporary, path)
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise Unwritable(f"cannot write {path}: {error.strerror}. Make room, or choose another folder.") from error
    finally:
        temporary.unlink(missing_ok=True)
        os.close(handle)


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Write a file or leave the old one: a killed run, or a full disk, never leaves half of it."""
    with whole_file(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def check_writable(path: str | Path) -> None:
    """Know before a long run that `whole_file` will open.

    Raises:
        Unwritable: it will not.
    """
    handle, temporary = _temporary(Path(path).resolve())
    temporary.unlink()
    os.close(handle)


def _temporary(path: Path) -> tuple[int, Path]:
    """An open, locked file beside `path`."""
    if path.exists() and not path.is_file():
        raise Unwritable(f"cannot write {path}: it is a folder or a device. Name a file.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=f".part{path.suffix}", dir=path.parent)
    except OSError as error:
        raise Unwritable(f"cannot write {path}: {error.strerror}. Choose a folder that you may write to.") from error
    if fcntl:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        for other in path.parent.glob(glob.escape(f".{path.stem}-") + "*.part" + glob.escape(path.suffix)):
            if other.name != Path(name).name:
                _remove_unlocked(other)
    return handle, Path(name)


def _remove_unlocked(path: Path) -> None:
    """Its writer held the lock, and the system takes it from a process that ends."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
