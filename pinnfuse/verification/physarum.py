"""Physarum: every backend and precision of the field, bit by bit against the torch stages on the CPU, and the sum of
the field on a torus, which a step multiplies by 1 - decay after its deposits, against exact arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pinnfuse.errors import BackendUnavailable
from pinnfuse.simulation import Physarum
from pinnfuse.verification.operators import DTYPES, ROUNDINGS, OperatorRow

SHAPE = (33, 50)
NAMES = ("x", "y", "heading", "field")


def cases() -> dict[str, dict[str, Any]]:
    """By name, options of colonies that together take every path of the stages; the same at every call."""
    generator = torch.Generator().manual_seed(0)
    field = torch.rand(SHAPE, generator=generator)
    maps = {"food": torch.rand(SHAPE, generator=generator), "obstacles": torch.rand(SHAPE, generator=generator) < 0.1}
    everything = {"boundary": "walls", "sensing": "bilinear", "deposits": "two-stage", "species": 3}
    matrix = torch.randn(3, 3, generator=generator)
    return {
        "torus": {"field": field, "jitter": 5.0},
        "walls, bilinear, 3 species, maps": {"field": field, "attraction": matrix} | everything | maps,
        "highest sensor, random ties": {"field": field.round(), "steering": "argmax", "ties": "random"},
    }


@dataclass(frozen=True)
class PhysarumTask:
    """A colony by its name: rows of "same bits" (share of numbers that differ, which must be 0) and "sum of the field"
    (relative error)."""

    name: str
    dtype: str
    steps: int
    seconds: float = 4.0

    @property
    def label(self) -> str:
        return f"physarum, {self.name}, {self.dtype}"

    def rows(self, device: torch.device) -> list[OperatorRow]:
        dtype = DTYPES[self.dtype]
        given = cases()[self.name] | {"agents": 300, "sensor_distance": 6.0, "seed": 3, "dtype": dtype}
        truth = Physarum(SHAPE, backend="torch", **given).run(self.steps)
        found = []
        for backend in ("torch", "triton"):
            key = (self.name, backend, self.dtype)
            try:
                ours = Physarum(SHAPE, backend=backend, device=device, **given)
            except BackendUnavailable as reason:
                found.append(OperatorRow("physarum", *key, "skipped", note=str(reason).partition(": ")[2][:200]))
                continue
            error = differing(ours.run(self.steps), truth)
            found.append(OperatorRow("physarum", *key, "ok" if error == 0 else "failed", "same bits", error, 0.0))
            if self.name == "torus":
                error, bound = sum_error(ours), _rounding(dtype)
                status = "ok" if error <= bound else "failed"
                found.append(OperatorRow("physarum, sum", *key, status, "sum of the field", error, bound))
        return found

    def lost(self, why: str) -> OperatorRow:
        return OperatorRow("physarum", self.name, "torch and triton", self.dtype, "failed", note=why)


def physarum_tasks(quick: bool = False) -> list[PhysarumTask]:
    return [PhysarumTask(name, dtype, 2 if quick else 20) for name in cases() for dtype in DTYPES]


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
