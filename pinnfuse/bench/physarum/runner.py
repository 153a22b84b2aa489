"""The loop of `pinnfuse bench physarum`: check, then time, then report."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from pinnfuse.analysis import fit_scaling
from pinnfuse.bench import machine, timing
from pinnfuse.bench.physarum.cases import CASES, CROWDED, QUICK, Case
from pinnfuse.bench.physarum.table import show
from pinnfuse.files import whole_file
from pinnfuse.simulation import Physarum

Row = dict[str, Any]


def run(device: torch.device, out: str | Path, console: Console, *, seconds: float = 1.0, quick: bool = False) -> Row:
    """Measure every case and write OUT/<card or processor>/physarum.json; returns the report."""
    protocol = {"seed": 1, "seconds": seconds, "first_call": "apart", "statistic": "median, 20 % and 80 % quantiles"}
    report: Row = head(device) | {"protocol": protocol, "rows": []}
    path = Path(out) / machine.name(device) / "physarum.json"
    with whole_file(path) as temporary:  # fails here, not after the measurements
        for case in QUICK if quick else CASES:
            with console.status(case.name):
                report["rows"].append(measure(case, device, seconds))
        with console.status("crowded deposits"):
            report["crowded"] = crowded(device, *((64, 2000) if quick else (2048, 10**6)), seconds)
        with console.status("scaling"):
            report["scaling"] = scaling(device, quick, seconds / 4)
        temporary.write_text(json.dumps(report, indent=1) + "\n")
    show(report, console)
    console.print(f"wrote {path}", soft_wrap=True, highlight=False)
    return report


def head(device: torch.device) -> Row:
    """What a report was measured on, and when."""
    return machine.head(device) | {"clocks": machine.clocks(device)}


def measure(case: Case, device: torch.device, seconds: float) -> Row:
    """One case: the same bits as torch first (on the same device), then times of `run`, of single steps, of torch."""
    row: Row = {"case": case.name, "shape": case.shape, "agents": case.agents, "published": case.published}
    try:
        sim, start = case.colony(device), time.perf_counter()
        sim.run(2)
        _wait(device)
        row["first_call_s"] = time.perf_counter() - start
        row["backend"] = "+".join(sorted(set(sim.stages.values())))
        row["check"] = check(sim, case, device)
        sim.run(110 if device.type == "cuda" else 1, case.sort_every)  # captures the graph
        row["step_ms"] = _quantiles(lambda n: sim.run(n, case.sort_every), device, seconds, case.chunk)
        ms = row["step_ms"]["median"]
        row |= {"steps_per_s": 1e3 / ms, "updates_per_s": 1e3 / ms * case.agents}
        row |= {"least_mb": case.bytes(sim) / 1e6, "least_gb_per_s": case.bytes(sim) / ms / 1e6}
        row["eager_ms"] = _quantiles(partial(_repeat, sim.step), device, seconds / 4, 20)
        if case.torch_stages:
            plain = case.colony(device, "torch")
            row["torch_ms"] = _quantiles(partial(_repeat, plain.step), device, seconds, 5)
            row["times_torch"] = row["torch_ms"]["median"] / ms
        for goal, key in ((case.goal_steps_per_s, "steps_per_s"), (case.goal_updates_per_s, "updates_per_s")):
            if goal:
                row |= {"goal": case.goal, "met": row[key] >= goal}
    except Exception as fault:  # one case must not take the other numbers along
        row["failed"] = f"{type(fault).__name__}: {(str(fault).strip() or 'no message').splitlines()[0][:300]}"
    return row


def check(sim: Physarum, case: Case, device: torch.device, steps: int = 4) -> str:
    """What was compared; raises where the backends differ. `sim` has done two steps."""
    plain = case.colony(device, "torch")
    for _ in range(2):
        plain.step()
    for _ in range(steps):
        sim.step()
        plain.step()
        if case.options.get("deposits") == "float":
            difference = (sim.field - plain.field).abs().max() / plain.field.max()
            if float(difference) > 1e-4:
                raise RuntimeError(f"the field differs from torch by {float(difference):.1e}")
        elif not all(
            torch.equal(a, b)
            for a, b in ((sim.field, plain.field), (sim.colony.x, plain.colony.x), (sim.colony.y, plain.colony.y))
        ):
            raise RuntimeError("the bits differ from torch")
    return f"{steps + 2} steps against torch: " + ("field to 1e-4" if "float" in case.options.values() else "same bits")


def crowded(device: torch.device, side: int, agents: int, seconds: float) -> Row:
    """Time of the deposit alone, agents spread evenly and all within 16 cells, for each mode."""
    found: Row = {"agents": agents, "side": side, "goal": f"two-stage at most {CROWDED:g}x slower than uniform"}
    generator = torch.Generator().manual_seed(0)
    spread = torch.rand(agents, 2, generator=generator, dtype=torch.float64)
    for mode in ("count", "two-stage", "float"):
        for name, places in (("uniform", spread * side), ("16 cells", spread * 4 + side // 2)):
            sim = Physarum((side, side), agents, positions=places, deposits=mode, device=device)
            deposit = _deposit(sim)
            deposit()
            found[f"{mode}, {name}"] = _quantiles(_captured(deposit, device, 20), device, seconds / 4, 20)
    medians = {key: value["median"] for key, value in found.items() if isinstance(value, dict)}
    for mode in ("count", "two-stage", "float"):
        found[f"slowdown, {mode}"] = medians[f"{mode}, 16 cells"] / medians[f"{mode}, uniform"]
    found["slowdown, two-stage against uniform count"] = medians["two-stage, 16 cells"] / medians["count, uniform"]
    found["met"] = found["slowdown, two-stage against uniform count"] <= CROWDED
    return found


def _deposit(sim: Physarum) -> Callable[[], None]:
    if sim.stages["deposit"] == "triton":
        from pinnfuse.kernels import physarum

        return lambda: physarum.deposit(sim.colony)
    from pinnfuse.simulation.physarum import stages

    return lambda: stages.deposit(sim.colony)


def scaling(device: torch.device, quick: bool, seconds: float) -> Row:
    """Time of a step against cells and agents, and of a run against steps, with the fits of `analysis.fit_scaling`."""
    top = 6 if quick else 12
    studies: Row = {}
    sides = [2**k for k in range(4, top + 1)]
    studies["cells"] = _study(device, [(n, 1000, n * n) for n in sides], seconds)
    counts = [10**k for k in range(1, 4 if quick else 8)]
    studies["agents"] = _study(device, [(64 if quick else 1024, a, a) for a in counts], seconds)
    sim = Physarum((64, 64), 1000, sensor_distance=9.0, device=device)
    sim.run(120)
    steps = [10, 30, 100] if quick else [100, 300, 1000, 3000, 10000]  # whole replays of a graph
    times = [timing.quantiles(_samples(sim.run, device, n, 5))["median"] / 1e3 for n in steps]
    fit = fit_scaling(steps, times)
    studies["steps"] = {"sizes": steps, "seconds": times} | _fit(fit, steps)
    return studies


def _study(device: torch.device, cases: list[tuple[int, int, int]], seconds: float) -> Row:
    sizes, times = [], []
    for side, agents, size in cases:
        sim = Physarum((side, side), agents, sensor_distance=min(9.0, side / 2), device=device)
        sim.run(110 if device.type == "cuda" else 2)
        sizes.append(size)
        times.append(_quantiles(sim.run, device, seconds, 100)["median"] / 1e3)
    fit = fit_scaling(sizes, times)
    return {"sizes": sizes, "seconds": times} | _fit(fit, sizes)


def _fit(fit: Any, sizes: list[int]) -> Row:
    found = {"fixed_s": fit.fixed, "each_s": fit.each, "relative_error": fit.error, "exponent": fit.exponent}
    return found | {"crossover": fit.crossover, "regimes": [fit.regime(n) for n in sizes]}


def _quantiles(steps: Callable[[int], Any], device: torch.device, seconds: float, chunk: int) -> dict[str, float | int]:
    """Milliseconds per step over runs of `chunk` steps (fewer on a CPU), at least 5 of them."""
    if device.type == "cpu":
        first = min(_samples(steps, device, 1, 2)) / 1e3
        chunk = max(1, min(chunk, int(seconds / 5 / first)))
    count = max(5, min(50, int(1e3 * seconds / _samples(steps, device, chunk, 1)[0])))
    return timing.quantiles([t / chunk for t in _samples(steps, device, chunk, count)])


def _samples(steps: Callable[[int], Any], device: torch.device, n: int, count: int) -> list[float]:
    """Milliseconds of `steps(n)`, `count` times."""
    clock = timing._events if device.type == "cuda" else timing._wall
    nothing = torch.empty(0)
    return clock(lambda _: steps(n), [nothing], count)


def _repeat(action: Callable[[], None], times: int) -> None:
    for _ in range(times):
        action()


def _captured(action: Callable[[], None], device: torch.device, times: int) -> Callable[[int], None]:
    """`times` calls, on a card from a graph: a kernel of some microseconds is otherwise hidden by its launch."""
    if device.type == "cpu":
        return partial(_repeat, action)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        _repeat(action, times)
    return lambda _: graph.replay()


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
