"""`grid.sample` and both of its gradients: kernels, our plain torch, and torch's own `grid_sample`.

    python benchmarks/grid_sampling.py benchmarks/results [--sizes 256,2048]

float32 fields n x n, n^2 points: "swept" near their cells, as in semi-Lagrangian steps; "scattered" anywhere; "crowd"
in 16 cells, where all shares of the field's gradient meet. Every variant is checked against float64 first; grid_sample
rounds positions to [-1, 1], and its bicubic weights are others. Milliseconds as called, medians; "same bits": whether
two gradients of the field agree bit for bit. Writes `<out>/<card>/grid_sampling.json`. Without a card: one small size,
to see that it runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from jsonargparse import auto_cli
from torch import Tensor
from torch.nn import functional

from pinnfuse.bench import machine, timing
from pinnfuse.grid import Grid, sample

Sampler = Callable[[Tensor, Tensor], Tensor]


def main(out: str, sizes: str = "256,2048") -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    folder = Path(out) / machine.name(device)
    folder.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {**machine.head(device), "rows": []}
    for n in map(int, sizes.split(",") if device.type == "cuda" else ["32"]):
        field = torch.randn(n, n, device=device)
        for name, points in places(n, device).items():
            for boundary in ("periodic", "one-sided"):
                for mode in ("bilinear", "bicubic"):
                    grid = Grid("x y", 1.0, boundary=boundary)
                    case = {"n": n, "points": name, "boundary": boundary, "mode": mode}
                    for row in compare(field, points, grid, mode, device):
                        report["rows"].append({**case, **row})
                        print(report["rows"][-1])
                    (folder / "grid_sampling.json").write_text(json.dumps(report, indent=1) + "\n")


def places(n: int, device: torch.device) -> dict[str, Tensor]:
    axis = torch.arange(n, device=device, dtype=torch.float32)
    cells = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    return {
        "swept": cells + 3 * torch.rand(2, device=device) + torch.rand_like(cells),
        "scattered": (n - 1) * torch.rand_like(cells),
        "crowd": n // 2 + 4 * torch.rand_like(cells),
    }


def compare(field: Tensor, points: Tensor, grid: Grid, mode: str, device: torch.device) -> list[dict[str, Any]]:
    def ours(backend: str) -> Sampler:
        return lambda f, p: sample(f, p, grid, mode=mode, backend=backend)

    def theirs(f: Tensor, p: Tensor) -> Tensor:
        place = (2 * p / (f.shape[-1] - 1) - 1).flip(-1)
        found = functional.grid_sample(f[None, None], place[None, None], mode, "border", align_corners=True)
        return found.reshape(-1)

    samplers = {"torch": ours("torch"), **({} if grid.periodic["x"] else {"grid_sample": theirs})}
    if device.type == "cuda":
        samplers = {"kernels": ours("triton"), **samplers}
    upstream = torch.randn(len(points), device=device)
    truth = parts(ours("torch"), field.double(), points.double(), upstream.double())
    rows = []
    for name, sampler in samplers.items():
        row: dict[str, Any] = {"variant": name}
        try:
            found = parts(sampler, field, points, upstream)
            row["errors"] = [float((a - b).norm() / b.norm()) for a, b in zip(found, truth, strict=True)]
            bound = 1e-4 if name != "grid_sample" else 0.05 if mode == "bilinear" else 1.0
            if not max(row["errors"]) < bound:
                raise ArithmeticError(f"errors {row['errors']}")
            row["same_bits"] = torch.equal(found[1], parts(sampler, field, points, upstream)[1])
            row |= {way: measure(call, device) for way, call in calls(sampler, field, points, upstream).items()}
        except Exception as fault:
            row["failed"] = f"{type(fault).__name__}: {str(fault).splitlines()[0][:200]}"
        rows.append(row)
    return rows


def parts(sampler: Sampler, field: Tensor, points: Tensor, upstream: Tensor) -> list[Tensor]:
    """The values and both gradients."""
    given = [field.clone().requires_grad_(), points.clone().requires_grad_()]
    out = sampler(*given)
    return [out.detach(), *torch.autograd.grad(out, given, upstream)]


def calls(sampler: Sampler, field: Tensor, points: Tensor, upstream: Tensor) -> dict[str, Callable[[], Any]]:
    leaf, place = field.clone().requires_grad_(), points.clone().requires_grad_()
    by_field, by_points = sampler(leaf, points), sampler(field, place)
    return {
        "forward": lambda: sampler(field, points),
        "to the field": lambda: torch.autograd.grad(by_field, leaf, upstream, retain_graph=True),
        "to the points": lambda: torch.autograd.grad(by_points, place, upstream, retain_graph=True),
    }


def measure(call: Callable[[], Any], device: torch.device) -> float:
    samples = timing.times({"": lambda _: call()}, [torch.empty(0)] * 2, device, 0.05)[""]
    return float(timing.quantiles(samples)["median"])


if __name__ == "__main__":
    auto_cli(main, description=(__doc__ or "").splitlines()[0])
