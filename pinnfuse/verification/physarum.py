"""Physarum: every backend and precision of the field, bit by bit against the torch stages on the CPU, and the sum of
the field on a torus, which a step multiplies by 1 - decay after its deposits, against exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from pinnfuse.errors import BackendUnavailable
from pinnfuse.simulation import Physarum
from pinnfuse.verification.operators import DTYPES, ROUNDINGS, OperatorRow

SHAPE = (33, 50)
NAMES = ("x", "y", "heading", "field")


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Options of colonies that together take every path of the stages."""
    generator = torch.Generator().manual_seed(0)
    field = torch.rand(SHAPE, generator=generator)
    yield "torus", {"field": field, "jitter": 5.0}
    maps = {"food": torch.rand(SHAPE, generator=generator), "obstacles": torch.rand(SHAPE, generator=generator) < 0.1}
    everything = {"boundary": "walls", "sensing": "bilinear", "deposits": "two-stage", "species": 3}
    matrix = torch.randn(3, 3, generator=generator)
    yield "walls, bilinear, 3 species, maps", {"field": field, "attraction": matrix} | everything | maps
    yield "highest sensor, random ties", {"field": field.round(), "steering": "argmax", "ties": "random"}


def run_physarum(
    device: torch.device, quick: bool = False, report: Callable[[str], None] = lambda text: None
) -> list[OperatorRow]:
    """Rows of "same bits" (share of numbers that differ, which must be 0) and "sum of the field" (relative error)."""
    return list(_rows(device, 2 if quick else 20, report))


def _rows(device: torch.device, steps: int, report: Callable[[str], None]) -> Iterator[OperatorRow]:
    for label, options in cases():
        report(f"physarum: {label}")
        for text, dtype in DTYPES.items():
            given = options | {"agents": 300, "sensor_distance": 6.0, "seed": 3, "dtype": dtype}
            truth = Physarum(SHAPE, backend="torch", **given).run(steps)
            for backend in ("torch", "triton"):
                key = ("physarum", label, backend, text)
                try:
                    ours = Physarum(SHAPE, backend=backend, device=device, **given)
                except BackendUnavailable as reason:
                    yield OperatorRow(*key, "skipped", note=str(reason).partition(": ")[2][:200])
                    continue
                error = differing(ours.run(steps), truth)
                yield OperatorRow(*key, "ok" if error == 0 else "failed", "same bits", error, 0.0)
                if label == "torus":
                    error, bound = sum_error(ours), _rounding(dtype)
                    status = "ok" if error <= bound else "failed"
                    yield OperatorRow("physarum, sum", label, backend, text, status, "sum of the field", error, bound)


def differing(ours: Physarum, truth: Physarum) -> float:
    """Share of numbers of agents and field that are not the same."""
    pairs = [(_values(ours, name), _values(truth, name)) for name in NAMES]
    return sum(int((a.cpu() != b).sum()) for a, b in pairs) / sum(b.numel() for _, b in pairs)


def _values(sim: Physarum, name: str) -> Tensor:
    return sim.field if name == "field" else getattr(sim.colony, name)


def sum_error(sim: Physarum) -> float:
    """Relative error of the field's sum after one more step."""
    p, before = sim.parameters, sim.field.double().sum()
    sim.step()
    assert isinstance(p.decay, float) and isinstance(p.deposit, float)
    exact = (1 - p.decay) * (before + p.deposit * len(sim.colony.x))
    return float((sim.field.double().sum() / exact - 1).abs())


def _rounding(dtype: torch.dtype) -> float:
    """A dozen roundings of each value in the arithmetic, and one of the stored field."""
    half = dtype in (torch.float16, torch.bfloat16)
    return ROUNDINGS * torch.finfo(torch.float32 if half else dtype).eps + (torch.finfo(dtype).eps if half else 0.0)
