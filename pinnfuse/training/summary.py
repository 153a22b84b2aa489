"""What a run came to: `summary.json` and the closing line."""

from __future__ import annotations

import json
import math
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from pinnfuse.files import write_whole


@dataclass(frozen=True)
class Summary:
    """Keys of `summary.json`. None where something was not measured or is not finite."""

    pde: str
    problem: str
    backend: str
    """the one that ran, never "auto\""""
    precision: str
    device: str
    seed: int
    steps: int
    seconds: float
    """of the fit, over all resumptions, without the measurement of the baseline"""
    loss: float | None
    """weighted total after the last step"""
    rel_l2: dict[str, float | None]
    """relative L2 error of each metric against the reference"""
    parameters: dict[str, dict[str, float | None]]
    """of the PDE, where trained: "found", and "true" where that is known"""
    step_ms: float | None
    """loss, gradient and Adam update"""
    autograd_step_ms: float | None
    """the same with nested autograd, on the same batch"""
    speedup: float | None
    peak_memory_mb: float | None
    """of such a step, beyond what lives between steps, in 10^6 bytes"""
    autograd_peak_memory_mb: float | None
    versions: dict[str, str]

    def write(self, path: Path) -> None:
        write_whole(path, json.dumps(finite(asdict(self)), indent=2, allow_nan=False) + "\n")

    def line(self, folder: Path) -> str:
        """The closing line of a run, for rich."""
        errors = ", ".join(f"{name} [bold green]{_number(value)}[/]" for name, value in self.rel_l2.items())
        parts = [f"relative L2: {errors}"]
        for name, values in self.parameters.items():
            true = values["true"]
            known = "" if true is None else f" (true: {true:g})"
            parts.append(f"{name} [bold green]{values['found']:.4g}[/]{known}")
        parts += [f"{self.steps:,} steps in {duration(self.seconds)}"]
        if self.speedup is not None:
            parts.append(f"speed-up over nested autograd [bold]{self.speedup:.1f}x[/]")
        return " [dim]|[/] ".join([*parts, str(folder)])


def finite(value: Any) -> Any:
    """NaN and infinities as None, which JSON can hold."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def duration(seconds: float) -> str:
    """`8.3 s`, `2 min 05 s`, `1 h 02 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def versions() -> dict[str, str]:
    """Of what a result depends on."""
    found = {"python": platform.python_version()}
    for package in ("pinnfuse", "torch", "triton", "lightning", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    from pinnfuse import __version__

    return found | {"pinnfuse": __version__}


def device_name(device: torch.device) -> str:
    """`NVIDIA H200`, `cpu, 1 thread` or `cpu, 2 threads`."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{device.type}, {threads} thread{'s' if threads > 1 else ''}"


def _number(value: float | None) -> str:
    return "n/a" if value is None or not math.isfinite(value) else f"{value:.2e}"
