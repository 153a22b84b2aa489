"""Which backend runs each stage."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping

import torch

from pinnfuse.errors import BackendUnavailable, nearest

STAGES = ("sense", "steer", "deposit", "diffuse")
"""Sense; steer and move; deposit; diffuse and decay."""
BACKENDS = ("auto", "torch", "triton")


def resolve(backend: str | Mapping[str, str], device: torch.device, dtype: torch.dtype) -> dict[str, str]:
    """{stage: "torch" or "triton"}; "auto" is Triton where it runs, and an explicit choice never falls back.

    Raises:
        ValueError: an unknown stage or backend.
        BackendUnavailable: "triton" was asked for and cannot run, with the reason.
    """
    asked = dict(backend) if isinstance(backend, Mapping) else dict.fromkeys(STAGES, backend)
    for stage, name in asked.items():
        if stage not in STAGES:
            raise ValueError(f"Physarum: unknown stage {stage!r} in `backend`. {nearest(str(stage), STAGES)}")
        if name not in BACKENDS:
            raise ValueError(f"Physarum: unknown `backend`; got {name!r}. {nearest(str(name), BACKENDS)}")
    chosen = {stage: asked.get(stage, "auto") for stage in STAGES}
    if all(name == "torch" for name in chosen.values()):
        return chosen
    obstacle = _obstacle(device, dtype)
    if obstacle and "triton" in chosen.values():
        raise BackendUnavailable(
            f"backend 'triton' was asked for but cannot run: {obstacle}. Available here: 'torch', or 'auto'."
        )
    best = "torch" if obstacle else "triton"
    return {stage: best if name == "auto" else name for stage, name in chosen.items()}


def _obstacle(device: torch.device, dtype: torch.dtype) -> str:
    """Why the kernels cannot run, "" if they can."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed (it exists for Linux only)"
    if device.type != "cuda" and os.environ.get("PINNFUSE_INTERPRET") != "1":  # tests ask for the interpreter
        return f"Triton needs a CUDA card, and the simulation is on {device}"
    if dtype == torch.float64:
        return "the kernels compute in float32, and the field is float64"
    from pinnfuse.kernels import physarum  # the only place that may import triton

    return physarum.obstacle(device)
