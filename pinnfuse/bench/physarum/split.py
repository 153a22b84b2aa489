"""One colony on several cards against one: the same bits first, then steps per second and the cost of an exchange."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rich.console import Console

from pinnfuse.bench import timing
from pinnfuse.bench.physarum.cases import CASES, QUICK, Case
from pinnfuse.bench.physarum.runner import head
from pinnfuse.files import whole_file
from pinnfuse.simulation.physarum.split import SplitPhysarum, spawn

GOAL = 1.6
"""times one card, on two"""
WINDOWS = (4, 6, 8)
"""steps between exchanges"""
Row = dict[str, Any]


def run_split(
    ranks: int, device: torch.device, out: str | Path, console: Console, *, seconds: float = 1.0, quick: bool = False
) -> Row:
    """16 M agents over `ranks` cards (a small colony over processes if `quick`); writes
    OUT/<card or processor>/physarum_split.json and returns the report.

    Raises:
        ProcessDied: a process ended, e.g. because the bits differ from one card's; there is no report then.
    """
    report = head(device) | {"devices": ranks, "goal": f">= {GOAL:g}x one card on two"}
    case = dataclasses.replace(QUICK[0], shape=(96, 64)) if quick else CASES[-2]
    path = Path(out) / report["machine"] / "physarum_split.json"
    with whole_file(path) as temporary, console.status(f"{case.name} over {ranks} processes"):
        spawn(_measure, ranks, case, seconds, str(temporary), device=device.type, timeout=300.0)
        report |= json.loads(temporary.read_text())
        temporary.write_text(json.dumps(report, indent=1) + "\n")
    for row in report["rows"]:
        ms, swap = row["step_ms"]["median"], row["exchange_ms"]["median"]
        console.print(
            f"{row['case']}, window {row['window']}: {ms:.3g} ms a step, {row['ratio']:.2f}x one, "
            f"exchange {swap:.3g} ms for {row['message_mb']:.2f} MB to each neighbour",
            highlight=False,
        )
    console.print(f"{report['check']}; best {report['best']:.2f}x, goal {GOAL:g}x; wrote {path}", highlight=False)
    return report


def _measure(device: torch.device, case: Case, seconds: float, path: str) -> None:
    """In every process; the first one writes. Each times the whole colony on its own card."""
    found: Row = {"rows": [], "check": _check(case, device)}
    for sort_every in (0, 100):
        name = case.name + (f", sorted every {sort_every} steps" if sort_every else "")
        one = case.colony(device)
        alone = _steps(one, device, seconds, sort_every)
        del one
        found.setdefault("one", {})[name] = alone
        for window in WINDOWS:
            sim = SplitPhysarum(case.colony(device), window=window)
            ms = _steps(sim, device, seconds, sort_every)
            row = {"case": name, "window": sim.window, "step_ms": ms, "ratio": alone["median"] / ms["median"]}
            row |= {"steps_per_s": 1e3 / ms["median"], "updates_per_s": case.agents * 1e3 / ms["median"]}
            row["exchange_ms"] = timing.quantiles([_timed(sim.exchange, device) for _ in range(20)])
            row["message_mb"] = sim.message_bytes / 1e6
            row["rows_twice"] = sim.band.rows / sim.band.size - 1
            found["rows"].append(row)
            del sim
    found["best"] = max(row["ratio"] for row in found["rows"])
    found["met"] = found["best"] >= GOAL
    if dist.get_rank() == 0:
        Path(path).write_text(json.dumps(found))


def _check(case: Case, device: torch.device) -> str:
    """Three exchanges' worth of steps against one card.

    Raises:
        RuntimeError: the bits differ.
    """
    one, split = case.colony(device), SplitPhysarum(case.colony(device), window=4)
    steps = 3 * split.window + 1
    truth, ours = one.run(steps).state_dict(), split.run(steps).state_dict()
    order = truth["identity"].argsort()
    for name in ("x", "y", "heading", "field"):
        if not torch.equal(ours[name], truth[name] if name == "field" else truth[name][order]):
            raise RuntimeError(f"{name} differs from one card's after {steps} steps")
    return f"{steps} steps, {split.band.ranks} processes against one: same bits"


def _steps(sim: Any, device: torch.device, seconds: float, sort_every: int) -> dict[str, float | int]:
    """Milliseconds of a step by the slowest process, in runs of 100 (few on a CPU), after 200 (8) others."""
    chunk, before = (100, 200) if device.type == "cuda" else (8, 8)
    sim.run(before, sort_every)
    sample = _timed(lambda: sim.run(chunk, sort_every), device)
    count = max(5, min(50, int(1e3 * seconds / sample)))
    return timing.quantiles([_timed(lambda: sim.run(chunk, sort_every), device) / chunk for _ in range(count)])


def _timed(action: Any, device: torch.device) -> float:
    """Milliseconds from a common start to the last process's end; the same number in every process."""
    dist.all_reduce(torch.zeros(1, device=device))
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    action()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    taken = torch.tensor([1e3 * (time.perf_counter() - start)], device=device, dtype=torch.float64)
    dist.all_reduce(taken, dist.ReduceOp.MAX)
    return float(taken)
