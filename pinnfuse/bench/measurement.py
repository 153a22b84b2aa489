"""One case: its engines are made ready one by one, each checked against float64, then timed in turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pinnfuse import BackendUnavailable
from pinnfuse.bench import engines, timing
from pinnfuse.bench.cases import Case
from pinnfuse.bench.settings import Settings

BOUND = {"float32": 1e-5, "tf32": 5e-2, "bf16x3": 1e-3, "float64": 1e-12}
"""Largest relative L2 error of the loss and of any gradient; beyond it there is no number."""
OUT_OF_MEMORY = "out of memory"
Row = dict[str, Any]


class WrongReference(RuntimeError):
    """Closed-form jets and nested autograd disagree in float64, so that nothing can be checked."""


class Inaccurate(Exception):
    """A red check: no number."""


def blank(case: Case, engine: str) -> Row:
    """A row that says which measurement it is, and nothing yet of what was found."""
    return {key: value for key, value in asdict(case).items() if key != "device"} | {"engine": engine}


class Measurement:
    """The engines of one case, ready to be timed on the points that they were checked on.

    Args:
        case: what to measure.
        settings: the backend of ours, and the seconds for each engine.
    """

    def __init__(self, case: Case, settings: Settings):
        self.case, self.settings = case, settings
        size = case.points * len(case.pde.coordinates) * torch.finfo(case.dtype).bits // 8
        self.inputs = case.inputs(timing.copies(case.device, size))
        self.rows: dict[str, Row] = {}
        self.steps: dict[str, dict[str, engines.Step]] = {}

    @cached_property
    def truth(self) -> list[Tensor]:
        return _truth(self.case, self.inputs[0])

    def add(self, engine: str) -> Row | None:
        """Build, compile and check an engine; its row says if it can be timed. None: ours is this engine already.

        Raises:
            WrongReference: the float64 reference is wrong.
        """
        ours = self.rows.get("pinnfuse", {})
        if str(ours.get("path", "")).startswith(f"{engine} ("):
            return None
        row = self.rows[engine] = blank(self.case, engine)
        try:
            self.steps[engine] = self._checked(engine, row)
        except BackendUnavailable as reason:
            row["skipped"] = str(reason)
        except WrongReference:
            raise
        except Exception as fault:  # one engine's compiler must not take the other numbers along
            if _out_of_memory(fault):
                row["skipped"] = OUT_OF_MEMORY
            else:
                text = (str(fault).strip() or "no message").splitlines()[0][:300]
                row["failed"] = f"{type(fault).__name__}: {text}"
        if self.case.device.type == "cuda":
            torch.cuda.empty_cache()
        return row

    def _checked(self, engine: str, row: Row) -> dict[str, engines.Step]:
        case, points = self.case, self.inputs[0]
        step, row["path"] = engines.build(self.settings.backend if engine == "pinnfuse" else engine, case)
        row["bound"] = BOUND[case.precision]
        row["error"] = _error(step, points, self.truth)
        _require(row, "error")
        if engine != "jax" and (engine != "torch-compile" or case.device.type == "cuda"):
            row["memory_mb"] = timing.peak_memory(step, points, case.device)
        if not (row["path"].startswith("triton") and case.device.type == "cuda"):
            return {engine: step}
        captured = timing.graph(step, points)
        row["graph_error"] = _error(captured, points, self.truth)
        _require(row, "graph_error")
        return {engine: step, f"{engine}, graph": captured}

    def timed(self) -> list[Row]:
        """The rows in the order of `add`, with times; what ran out of memory beside others is tried once more."""
        for engine in [engine for engine, row in self.rows.items() if row.get("skipped") == OUT_OF_MEMORY]:
            self.add(engine)
        steps = {name: step for found in self.steps.values() for name, step in found.items()}
        found = timing.times(steps, self.inputs, self.case.device, self.settings.seconds)
        for engine, row in self.rows.items():
            if engine not in found:
                continue
            row["ms"] = timing.quantiles(found[engine])
            row["gflop"], row["least_mb"] = self.case.flop / 1e9, self.case.bytes / 1e6
            if f"{engine}, graph" in found:
                row["graph_ms"] = timing.quantiles(found[f"{engine}, graph"])
            best = (row.get("graph_ms") or row["ms"])["median"]
            row["tflop_per_s"], row["least_gb_per_s"] = self.case.flop / best / 1e9, self.case.bytes / best / 1e6
        _ratios(self.rows)
        return list(self.rows.values())


def _out_of_memory(fault: Exception) -> bool:
    """Of the card: torch's own error, or what the driver, a library or jax, which is not imported here, say of it."""
    signs = ("out of memory", "RESOURCE_EXHAUSTED", "ALLOC_FAILED")
    return isinstance(fault, torch.OutOfMemoryError) or any(sign in str(fault) for sign in signs)


def _ratios(rows: Mapping[str, Row]) -> None:
    """How many times slower than ours, and how many times the memory, each engine is."""
    ours = rows.get("pinnfuse", {})
    for engine, row in rows.items():
        if engine == "pinnfuse":
            continue
        if "ms" in row and "ms" in ours:
            row["times_ours"] = row["ms"]["median"] / ours["ms"]["median"]
        if "memory_mb" in row and ours.get("memory_mb"):
            row["memory_times_ours"] = row["memory_mb"] / ours["memory_mb"]


def _truth(case: Case, points: Tensor) -> list[Tensor]:
    """Loss and gradients in float64 by closed-form jets, which are themselves compared with nested autograd first."""
    exact = replace(case, precision="float64")
    few, weights = points[:256].double(), case.network()
    small = replace(exact, points=len(few))
    closed, nested = (engines.build(name, small, weights)[0] for name in ("torch", "autograd"))
    reference = _values(nested, few)
    if not _distance(_values(closed, few), reference) <= BOUND["float64"]:
        raise WrongReference(f"bench jets: the float64 reference of {case.name} disagrees with nested autograd.")
    return _values(engines.build("torch", exact, weights)[0], points.double())


def _require(row: Row, key: str) -> None:
    if not row[key] <= row["bound"]:
        raise Inaccurate(f"{key.replace('_', ' ')} {row[key]:.1e} beyond {row['bound']:.0e}")


def _error(step: engines.Step, points: Tensor, truth: Sequence[Tensor]) -> float:
    return _distance(_values(step, points), truth)


def _values(step: engines.Step, points: Tensor) -> list[Tensor]:
    loss, gradients = step(points)
    return [loss.double(), *(g.double().to(points.device) for g in gradients)]


def _distance(found: Sequence[Tensor], truth: Sequence[Tensor]) -> float:
    """Largest relative L2 error; a gradient that is a millionth of the largest counts relative to that."""
    floor = 1e-6 * max(float(t.norm()) for t in truth[1:])
    pairs = [(a.to(b.device), b) for a, b in zip(found, truth, strict=True)]
    errors = [float((a - b).norm()) / max(float(b.norm()), floor) for a, b in pairs]
    return max(errors, key=lambda e: e if e == e else float("inf"))
