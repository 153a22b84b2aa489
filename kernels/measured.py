"""Choices that were measured on this machine, kept on disk so that another process need not measure.

A store is one JSON file in the cache folder: "card, Triton version, shape class, precision" -> choice. A file or an
entry that cannot be understood counts as absent. Launch configurations of networks (`kernels/jets/choices.py`) and
the sizes from which on kernels of grids pay (`pinnfuse/grid/crossover.py`) are kept this way.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from pinnfuse.files import Unwritable, cache_directory, write_whole

log = logging.getLogger("pinnfuse")
T = TypeVar("T")


class Store(Generic[T]):
    """One file.

    Args:
        file: its name.
        encode: a choice as what JSON can hold.
        decode: the opposite; None for what is no choice of this version.
    """

    def __init__(self, file: str, encode: Callable[[T], Any], decode: Callable[[Any], T | None]):
        self.file, self._encode, self._decode = file, encode, decode
        self._known: dict[tuple[str | None, str], T | None] = {}

    def read(self, name: str) -> T | None:
        """The choice stored under a key, None if there is none."""
        entry = self._entries().get(name)
        return None if entry is None else self._decode(entry)

    def known(self, name: str) -> T | None:
        """`read`, looked up on disk once in a process: every call asks."""
        place = (os.environ.get("PINNFUSE_CACHE"), name)
        if place not in self._known:
            self._known[place] = self.read(name)
        return self._known[place]

    def write(self, name: str, choice: T) -> None:
        """Store a choice beside those that are there; others see the old file or the new one, never a half.

        Where the folder cannot be written this process alone knows the choice.
        """
        entries = {**self._entries(), name: self._encode(choice)}
        self._known[os.environ.get("PINNFUSE_CACHE"), name] = choice
        try:
            write_whole(self._path, json.dumps(entries, indent=1, sort_keys=True))
        except Unwritable as reason:
            log.warning("what was measured for [%s] is not kept for other processes: %s", name, reason)

    @property
    def _path(self) -> Path:
        return cache_directory() / self.file

    def _entries(self) -> dict[str, Any]:
        path = self._path
        try:
            return _parsed(path, path.stat().st_mtime_ns)
        except OSError:
            return {}


@lru_cache(maxsize=8)
def _parsed(path: Path, modified: int) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


@lru_cache(maxsize=16)
def card(device: torch.device) -> str:
    """The card and the compiler, on which every choice depends."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    try:
        compiler = version("triton")
    except PackageNotFoundError:
        compiler = "absent"
    return f"{name}, triton {compiler}"


def unmeasured(device: torch.device) -> bool:
    """Whether the library's own choices come from another card: they were measured on compute capability 9.0."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) != (9, 0)
