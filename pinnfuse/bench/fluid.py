"""`pinnfuse bench fluid`: FluidSimulator against flows that are known, and the time of its steps.

taylor_green   decay rate of a periodic vortex, 2 nu k^2 of its energy; divergence after the last step
cavity         steady flow at Re 100 and 1000: u on x = 1/2 and v on y = 1/2 against a spectral reference
               (`pinnfuse.reference.CavityReference`), the order of convergence from one size to the next
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from pinnfuse.bench import machine, results
from pinnfuse.bench.operator_table import table
from pinnfuse.grid import Dirichlet, Grid
from pinnfuse.reference.cavity import CavityReference
from pinnfuse.simulation import FluidSimulator

DECAY, CENTRE_LINES, ORDER = 1e-3, 1e-2, 1.8
"""Goals: error of the decay rate at 256^2 or finer, of the centre lines at each Re's finest size, order there."""
STEADY = 2e-5
"""A cavity is steady when no velocity changes faster; or at `LONGEST`, units of cavity side / lid speed."""
LONGEST = {100: 40.0, 1000: 120.0}
Row = dict[str, Any]


def run(
    taylor_green: Sequence[int],
    cavities: Mapping[int, Sequence[int]],
    device: torch.device,
    out: str | Path,
    console: Console | None = None,
    dtypes: Sequence[torch.dtype] = (torch.float32, torch.float64),
) -> list[Row]:
    """Compute, print a table, write `fluid.json` into `out/<card or processor>/` after every row.

    Args:
        taylor_green: numbers of cells per axis.
        cavities: `{Reynolds number: numbers of cells per axis}`, even; in float64.
    """
    console = console or Console(quiet=True)
    path = results.place(out, device, "fluid.json")
    rows: list[Row] = []
    report = {
        **machine.head(device),
        "goals": {"decay_error at 256": DECAY, "centre_line_error at the finest": CENTRE_LINES, "order": ORDER},
        "rows": rows,
    }

    def add(row: Row) -> None:
        rows.append(row)
        results.save(path, report)

    for dtype in dtypes:
        for n in taylor_green:
            with console.status(f"taylor_green {n}^2"):
                add(decay(n, dtype, device))
    for reynolds, sizes in cavities.items():
        before: Row | None = None
        for n in sizes:
            with console.status(f"cavity Re {reynolds}, {n}^2"):
                row = cavity(n, reynolds, device)
            if before is not None:
                ratio = before["centre_line_error"] / row["centre_line_error"]
                row["order"] = math.log(ratio) / math.log(n / before["n"])
            if n == sizes[-1]:
                row["met"] = row["centre_line_error"] <= CENTRE_LINES and row.get("order", math.inf) >= ORDER
            before = row
            add(row)
    _show(rows, console)
    console.print(f"wrote {path}", soft_wrap=True, highlight=False)
    return rows


def decay(n: int, dtype: torch.dtype, device: torch.device, viscosity: float = 0.05, until: float = 1.0) -> Row:
    """A Taylor-Green vortex on the torus of side 2 pi, whose velocity decays as exp(-2 nu t)."""
    grid = Grid("x y", 2 * math.pi / n, centring="cell", boundary="periodic")
    flow = FluidSimulator(grid, (n, n), viscosity, dtype=dtype, device=device)
    flow.set_velocity(lambda x, y: x.cos() * y.sin(), lambda x, y: -x.sin() * y.cos())
    before = _energy(flow)
    steps, seconds = _timed(flow, until)
    rate = math.log(before / _energy(flow)) / flow.time
    size = float(flow.u.abs().max()) / grid.spacing[0]
    row: Row = {
        "case": "taylor_green",
        "n": n,
        "dtype": str(dtype).removeprefix("torch."),
        "steps": steps,
        "ms_per_step": 1e3 * seconds,
        "decay_rate": rate,
        "decay_error": abs(rate / (4 * viscosity) - 1),
        "divergence": float(flow.divergence().abs().max()),
        "divergence_in_roundings": float(flow.divergence().abs().max()) / (size * torch.finfo(dtype).eps),
    }
    if n >= 256:
        row["met"] = row["decay_error"] <= DECAY
    return row


def cavity(n: int, reynolds: int, device: torch.device) -> Row:
    """A cavity from rest until it is steady; largest errors on both centre lines."""
    lid = {"x": "dirichlet", "y": (Dirichlet(0.0), Dirichlet(1.0))}
    grid = Grid("x y", 1 / n, centring="cell", boundary=lid)
    flow = FluidSimulator(grid, (n, n), 1 / reynolds, dtype=torch.float64, device=device)
    dt = 0.9 * flow.stable_step()  # counts the lid's speed, which no other exceeds
    count, steps, seconds, change = math.ceil(1.0 / dt), 0, 0.0, math.inf
    while change > STEADY and flow.time < LONGEST[reynolds]:
        old = flow.u, flow.v
        seconds += _seconds(lambda: flow.run(steps=count, dt=dt, every=count), device)
        steps += count
        change = max(float((a - b).abs().max()) for a, b in zip((flow.u, flow.v), old, strict=True)) / (count * dt)
    at = grid.coordinates((n, n), dtype=torch.float64)["x"]
    half = torch.full_like(at, 0.5)
    reference = CavityReference(float(reynolds))
    truth = [
        torch.from_numpy(reference.solution(torch.stack(line, dim=1).numpy())[:, k])
        for k, line in enumerate(((half, at), (at, half)))
    ]
    lines = (flow.u[n // 2 - 1].cpu(), flow.v[:, n // 2 - 1].cpu())  # the faces on x = 1/2 and on y = 1/2
    errors = [float((a - b).abs().max()) for a, b in zip(lines, truth, strict=True)]
    return {
        "case": f"cavity Re {reynolds}",
        "n": n,
        "dtype": "float64",
        "steps": steps,
        "ms_per_step": 1e3 * seconds / steps,
        "time": flow.time,
        "change_per_time": change,
        "u_error": errors[0],
        "v_error": errors[1],
        "centre_line_error": max(errors),
        "divergence": float(flow.divergence().abs().max()),
    }


def _energy(flow: FluidSimulator) -> float:
    return float(flow.u.double().square().sum() + flow.v.double().square().sum())


def _timed(flow: FluidSimulator, until: float) -> tuple[int, float]:
    """Steps, and seconds of one, without the first ones (plans, compilation, capture)."""
    steps = math.ceil(until / (0.9 * min(flow.stable_step(), 1.0)))
    warm = 10 if steps > 100 else 2
    flow.run(steps=warm, dt=until / steps)
    seconds = _seconds(lambda: flow.run(steps=steps - warm, dt=until / steps), flow.u.device)
    return steps, seconds / (steps - warm)


def _seconds(call: Any, device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def _show(rows: Sequence[Row], console: Console) -> None:
    found = table("flows", ("case", "n", "dtype"), ("steps", "ms/step", "error", "order", "divergence", "met?"))
    for row in rows:
        error = row.get("decay_error", row.get("centre_line_error"))
        order = f"{row['order']:.2f}" if "order" in row else ""
        met = {True: "[green]yes[/]", False: "[red]no[/]", None: ""}[row.get("met")]
        cells = (str(row["steps"]), f"{row['ms_per_step']:.3g}", f"{error:.1e}", order, f"{row['divergence']:.1e}", met)
        found.add_row(row["case"], str(row["n"]), row["dtype"], *cells)
    console.print(found)
