"""The loop of `pinnfuse bench grid`: residual losses of fields and their gradients, checked, then timed in turns.

Three kinds of rows, all in one run: `rows` are steps (loss and gradient) of flows at large sizes and of six PDEs, by
the engines of `grid_engines`; of "coordinates", the same residuals of a network at as many points by nested autograd;
`training` are whole training steps. The floor is the time of reading all fields twice and writing their gradient once
at the rate of a copy in the same run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from pinnfuse import BackendUnavailable, FusedResidualLoss
from pinnfuse.bench import grid_engines as engines
from pinnfuse.bench import machine, results, timing
from pinnfuse.bench.grid_engines import GridCase, Step, eager, roll, step_of, steps
from pinnfuse.bench.grid_promises import promises
from pinnfuse.precision import torch_convolutions

Row = dict[str, Any]
BOUND = {"float32": 1e-5, "float64": 1e-12, "float16": 1e-2, "bfloat16": 8e-2}
"""Largest relative L2 error of loss and gradient against float64; beyond it there is no number."""
GRAPHS_MB = 200
"""Fields up to which steps are captured, too: beyond, the host's time is hidden, and every graph keeps its memory."""
MOST_COORDINATES = 2**20
"""Points up to which nested autograd is measured."""


@dataclass(frozen=True)
class Settings:
    """What to measure.

    Attributes:
        cases: steps by all engines.
        six: steps of six PDEs, by engines without compilation.
        training: training steps.
        against: engines.
    """

    cases: Sequence[GridCase]
    six: Sequence[GridCase] = ()
    training: Sequence[GridCase] = ()
    against: Sequence[str] = engines.ENGINES
    seconds: float = 1.0


def run(settings: Settings, device: torch.device, out: str | Path, console: Console | None = None) -> dict[str, Any]:
    """Measure, print tables, and write `grid_residual.json` into `out/<card or processor>/` after every case.

    Returns:
        what is in the file: `rows`, `training`, `promises` and what they were measured on.
    """
    from pinnfuse.bench import grid_table

    console = console or Console(quiet=True)
    path = results.place(out, device, "grid_residual.json")
    report: dict[str, Any] = {**machine.head(device), "seconds": settings.seconds, "rows": [], "training": []}
    uncompiled = [name for name in settings.against if name != "torch-compile"]
    work = [("rows", case, partial(measure, case, settings.against)) for case in settings.cases]
    work += [("rows", case, partial(measure, case, uncompiled)) for case in settings.six]
    work += [("training", case, partial(train, case, settings.against)) for case in settings.training]
    for kind, case, rows in work:
        what = f"{case.pde} {case.n}^{case.dimension} x {case.batch}, {case.boundary}, {kind}"
        with console.status(what), torch_convolutions():
            report[kind] += rows(device, settings.seconds)
        report["promises"] = promises(report["rows"], report["training"])
        results.save(path, report)
        if device.type == "cuda":
            torch.cuda.empty_cache()
    grid_table.show(report, console)
    console.print(f"wrote {path}", soft_wrap=True, highlight=False)
    return report


def measure(case: GridCase, against: Sequence[str], device: torch.device, seconds: float) -> list[Row]:
    """The rows of a case: every engine is checked against float64 before it is timed."""
    inputs = case.inputs(device, 2)
    truth = step_of(eager(case))(inputs[0].double())
    rows: list[Row] = []
    timed: dict[str, Step] = {}
    for name, build in steps(case, against, device).items():
        row: Row = {**asdict(case), "engine": name, "fields_mb": case.megabytes}
        rows.append(row)
        with _failing(row):
            step = build()
            found = step(inputs[0])
            if name != "fourier":  # exact derivatives: another number
                row["error"] = max(_distance(a, b) for a, b in zip(found, truth, strict=True))
                require(row["error"], BOUND[case.dtype])
            del found
            row["memory_mb"] = timing.peak_memory(step, inputs[0], device)
            key = (case.pde, case.boundary, case.dimension, name)
            row["launches"] = _launches[key] if key in _launches else launches(step, inputs[0], device)
            _launches[key] = row["launches"]
            timed[name] = step
            if device.type == "cuda" and case.megabytes <= GRAPHS_MB:
                try:
                    timed[f"{name}, graph"] = timing.graph(step, inputs[0])
                except RuntimeError as reason:
                    row["no_graph"] = str(reason).splitlines()[0][:200]
    del truth
    target = torch.empty_like(inputs[0])
    timed["copy"] = lambda fields: target.copy_(fields)  # type: ignore[assignment,return-value]
    times = {name: timing.quantiles(found) for name, found in timing.times(timed, inputs, device, seconds).items()}
    copy = times["copy"]["median"]
    for row in rows:
        if row["engine"] in times:
            row["ms"] = times[row["engine"]]
            best = row["ms"]["median"]
            if f"{row['engine']}, graph" in times:
                row["graph_ms"] = times[f"{row['engine']}, graph"]["median"]
                best = min(best, row["graph_ms"])
            row["copy_gb_per_s"] = 2 * case.megabytes / copy
            row["floor_ms"] = 1.5 * copy  # two reads and one write of what a copy reads once and writes once
            row["of_floor"] = row["floor_ms"] / best
    if "coordinates" in against and case.dtype == "float32" and case.points <= MOST_COORDINATES:
        rows.append(coordinates(case, device, seconds))
    compare(rows)
    return rows


