"""The loop of `pinnfuse bench ops`: check, then time forward and backward against a copy measured in the same run."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from pinnfuse.bench import machine, timing
from pinnfuse.bench.operator_engines import ENGINES, OPERATORS, Case, Op, build, reference
from pinnfuse.errors import nearest

BOUND = 2e-5
"""Largest error relative to the largest magnitude; beyond it there is no number."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """What to measure: operators on `batch` periodic fields of n x n points for every (n, batch) in `sizes`.

    Raises:
        ValueError: an unknown name.
    """

    operators: Sequence[str] = OPERATORS
    sizes: Sequence[tuple[int, int]] = ((512, 1), (2048, 1), (2048, 8), (8192, 1))
    small: Sequence[int] = (32, 64, 128, 256, 512, 1024)
    engines: Sequence[str] = ENGINES
    walls: bool = True
    device: str = "cpu"
    seconds: float = 0.2

    def __post_init__(self) -> None:
        for option, given, known in (("operators", self.operators, OPERATORS), ("engines", self.engines, ENGINES)):
            for name in given:
                if name not in known:
                    raise ValueError(f"bench ops: `{option}` holds the unknown {name!r}. {nearest(name, known)}")
        if not self.seconds > 0:
            raise ValueError(f"bench ops: `seconds` must be positive; got {self.seconds}.")


def run(settings: Settings, out: str | Path, console: Console | None = None) -> list[Row]:
    """Measure, print tables, write `ops.json` and `ops.png` into `out/<card or processor>/`.

    Returns:
        one row per case and engine: `forward` and `backward` where they were timed, else "failed" with the reason.
    """
    from pinnfuse.bench import operator_table

    console = console or Console(quiet=True)
    device = torch.device(settings.device)
    folder = Path(out) / machine.name(device)
    folder.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {
        **machine.head(device),
        "settings": asdict(settings),
        "rows": [],
        "crossover": [],
    }

    def save() -> None:
        report["promises"] = promises(report["rows"]) + small_promises(report["crossover"])
        (folder / "ops.json").write_text(json.dumps(report, indent=1) + "\n")

    allowed, torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.allow_tf32, False
    try:
        for operator in settings.operators:
            for n, batch in settings.sizes:
                with console.status(f"{operator}, {n}^2 x {batch}"):
                    case = Case(operator, n, batch)
                    copy = copy_rate(case, device, settings.seconds)
                    report["rows"] += measure(case, settings.engines, device, settings.seconds, copy)
                    if settings.walls:
                        walled = Case(operator, n, batch, "dirichlet")
                        report["rows"] += measure(walled, ("pinnfuse",), device, settings.seconds, copy)
                save()
            for n in settings.small:
                report["crossover"].append(crossover(Case(operator, n, 1), device, settings.seconds))
            save()
    finally:
        torch.backends.cudnn.allow_tf32 = allowed
    operator_table.show(report, console)
    operator_table.draw(report, folder / "ops.png")
    console.print(f"wrote {folder / 'ops.json'} and ops.png", soft_wrap=True, highlight=False)
    return report["rows"]


def copy_rate(case: Case, device: torch.device, seconds: float) -> float:
    """GB/s of a device copy of the field, bytes read and written."""
    source = case.inputs(device)[0]
    target = torch.empty_like(source)
    ms = _milliseconds(lambda: target.copy_(source), device, seconds)
    return 2 * source.numel() * source.element_size() / (ms * 1e6)


def measure(case: Case, engines: Sequence[str], device: torch.device, seconds: float, copy: float) -> list[Row]:
    """The rows of one case."""
    inputs = case.inputs(device)
    rows = []
    for engine in engines:
        row: Row = {**asdict(case), "engine": engine, "copy_gb_per_s": copy}
        rows.append(row)
        try:
            function = build(engine, case)
            if engine != "fourier":  # other numbers: exact derivatives
                row["error"] = _error(function, case, inputs)
                if not row["error"] <= BOUND:
                    raise ArithmeticError(f"error {row['error']:.1e} beyond {BOUND:.0e}")
            row |= _times(function, inputs, device, seconds)
            for key in ("forward", "backward"):
                best = row[key].get("graph_ms") or row[key]["ms"]
                row[key]["gb_per_s"] = case.gigabytes(key == "backward") / best * 1e3
                row[key]["of_copy"] = row[key]["gb_per_s"] / copy
        except torch.OutOfMemoryError:
            row["failed"] = "out of memory"
            torch.cuda.empty_cache()
        except Exception as fault:  # one engine's compiler must not take the other numbers along
            row["failed"] = f"{type(fault).__name__}: {(str(fault).strip() or 'no message').splitlines()[0][:300]}"
    ours = next((r for r in rows if r["engine"] == "pinnfuse" and "forward" in r), None)
    for row in rows:
        if ours is not None and row is not ours and "forward" in row:
            row["times_ours"] = _total(row) / _total(ours)
            row["graph_times_ours"] = _total(row, "graph_ms") / _total(ours, "graph_ms")
    return rows


def _total(row: Row, key: str = "ms") -> float:
    """Forward and backward, milliseconds."""
    return sum(row[part].get(key, row[part]["ms"]) for part in ("forward", "backward"))


def _error(function: Op, case: Case, inputs: Sequence[Tensor]) -> float:
    """Of the value and the gradients, on the first entry of the batch."""
    few = [x[:1].clone().requires_grad_() for x in inputs]
    exact = [x.detach().double().requires_grad_() for x in few]
    found, truth = function(*few), reference(case)(*exact)
    upstream = torch.cos(truth.detach())
    pairs = [(found, truth)]
    pairs += zip(
        torch.autograd.grad(found, few, upstream.float()), torch.autograd.grad(truth, exact, upstream), strict=True
    )
    return max(float((a.detach().double() - b.detach()).abs().max() / b.detach().abs().max()) for a, b in pairs)


def _times(function: Op, inputs: Sequence[Tensor], device: torch.device, seconds: float) -> Row:
    """Forward and backward apart: milliseconds a call, the same as a CUDA graph, launches; peak memory of both."""
    given = [x.detach().requires_grad_() for x in inputs]
    upstream = torch.randn_like(function(*given).detach())

    def forward() -> Tensor:
        return function(*given)

    # backward kernels run on the stream of their forward; a capture needs one that is not the default
    stream = torch.cuda.Stream() if device.type == "cuda" else None
    with torch.cuda.stream(stream) if stream is not None else contextlib.nullcontext():
        kept = forward()

    def backward() -> tuple[Tensor, ...]:
        return torch.autograd.grad(kept, given, upstream, retain_graph=True)

    def both(_: Tensor) -> None:
        torch.autograd.grad(function(*given), given, upstream)

    found: Row = {}
    for name, call in (("forward", forward), ("backward", backward)):
        part: Row = {"ms": _milliseconds(call, device, seconds)}
        if device.type == "cuda":
            part["launches"] = launches(call)
            try:
                part["graph_ms"] = _milliseconds(_captured(call, stream).replay, device, seconds)
            except RuntimeError as reason:
                part["no_graph"] = str(reason).splitlines()[0][:200]
        found[name] = part
    kept = None  # type: ignore[assignment]
    found["memory_mb"] = timing.peak_memory(both, upstream, device)
    return found


def _captured(call: Callable[[], Any], stream: Any) -> Any:
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        call()
    return graph


def _milliseconds(call: Callable[[], Any], device: torch.device, seconds: float) -> float:
    """Median of single calls."""
    samples = timing.times({"": lambda _: call()}, [torch.empty(0)] * 2, device, seconds)[""]
    return timing.quantiles(samples)["median"]


def launches(call: Callable[[], Any]) -> int:
    """Kernels, copies and fills that one call starts on the card."""
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as traced:
        call()
        torch.cuda.synchronize()
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in traced.events())


SMALL_ENGINES = ("pinnfuse", "torch", "eager-roll", "eager-slice")


def crossover(case: Case, device: torch.device, seconds: float) -> Row:
    """Forward and backward of one call as called (no graph): what "auto" takes, plain torch of ours, and eager."""
    inputs = case.inputs(device)
    row: Row = {"operator": case.operator, "n": case.n}
    for engine in SMALL_ENGINES:
        function = build(engine, case)
        given = [x.detach().requires_grad_() for x in inputs]
        upstream = torch.randn_like(function(*given).detach())

        def step(function: Op = function, given: Sequence[Tensor] = given, upstream: Tensor = upstream) -> Any:
            return torch.autograd.grad(function(*given), given, upstream)

        row[engine] = _milliseconds(step, device, seconds / 2)
    row["speedup"] = min(row["eager-roll"], row["eager-slice"]) / row["pinnfuse"]
    row["of_torch"] = row["pinnfuse"] / row["torch"]  # beyond 1.1 "auto" took the wrong one
    return row


PROMISES = {512: (1.5, 2.0), 2048: (3.0, 4.0), 8192: (5.0, 8.0)}
"""Over native operators, by the FlashPDE article."""


def promises(rows: Sequence[Row]) -> list[Row]:
    """The article's promises by operator and baseline: forward and backward as called, and as CUDA graphs."""
    found = []
    for row in rows:
        if row["n"] in PROMISES and row["batch"] == 1 and row["engine"] in ("eager-roll", "eager-slice", "conv2d"):
            if "times_ours" not in row:
                continue
            least, most = PROMISES[row["n"]]
            found.append(
                {
                    "promise": f"{least}-{most}x at {row['n']}^2",
                    "operator": row["operator"],
                    "baseline": row["engine"],
                    "measured": row["times_ours"],
                    "as_graph": row["graph_times_ours"],
                    "met": row["times_ours"] >= least,
                }
            )
    single = [r for r in rows if r["batch"] == 1 and r["boundary"] == "periodic"]
    ours = {(r["operator"], r["n"]): r for r in single if r["engine"] == "pinnfuse"}
    for row in rows:
        if row["engine"] == "eager-roll" and "launches" in row.get("forward", {}) and row["batch"] == 1:
            mine = ours.get((row["operator"], row["n"]), {})
            if row["n"] == 2048 and "forward" in mine:
                counts = [sum(r[k]["launches"] for k in ("forward", "backward")) for r in (row, mine)]
                found.append(_paper("3.5x fewer launches", row, counts[0] / counts[1], 3.5))
                best = max(row[k]["graph_ms"] / mine[k]["graph_ms"] for k in ("forward", "backward"))
                found.append(_paper("19.2x per kernel", row, best, 19.2))
    return found


def small_promises(crossovers: Sequence[Row]) -> list[Row]:
    """No size slower than eager; "auto" within 10 % of the better of kernels and plain torch. The worst size counts."""
    found = []
    for operator in dict.fromkeys(row["operator"] for row in crossovers):
        rows = [row for row in crossovers if row["operator"] == operator]
        for promise, baseline, measured, least in (
            ("no small grid slower than eager", "eager-roll", min(row["speedup"] for row in rows), 1.0),
            ("auto within 10 % of the better path", "torch", min(1.0 / row["of_torch"] for row in rows), 1 / 1.1),
        ):
            found.append(_paper(promise, {"operator": operator, "engine": baseline}, measured, least))
    return found


def _paper(promise: str, row: Row, measured: float, least: float) -> Row:
    return {
        "promise": promise,
        "operator": row["operator"],
        "baseline": row["engine"],
        "measured": measured,
        "met": measured >= least,
    }
