"""The loop of `pinnfuse bench ops`: check, then time forward and backward against a copy measured in the same run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from pinnfuse.bench import machine, results, timing
from pinnfuse.bench.operator_engines import (
    DTYPES,
    ENGINES,
    LIMITED,
    OPERATORS,
    OURS,
    Case,
    Op,
    applies,
    build,
    by_coordinates,
    network,
    reference,
)
from pinnfuse.bench.operator_promises import promises, small_promises
from pinnfuse.errors import nearest
from pinnfuse.precision import torch_convolutions

BOUND = {"float32": 2e-5, "float64": 1e-12, "float16": 1e-2, "bfloat16": 8e-2}
"""Largest error relative to the largest magnitude; beyond it there is no number."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """Points: `batch` fields of n^dimension numbers of a dtype."""

    n: int
    batch: int = 1
    dimension: int = 2
    dtype: str = "float32"

    def case(self, operator: str) -> Case:
        return Case(operator, self.n, self.batch, dimension=self.dimension, dtype=self.dtype)


SIZES = (
    *(Size(n, batch) for n, batch in ((512, 1), (2048, 1), (2048, 8), (8192, 1))),
    Size(2**24, dimension=1),
    Size(256, dimension=3),
    *(Size(2048, 8, dtype=dtype) for dtype in DTYPES[1:]),
)
SMALL = (*(Size(n) for n in (32, 64, 128, 256, 512, 1024)), Size(4096, dimension=1), Size(32, dimension=3))


@dataclass(frozen=True)
class Settings:
    """What to measure: operators on periodic fields of all `sizes`, ours between walls too.

    Raises:
        ValueError: an unknown name.
    """

    operators: Sequence[str] = OPERATORS
    sizes: Sequence[Size] = SIZES
    small: Sequence[Size] = SMALL
    engines: Sequence[str] = ENGINES
    walls: bool = True
    device: str = "cpu"
    seconds: float = 0.2

    def __post_init__(self) -> None:
        known_engines = tuple(dict.fromkeys((*ENGINES, *OURS)))
        checked = (("operators", self.operators, (*OPERATORS, *LIMITED)), ("engines", self.engines, known_engines))
        for option, given, known in checked:
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
    from pinnfuse.bench import operator_picture, operator_table

    console = console or Console(quiet=True)
    device = torch.device(settings.device)
    path = results.place(out, device, "ops.json")
    report: dict[str, Any] = {
        **machine.head(device),
        "settings": asdict(settings),
        "rows": [],
        "crossover": [],
    }
    counted: Counts = {}

    def save() -> None:
        report["promises"] = promises(report["rows"]) + small_promises(report["crossover"])
        results.save(path, report)

    with torch_convolutions():
        for operator in settings.operators:
            for size in settings.sizes:
                case = size.case(operator)
                with console.status(f"{operator}, {case.size}"):
                    copy = copy_rate(case, device, settings.seconds)
                    engines = [name for name in settings.engines if applies(name, case)]
                    report["rows"] += measure(case, engines, device, settings.seconds, copy, counted)
                    if settings.walls:
                        walled = replace(case, boundary="dirichlet")
                        report["rows"] += measure(walled, ("pinnfuse",), device, settings.seconds, copy, counted)
                save()
            for size in settings.small if operator in OPERATORS else ():  # of limited schemes there is no eager one
                report["crossover"].append(crossover(size.case(operator), device, settings.seconds))
            save()
    operator_table.show(report, console)
    operator_picture.draw(report, path.with_name("ops.png"))
    console.print(f"wrote {path} and ops.png", soft_wrap=True, highlight=False)
    return report["rows"]


def copy_rate(case: Case, device: torch.device, seconds: float) -> float:
    """GB/s of a device copy of the field, bytes read and written."""
    source = case.inputs(device)[0]
    target = torch.empty_like(source)
    ms = _milliseconds(lambda: target.copy_(source), device, seconds)
    return 2 * source.numel() * source.element_size() / (ms * 1e6)


Counts = dict[tuple[Any, ...], int]
"""Launches by operator, engine, dimension, boundary, part: they do not depend on the size, and counting is slow."""


def measure(
    case: Case, engines: Sequence[str], device: torch.device, seconds: float, copy: float, counted: Counts | None = None
) -> list[Row]:
    """The rows of one case."""
    inputs = case.inputs(device)
    counted = {} if counted is None else counted
    rows = []
    for engine in engines:
        row: Row = {**asdict(case), "engine": engine, "copy_gb_per_s": copy}
        rows.append(row)
        try:
            if engine == "coordinates":
                row |= _coordinates(case, device, seconds)
                continue
            function = build(engine, case)
            if engine != "fourier":  # other numbers: exact derivatives
                row["error"] = _error(function, case, inputs)
                _require(row["error"], BOUND[case.dtype])
            row |= _times(
                function, inputs, device, seconds, counted, (case.operator, engine, case.dimension, case.boundary)
            )
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
        if ours is not None and row is not ours and "failed" not in row:
            row["times_ours"] = _total(row) / _total(ours)
            row["graph_times_ours"] = _total(row, "graph_ms") / _total(ours, "graph_ms")
            row["memory_times_ours"] = row["memory_mb"] / ours["memory_mb"]
    return rows


def _require(error: float, bound: float) -> None:
    if not error <= bound:
        raise ArithmeticError(f"error {error:.1e} beyond {bound:.0e}")


def _total(row: Row, key: str = "ms") -> float:
    """Forward and backward, milliseconds."""
    if "both_ms" in row:
        return row["both_ms"]
    return sum(row[part].get(key, row[part]["ms"]) for part in ("forward", "backward"))


def _error(function: Op, case: Case, inputs: Sequence[Tensor]) -> float:
    """Of the value and the gradients, on the first entry of the batch."""
    few = [x[:1].clone().requires_grad_() for x in inputs]
    exact = [x.detach().double().requires_grad_() for x in few]
    found, truth = function(*few), reference(case)(*exact)
    upstream = torch.cos(truth.detach()).to(found.dtype)
    pairs = [(found, truth)]
    pairs += zip(
        torch.autograd.grad(found, few, upstream), torch.autograd.grad(truth, exact, upstream.double()), strict=True
    )
    return max(float((a.detach().double() - b.detach()).abs().max() / b.detach().abs().max()) for a, b in pairs)


def _coordinates(case: Case, device: torch.device, seconds: float) -> Row:
    """Value, and the gradient of the network's parameters; checked against float64 on a few points."""
    net = network(case.dimension).to(device)
    parameters = list(net.parameters())
    points = torch.rand(case.batch * case.n**case.dimension, case.dimension, device=device)
    upstream = torch.randn_like(by_coordinates(case.operator, net, points[:1])).expand(
        len(points), *[case.dimension] * (case.operator == "gradient")
    )

    def both(_: Tensor) -> None:
        torch.autograd.grad(by_coordinates(case.operator, net, points), parameters, upstream, allow_unused=True)

    few = points[:256]
    found = by_coordinates(case.operator, net, few).detach().double()
    truth = by_coordinates(case.operator, network(case.dimension).to(device).double(), few.double()).detach()
    row: Row = {"error": float((found - truth).abs().max() / truth.abs().max())}
    _require(row["error"], BOUND[case.dtype])
    row["both_ms"] = _milliseconds(lambda: both(points), device, seconds)
    if device.type == "cuda":
        row["launches"] = timing.launches(lambda: both(points))
    row["memory_mb"] = timing.peak_memory(both, points, device)
    return row


