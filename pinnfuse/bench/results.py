"""Where a benchmark writes its report: OUT/<card or processor>/, whole or not at all, after every case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from pinnfuse.bench import machine
from pinnfuse.files import check_writable, write_whole


def place(out: str | Path, device: torch.device, name: str) -> Path:
    """The path of the report `name`.

    Raises:
        Unwritable: it cannot be written, which shows here and not after the first case.
    """
    path = Path(out) / machine.name(device) / name
    check_writable(path)
    return path


def save(path: Path, report: dict[str, Any]) -> None:
    """Whoever is killed leaves the report of the case before."""
    write_whole(path, json.dumps(report, indent=1) + "\n")
