"""Generated sources on disk, and the modules they make."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import tempfile
from pathlib import Path
from types import ModuleType

from pinnfuse.files import Unwritable, cache_directory, write_whole

_modules: dict[str, ModuleType] = {}


def load(source: str, name: str) -> ModuleType:
    """Write `source` (once, atomically) and import it. Triton reads the text of its kernels from that file.

    Where the cache directory cannot be written a folder of this user in the temporary directory stands in.
    """
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    if digest not in _modules:
        file = f"{name}_{digest}.py"
        try:
            path = _written(cache_directory() / file, source)
        except Unwritable:
            path = _written(Path(tempfile.gettempdir()) / f"pinnfuse-{os.getuid()}" / file, source)
        module_spec = importlib.util.spec_from_file_location(f"pinnfuse_generated_{name}_{digest}", path)
        assert module_spec is not None and module_spec.loader is not None
        module = importlib.util.module_from_spec(module_spec)
        module_spec.loader.exec_module(module)
        _modules[digest] = module
    return _modules[digest]


def _written(path: Path, source: str) -> Path:
    """`path`, with `source` in it."""
    with contextlib.suppress(OSError):
        if path.read_bytes() == source.encode():
            return path
    write_whole(path, source)
    return path