def coordinates(case: GridCase, device: torch.device, seconds: float) -> Row:
    """Residuals of a network by nested autograd at as many points as the grid has: loss, gradient of its parameters."""
    row: Row = {**asdict(case), "engine": "coordinates"}
    with _failing(row):
        net, loss = engines.by_coordinates(case, device)
        points = torch.rand(case.points, len(case.equations.pde.coordinates), device=device)
        row["error"] = _coordinate_error(case, device, points)

        def step(points: Tensor) -> tuple[Tensor | None, ...]:
            return torch.autograd.grad(loss(net, points), list(net.parameters()), allow_unused=True)

        row["memory_mb"] = timing.peak_memory(step, points, device)
        row["launches"] = launches(step, points, device)
        row["ms"] = timing.quantiles(timing.times({"": step}, [points] * 2, device, seconds)[""])
    return row


def _coordinate_error(case: GridCase, device: torch.device, points: Tensor) -> float:
    """Of the loss on a few points, against closed-form jets in float64."""
    few = points[:256]
    net, loss = engines.by_coordinates(case, device)
    exact, _ = engines.by_coordinates(case, device, torch.float64)
    exact.load_state_dict(net.state_dict())
    truth = FusedResidualLoss(case.equations.pde, backend="torch")(exact, few.double())
    error = _distance(loss(net, few).detach(), truth.detach())
    require(error, BOUND["float32"])
    return error


def train(case: GridCase, against: Sequence[str], device: torch.device, seconds: float) -> list[Row]:
    """Training steps: a Fourier operator with our residual and with eager ones; a network of coordinates."""
    (fields,) = case.inputs(device, 1)
    points = torch.rand(case.points, len(case.equations.pde.coordinates), device=device)
    losses: dict[str, Callable[[Tensor], Tensor]] = {"pinnfuse": engines.fused(case, "auto", device)}
    losses |= {name: make(case) for name, make in (("eager", eager), ("roll", roll)) if name in against}
    rows: list[Row] = []
    timed: dict[str, Callable[[Tensor], Tensor]] = {}
    truth: Tensor | None = None
    for name in (*losses, *(["coordinates"] if "coordinates" in against else [])):
        row: Row = {**asdict(case), "engine": name}
        rows.append(row)
        with _failing(row):
            if name == "coordinates":
                row["error"] = _coordinate_error(case, device, points)
                step, given = engines.coordinate_training_step(case, device), points
            else:
                step, given = engines.training_step(case, losses[name], device), fields
                value = step(fields)  # of the same first weights for every engine
                exact = engines.training_step(case, eager(case), device, torch.float64)
                truth = exact(fields.double()) if truth is None else truth
                row["error"] = _distance(value, truth)
                require(row["error"], BOUND["float32"])
            row["memory_mb"] = timing.peak_memory(step, given, device)
            timed[name] = lambda _, step=step, given=given: step(given)  # type: ignore[misc]
    times = timing.times(timed, [fields] * 2, device, seconds) if timed else {}
    for row in rows:
        if row["engine"] in times:
            row["ms"] = timing.quantiles(times[row["engine"]])
    compare(rows)
    return rows


class _failing:
    """What goes wrong with one engine is written into its row and takes no other number along."""

    def __init__(self, row: Row):
        self.row = row

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, fault: Any, trace: Any) -> bool:
        if isinstance(fault, torch.OutOfMemoryError):
            self.row["skipped"] = "out of memory"
            torch.cuda.empty_cache()
        elif isinstance(fault, BackendUnavailable):
            self.row["skipped"] = str(fault).splitlines()[0]
        elif isinstance(fault, Exception):
            self.row["failed"] = f"{type(fault).__name__}: {str(fault)[:200]}"
        return isinstance(fault, Exception)


def require(error: float, bound: float) -> None:
    if not error <= bound:
        raise ArithmeticError(f"error {error:.1e} beyond {bound:.0e}")


def _distance(found: Tensor, truth: Tensor) -> float:
    return float((found.double() - truth).norm() / truth.norm())


def compare(rows: Sequence[Row]) -> None:
    """How many times the time, and the memory, of ours each engine needs: as called, and both as CUDA graphs."""
    ours = rows[0]
    for row in rows[1:]:
        if "ms" in row and "ms" in ours:
            row["times_ours"] = row["ms"]["median"] / ours["ms"]["median"]
        if "graph_ms" in row and "graph_ms" in ours:
            row["graph_times_ours"] = row["graph_ms"] / ours["graph_ms"]
        if "memory_mb" in row and ours.get("memory_mb"):
            row["memory_times_ours"] = row["memory_mb"] / ours["memory_mb"]


_launches: dict[tuple[str, str, int, str], int | None] = {}


def launches(step: Callable[[Tensor], Any], fields: Tensor, device: torch.device) -> int | None:
    return timing.launches(lambda: step(fields)) if device.type == "cuda" else None
