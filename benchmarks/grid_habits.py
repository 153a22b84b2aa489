"""What the FlashPDE article advises, measured: products, layouts, batches, precision, memory.

    python benchmarks/grid_habits.py benchmarks/results [--quick true]

    products   x x^T + x at 2048^2 and 1024x512 by 512x256, fused against torch (cuBLAS), TF32 off and on
    layouts    laplacian of 2048^2 fields: contiguous, transposed, every second row, channels last
    batches    64 fields of 256^2: one after the other, and together
    precision  laplacian of a smooth field in float16, bfloat16, float32: time, and error against h
    memory     bytes of a known operation, predicted and counted

Writes `<out>/<machine>/habits.json`. `--quick true`: small sizes, to see that it runs.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from jsonargparse import auto_cli

from pinnfuse.bench import benchmark_operator, benchmark_pair, machine
from pinnfuse.compat import flashpde
from pinnfuse.grid import Grid, laplacian
from pinnfuse.profiling import memory

Row = dict[str, Any]
RUNS = 50


def products(device: torch.device, small: bool) -> list[Row]:
    found = []
    n, (m, k, w) = (64, (32, 16, 8)) if small else (2048, (1024, 512, 256))
    x = torch.randn(n, n, device=device)
    b = torch.randn(k, w, device=device)
    cases = {
        f"x x^T + x, {n}^2": (lambda x: x @ x.T + x, flashpde.fused_matmul_add, x),
        f"{m}x{k} by {k}x{w}": (
            lambda a: a @ b,
            lambda a: flashpde.fused_matmul(a, b),
            torch.randn(m, k, device=device),
        ),
    }
    for precision in ("highest", "high"):
        torch.set_float32_matmul_precision(precision)
        for name, (native, fused, given) in cases.items():
            pair = benchmark_pair(native, fused, given, runs=RUNS)
            found.append({"case": name, "precision": precision, **pair.as_dict()})
            print(f"{name}, {precision}: {pair.first.median:.4f} ms native, {pair.second.median:.4f} fused")
    torch.set_float32_matmul_precision("highest")
    return found


def layouts(device: torch.device, small: bool) -> list[Row]:
    n, batch = (64, 2) if small else (2048, 8)
    grid = Grid("x y", 1.0, boundary="periodic")
    kept = {
        "contiguous": torch.rand(batch, n, n, device=device),
        "transposed": torch.rand(batch, n, n, device=device).mT,
        "every second row": torch.rand(batch, 2 * n, n, device=device)[:, ::2],
        "channels last": torch.rand(n, n, batch, device=device).movedim(-1, 0),
    }
    found = []
    for name, u in kept.items():
        as_is = benchmark_operator(lambda u: laplacian(u, grid), u, runs=RUNS)
        copied = benchmark_operator(lambda u: laplacian(u.contiguous(), grid), u, runs=RUNS)
        found.append({"layout": name, "ms": as_is.median, "ms_with_copy_before": copied.median})
        print(f"{name}: {as_is.median:.4f} ms, {copied.median:.4f} with a copy before")
    return found


def batches(device: torch.device, small: bool) -> list[Row]:
    n, batch = (32, 4) if small else (256, 64)
    grid = Grid("x y", 1.0, boundary="periodic")
    u = torch.rand(batch, n, n, device=device)
    together = benchmark_operator(lambda u: laplacian(u, grid), u, runs=RUNS)
    apart = benchmark_operator(lambda u: [laplacian(v, grid) for v in u], u, runs=RUNS)
    print(f"{batch} fields of {n}^2: {apart.median:.4f} ms one by one, {together.median:.4f} together")
    return [{"fields": batch, "n": n, "one_by_one_ms": apart.median, "together_ms": together.median}]


def precision(device: torch.device, small: bool) -> list[Row]:
    found = []
    for n in (32, 64) if small else (32, 64, 128, 256, 512, 1024, 2048):
        h = 2 * math.pi / n
        grid = Grid("x y", h, boundary="periodic")
        x = torch.arange(n, device=device, dtype=torch.float64) * h
        u = x.sin()[:, None] * x.cos()[None, :]
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            rounded = u.to(dtype)
            value = laplacian(rounded, grid).double()
            row = {
                "n": n,
                "dtype": str(dtype).removeprefix("torch."),
                "error": float((value + 2 * u).norm() / (2 * u).norm()),
                "floor": torch.finfo(dtype).eps / h**2,
                "ms": benchmark_operator(lambda u, grid=grid: laplacian(u, grid), rounded, runs=RUNS).median,
            }
            found.append(row)
    for row in found:
        print(
            f"{row['n']:5} {row['dtype']:9} error {row['error']:.1e}, eps / h^2 {row['floor']:.1e}, {row['ms']:.4f} ms"
        )
    return found


def memories(device: torch.device, small: bool) -> list[Row]:
    """laplacian: one result forward, one gradient backward, nothing saved."""
    grid = Grid("x y", 1.0, boundary="periodic")
    found = []
    for row in memory(lambda u: laplacian(u, grid), (64, 128) if small else (1024, 2048, 4096), device=device):
        field = 4e-6 * row.size**2
        entry = {"n": row.size, "predicted_mb": field, "forward_mb": row.forward, "backward_mb": row.backward}
        found.append(entry | {"saved_mb": row.saved})
        print(entry)
    return found


def main(out: str, quick: bool = False) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    folder = Path(out) / machine.name(device)
    folder.mkdir(parents=True, exist_ok=True)
    report = machine.head(device)
    parts = {"products": products, "layouts": layouts, "batches": batches, "precision": precision, "memory": memories}
    for name, part in parts.items():
        try:
            report[name] = part(device, quick)
        except Exception as fault:  # the others still count
            report[name] = {"failed": f"{type(fault).__name__}: {str(fault).splitlines()[0][:200]}"}
            print(name, report[name])
        (folder / "habits.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    auto_cli(main, description=(__doc__ or "").splitlines()[0])
