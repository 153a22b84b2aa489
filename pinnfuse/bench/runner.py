"""The loop of `pinnfuse bench jets`: check, then time, then report."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from pinnfuse import BackendUnavailable
from pinnfuse import precision as precisions
from pinnfuse.backends import check_name
from pinnfuse.bench import engines, machine, results, timing
from pinnfuse.bench.cases import PDES, Case
from pinnfuse.bench.table import show
from pinnfuse.errors import nearest

BOUND = {"float32": 1e-5, "tf32": 5e-2, "bf16x3": 1e-3, "float64": 1e-12}
"""Largest relative L2 error of the loss and of any gradient; beyond it there is no number."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """What to measure: every combination of cases, widths, depths, points and precisions.

    Raises:
        ValueError: an unknown name, or a precision that does not fit the dtype.
    """

    cases: Sequence[str]
    widths: Sequence[int] = (64,)
    depths: Sequence[int] = (6,)
    points: Sequence[int] = (65536,)
    dtype: str = "float32"
    precisions: Sequence[str] = ("float32",)
    backend: str = "auto"
    against: Sequence[str] = ("autograd",)
    device: str = "cpu"
    seconds: float = 2.0

    def __post_init__(self) -> None:
        for option, given, known in (("cases", self.cases, PDES), ("against", self.against, engines.PEERS)):
            for name in given:
                if name not in known:
                    raise ValueError(f"bench jets: `{option}` holds the unknown {name!r}. {nearest(name, known)}")
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"bench jets: `dtype` must be 'float32' or 'float64'; got {self.dtype!r}.")
        if not self.cases:
            raise ValueError(f"bench jets: `cases` must name at least one of {', '.join(PDES)}.")
        if not 0 < self.seconds < float("inf"):
            raise ValueError(f"bench jets: `seconds` must be a positive number; got {self.seconds:g}.")
        check_name(self.backend, "bench jets")
        for name in self.precisions:
            if self.dtype == "float32":
                precisions.resolve(name, torch.float32, "bench jets")
            elif name not in ("float32", "float64"):  # the former is the default
                raise ValueError(f"bench jets: `precision` {name!r} needs `dtype` float32; got {self.dtype!r}.")

    def expand(self) -> Iterator[Case]:
        """The cases, one after the other."""
        double = self.dtype == "float64"
        chosen = ["float64"] if double else [precisions.resolve(p, torch.float32) for p in self.precisions]
        for name, width, depth, points, precision in product(self.cases, self.widths, self.depths, self.points, chosen):
            yield Case(name, width, depth, points, precision, torch.device(self.device))


def run(settings: Settings, out: str | Path, logger: str | None = None, console: Console | None = None) -> list[Row]:
    """Measure, print a table, and write `jets.json` and `jets.png` into `out/<card or processor>/`.

    Args:
        logger: "wandb" logs rows and picture too, offline without an account.

    Returns:
        one row per case and engine: `ms` where it was timed, else "failed" or "skipped" with the reason.
    """
    if logger not in (None, "wandb"):
        raise ValueError(f"bench jets: `logger` must be 'wandb' or nothing; got {logger!r}.")
    console = console or Console(quiet=True)
    device = torch.device(settings.device)
    path = results.place(out, device, "jets.json")
    report: dict[str, Any] = {
        **machine.head(device),
        "settings": asdict(settings),
        "rows": [],
    }
    rows: list[Row] = report["rows"]
    for case in settings.expand():
        card = torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
        with console.status(f"{case.name}, width {case.width}, {case.points:,} points, {case.precision}"), card:
            rows += measure(case, settings)
        results.save(path, report)
    show(rows, console)
    from pinnfuse.bench.picture import draw  # matplotlib takes a second to load

    draw(report, path.with_name("jets.png"))
    console.print(f"wrote {path} and jets.png", soft_wrap=True, highlight=False)
    if logger:
        from pinnfuse.bench.log import log

        log(report, path.parent)
    return rows


def measure(case: Case, settings: Settings) -> list[Row]:
    """The rows of one case: ours first, then the others, each checked on the points that it is timed on."""
    size = case.points * len(case.pde.coordinates) * torch.finfo(case.dtype).bits // 8
    inputs = case.inputs(timing.copies(case.device, size))
    truth = _truth(case, inputs[0])
    rows: list[Row] = []
    steps: dict[str, engines.Step] = {}
    for engine in ("pinnfuse", *settings.against):
        if rows and rows[0].get("path", "").startswith(f"{engine} ("):
            continue  # ours already
        row: Row = {key: value for key, value in asdict(case).items() if key != "device"} | {"engine": engine}
        rows.append(row)
        try:
            step, row["path"] = engines.build(settings.backend if engine == "pinnfuse" else engine, case)
            row["bound"] = BOUND[case.precision]
            row["error"] = _error(step, inputs[0], truth)
            _require(row, "error")
            if engine != "jax" and (engine != "torch-compile" or case.device.type == "cuda"):
                row["memory_mb"] = timing.peak_memory(step, inputs[0], case.device)
            steps[engine] = step
            if row["path"].startswith("triton") and case.device.type == "cuda":
                captured = timing.graph(step, inputs[0])
                row["graph_error"] = _error(captured, inputs[0], truth)
                _require(row, "graph_error")
                steps["graph"] = captured
        except BackendUnavailable as reason:
            row["skipped"] = str(reason)
        except torch.OutOfMemoryError:
            row["skipped"] = "out of memory"
            torch.cuda.empty_cache()
        except Exception as fault:  # one engine's compiler must not take the other numbers along
            steps.pop(engine, None)
            row["failed"] = f"{type(fault).__name__}: {(str(fault).strip() or 'no message').splitlines()[0][:300]}"
    found = timing.times(steps, inputs, case.device, settings.seconds)
    for row in rows:
        if row["engine"] in found:
            row["ms"] = timing.quantiles(found[row["engine"]])
            row["gflop"], row["least_mb"] = case.flop / 1e9, case.bytes / 1e6
            if row["engine"] == "pinnfuse" and "graph" in found:
                row["graph_ms"] = timing.quantiles(found["graph"])
            best = (row.get("graph_ms") or row["ms"])["median"]
            row["tflop_per_s"], row["least_gb_per_s"] = case.flop / best / 1e9, case.bytes / best / 1e6
    _ratios(rows)
    return rows


def _ratios(rows: Sequence[Row]) -> None:
    """How many times slower than ours, and how many times the memory, each engine is."""
    ours = rows[0]
    for row in rows[1:]:
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
        raise RuntimeError(f"bench jets: the float64 reference of {case.name} disagrees with nested autograd.")
    return _values(engines.build("torch", exact, weights)[0], points.double())


class Inaccurate(Exception):
    """A red check: no number."""


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