def _times(
    function: Op,
    inputs: Sequence[Tensor],
    device: torch.device,
    seconds: float,
    counted: Counts,
    name: tuple[Any, ...],
) -> Row:
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
    for part_name, call in (("forward", forward), ("backward", backward)):
        part: Row = {"ms": _milliseconds(call, device, seconds)}
        if device.type == "cuda":
            key = (*name, part_name)
            part["launches"] = counted[key] if key in counted else counted.setdefault(key, timing.launches(call))
            try:
                part["graph_ms"] = _milliseconds(_captured(call, stream).replay, device, seconds)
            except RuntimeError as reason:
                part["no_graph"] = str(reason).splitlines()[0][:200]
        found[part_name] = part
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


SMALL_ENGINES = ("pinnfuse", "kernel", "torch", "eager-roll", "eager-slice")


def crossover(case: Case, device: torch.device, seconds: float) -> Row:
    """Forward and backward of one call as called (no graph): what "auto" takes, each path of ours, and eager."""
    inputs = case.inputs(device)
    row: Row = {"operator": case.operator, "n": case.n, "dimension": case.dimension, "size": case.size}
    steps = {}
    for engine in SMALL_ENGINES:
        if engine == "kernel" and device.type != "cuda":
            continue
        function = build(engine, case)
        given = [x.detach().requires_grad_() for x in inputs]
        upstream = torch.randn_like(function(*given).detach())

        def step(
            _: Tensor, function: Op = function, given: Sequence[Tensor] = given, upstream: Tensor = upstream
        ) -> Any:
            return torch.autograd.grad(function(*given), given, upstream)

        steps[engine] = step
    rounds = _rounds(steps, device, seconds)
    row |= {engine: timing.quantiles(samples)["median"] for engine, samples in rounds.items()}
    row["rounds"] = len(rounds["pinnfuse"])
    row["speedup"] = min(row["eager-roll"], row["eager-slice"]) / row["pinnfuse"]
    if "kernel" in row:
        better = rounds[min(("torch", "kernel"), key=lambda engine: row[engine])]
        ratios = [auto / path for auto, path in zip(rounds["pinnfuse"], better, strict=True)]
        row["of_best"] = timing.quantiles(ratios)["median"]  # beyond 1.1 "auto" chose badly, or its look-up costs
    return row


ROUNDS = 30
"""Of `crossover`, at least."""


def _rounds(steps: Mapping[str, timing.Call], device: torch.device, seconds: float) -> dict[str, list[float]]:
    """Milliseconds of a call per engine and round, `seconds` of rounds and `ROUNDS` at least.

    In a round every engine takes one turn of a few calls, waited for, by the wall clock, which is what a user sees; the
    order turns from round to round. So the members of a round saw the same machine, and their ratios are fair on a host
    whose speed wanders. Every engine ran before, as often, so that none is compiled or measured inside.
    """
    inputs = torch.empty(0)
    found: dict[str, list[float]] = {engine: [] for engine in steps}
    names = list(steps)
    start = time.perf_counter()
    for k in range(-3, 10_000):
        if k >= ROUNDS and time.perf_counter() - start >= seconds * len(steps):
            break
        turn = k % len(names)
        for engine in names[turn:] + names[:turn]:
            took = _turn(steps[engine], inputs, device)
            if k >= 0:
                found[engine].append(took)
    return found


CALLS = 4
"""Of a turn: the card's end of it is waited for once."""


def _turn(step: timing.Call, inputs: Tensor, device: torch.device) -> float:
    step(inputs)
    _wait(device)
    start = time.perf_counter()
    for _ in range(CALLS):
        step(inputs)
    _wait(device)
    return 1e3 * (time.perf_counter() - start) / CALLS


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
