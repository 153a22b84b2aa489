"""Several explicit heat steps a launch against one: microseconds a step as called and as a CUDA graph, per tile.

    python benchmarks/heat_steps.py benchmarks/results [--sizes 64,256,1024,4096,8192]

Periodic float32 fields n x n. Every variant is checked against float64 first. "laplacian and sum" is two launches a
step, "one a launch" what `simulation.heat` does where several cannot be. Writes `<out>/<card>/heat_steps.json`. Without
a card: one small size, plain torch, to see that it runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from jsonargparse import auto_cli

from pinnfuse.bench import machine, timing
from pinnfuse.grid import Grid, laplacian
from pinnfuse.simulation.heat import _step as single
from pinnfuse.simulation.steps import rows

FACTOR = 0.2
STEPS = 64
"""a call"""
TILES = ((32, 32, 4, 4), (64, 64, 8, 4), (64, 64, 8, 8), (64, 64, 16, 8), (64, 64, 8, 16), (128, 32, 8, 4),
         (64, 128, 16, 8), (128, 64, 16, 8), (128, 128, 16, 16))  # fmt: skip


def main(out: str, sizes: str = "64,256,1024,4096,8192") -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    folder = Path(out) / machine.name(device)
    folder.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {
        **machine.head(device),
        "rows": [],
    }
    for n in map(int, sizes.split(",") if device.type == "cuda" else ["64"]):
        grid = Grid("x y", 1.0, boundary="periodic")
        u = torch.rand(n, n, device=device)
        exact = u.double()
        for _ in range(STEPS):
            exact = exact + FACTOR * laplacian(exact, grid)
        before = None
        for name, call in variants(n, u, grid, device).items():
            row: dict[str, Any] = {"n": n, "variant": name}
            report["rows"].append(row)
            try:
                row["error"] = float((call().double() - exact).abs().max() / exact.abs().max())
                if not row["error"] < 5e-6:
                    raise ArithmeticError(f"error {row['error']:.1e}")
                row["us_per_step"] = measure(call, device)
                if device.type == "cuda":
                    row["graph_us_per_step"] = measure(captured(call), device)
            except Exception as fault:
                row["failed"] = f"{type(fault).__name__}: {str(fault).splitlines()[0][:200]}"
                print(row)
                continue
            before = before or row
            best = row.get("graph_us_per_step", row["us_per_step"])
            row["gain"] = before["us_per_step"] / row["us_per_step"]
            row["graph_gain"] = before.get("graph_us_per_step", before["us_per_step"]) / best
            row["points_per_second"] = n * n / best * 1e6
            print(
                f"{n:6} {name:32} {row['us_per_step']:9.2f} us as called, {best:8.2f} graph, x{row['graph_gain']:.2f}"
            )
            (folder / "heat_steps.json").write_text(json.dumps(report, indent=1) + "\n")


def variants(n: int, u: torch.Tensor, grid: Grid, device: torch.device) -> dict[str, Callable[[], torch.Tensor]]:
    def laplacian_and_sum() -> torch.Tensor:
        v = u
        for _ in range(STEPS):
            v = torch.add(v, laplacian(v, grid), alpha=FACTOR)
        return v

    def one() -> torch.Tensor:
        step, v = single(grid, FACTOR), u
        for _ in range(STEPS):
            v = step(v, grid.axes, scalar=(True, True))
        return v

    found: dict[str, Callable[[], torch.Tensor]] = {"one a launch": one, "laplacian and sum": laplacian_and_sum}
    if device.type != "cuda":
        return found
    from pinnfuse.kernels.grid import heat as kernels

    table = rows(grid, (n, n), FACTOR, True, False).to(device, torch.float32)
    flat = u[None]

    def several(tile: Any = None) -> Callable[[], torch.Tensor]:
        return lambda: kernels.advance(flat, table, STEPS, (True, True), False, tile)[0]

    found["as shipped"] = several()
    for tile in TILES:
        found["tile {}x{}, {} warps, {} steps".format(*tile)] = several(kernels.Tile(*tile))
    return found


def captured(call: Callable[[], torch.Tensor]) -> Callable[[], Any]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def measure(call: Callable[[], Any], device: torch.device) -> float:
    samples = timing.times({"": lambda _: call()}, [torch.empty(0)] * 2, device, 0.1)[""]
    return 1e3 * timing.quantiles(samples)["median"] / STEPS


if __name__ == "__main__":
    auto_cli(main, description=(__doc__ or "").splitlines()[0])
