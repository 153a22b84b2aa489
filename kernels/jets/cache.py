"""Generated sources on disk, and the modules they make."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import tempfile
from pathlib import Path
from types import ModuleType

from pinnfuse.files import write_whole


def cache_folder() -> Path:
    """`$PINNFUSE_CACHE`, else `~/.cache/pinnfuse`, else a folder of this user in the temporary directory."""
    given = os.environ.get("PINNFUSE_CACHE")
    folder = Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "pinnfuse"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.gettempdir()) / f"pinnfuse-{os.getuid()}"
        folder.mkdir(parents=True, exist_ok=True)
    return folder


_modules: dict[str, ModuleType] = {}


def load(source: str, name: str) -> ModuleType:
    """Write `source` (once, atomically) and import it. Triton reads the text of its kernels from that file."""
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    if digest not in _modules:
        path = cache_folder() / f"{name}_{digest}.py"
        if not path.exists() or path.read_text() != source:
            write_whole(path, source)
        module_spec = importlib.util.spec_from_file_location(f"pinnfuse_generated_{name}_{digest}", path)
        assert module_spec is not None and module_spec.loader is not None
        module = importlib.util.module_from_spec(module_spec)
        module_spec.loader.exec_module(module)
        _modules[digest] = module
    return _modules[digest]
