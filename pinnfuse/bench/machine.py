"""What a number was measured on."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import torch

import pinnfuse


def processor() -> str:
    """The processor's name."""
    try:
        match = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        match = None
    return match[1].strip() if match else platform.processor() or platform.machine()


def name(device: torch.device) -> str:
    """The card, or the processor with the threads that torch uses; fit for a folder."""
    if device.type == "cuda":
        text = torch.cuda.get_device_name(device)
    else:
        threads = torch.get_num_threads()
        text = f"{processor()} {threads} thread{'s' if threads > 1 else ''}"
    return re.sub(r"[^A-Za-z0-9.+-]+", "_", text).strip("_")


def clocks(device: torch.device) -> str | None:
    """SM and memory clock now and at most, driver, as `nvidia-smi` prints them; None without a card or the tool."""
    fields = "clocks.sm,clocks.max.sm,clocks.mem,driver_version"
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader", f"--id={device.index or 0}"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None if device.type == "cuda" and result.returncode == 0 else None


def versions() -> dict[str, str | None]:
    """Of everything that is measured; None where it is not installed."""
    found: dict[str, str | None] = {"pinnfuse": pinnfuse.__version__, "python": platform.python_version()}
    found["torch"] = torch.__version__
    for package in ("triton", "jax"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def commit() -> str | None:
    """Of the checkout that pinnfuse was imported from, with "-dirty" where it was changed; None outside of one."""
    root = Path(pinnfuse.__file__).resolve().parent.parent
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None if (root / ".git").exists() else None


def head(device: torch.device) -> dict[str, Any]:
    """How every report of a measurement begins: when, on what, with which versions, of which commit."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": name(device),
        "versions": versions(),
        "commit": commit(),
    }
