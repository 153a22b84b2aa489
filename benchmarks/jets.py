"""Fused jet kernels on a card: loss and all parameter gradients, checked against float64 before they are timed.

    python benchmarks/jets.py benchmarks/results [case ...]        cases: the names in CASES; all by default

Prints one line a case and writes `<out>/<card>/jets.json`: median and 20 % / 80 % quantiles in ms (eager, and replayed
from a CUDA graph), errors against float64 closed-form jets, memory above the inputs, FLOPs counted, versions, commit. A
case whose error is beyond its bound gets no time. Every network is tanh with 6 hidden layers.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton
from torch import nn
from triton.testing import do_bench

import pinnfuse
from pinnfuse import PDE

NAVIER_STOKES = PDE(
    "u v p",
    "t x y",
    parameters={"nu": 0.01},
    equations={
        "momentum_x": "u_t + u*u_x + v*u_y + p_x - nu*(u_xx + u_yy)",
        "momentum_y": "v_t + u*v_x + v*v_y + p_y - nu*(v_xx + v_yy)",
        "continuity": "u_x + v_y",
    },
)
BURGERS = PDE("u", "t x", equations={"burgers": "u_t + u*u_x - 0.01*u_xx"})
KDV = PDE("u", "t x", equations={"kdv": "u_t + u*u_x + 0.1*u_xxx"})
PLATE = PDE("u", "x y", equations={"plate": "u_xxxx + 2*u_xxyy + u_yyyy - sin(x)*sin(y)"})
_X = [f"x{i}" for i in range(10)]
POISSON_10 = PDE("u", " ".join(_X), equations={"poisson": " + ".join(f"u_{x}{x}" for x in _X) + " - sin(x0)"})

Case = tuple[PDE, int, str, int]
CASES: dict[str, Case] = {
    **{
        f"navier_stokes-{width}-{precision}": (NAVIER_STOKES, width, precision, 65536)
        for width in (64, 128, 256)
        for precision in ("float32", "tf32")
    },
    "navier_stokes-64-float32-4096": (NAVIER_STOKES, 64, "float32", 4096),
    "navier_stokes-128-float64": (NAVIER_STOKES, 128, "float64", 65536),
    "burgers-64-float32": (BURGERS, 64, "float32", 65536),
    "burgers-128-float32": (BURGERS, 128, "float32", 65536),
    "burgers-256-float32": (BURGERS, 256, "float32", 65536),
    "kdv-128-float32": (KDV, 128, "float32", 65536),
    "plate-128-float32": (PLATE, 128, "float32", 65536),
    "poisson_10-128-float32": (POISSON_10, 128, "float32", 65536),
}
BOUND = {"float32": 1e-5, "tf32": 5e-2, "float64": 1e-12}
"""Largest error of any gradient; the tests bound it more closely, by float32 autograd."""


def network(pde: PDE, width: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    inputs = len(pde.coordinates)
    for _ in range(6):
        layers += [nn.Linear(inputs, width), nn.Tanh()]
        inputs = width
    net = nn.Sequential(*layers, nn.Linear(width, len(pde.fields)))
    for m in net:
        if isinstance(m, nn.Linear):
            nn.init.xavier_normal_(m.weight)
            nn.init.normal_(m.bias, std=0.1)
    return net


def gradients(
    pde: PDE, net: nn.Module, points: torch.Tensor, backend: str, precision: str | None
) -> list[torch.Tensor]:
    """Loss and gradients of a fresh copy of the network."""
    net = copy.deepcopy(net).to(points)
    loss = pinnfuse.FusedResidualLoss(pde, backend=backend, precision=precision).to(points)(net, points)
    loss.backward()
    return [loss.detach(), *(p.grad for p in net.parameters() if p.grad is not None)]


def error(found: list[torch.Tensor], truth: list[torch.Tensor]) -> float:
    return max(float((a.double() - b).norm() / b.norm()) for a, b in zip(found, truth, strict=True))


def quantiles(call: Callable[[], Any]) -> dict[str, float]:
    low, median, high = do_bench(call, warmup=50, rep=200, quantiles=[0.2, 0.5, 0.8])
    return {"q20": low, "median": median, "q80": high}


def measure(pde: PDE, width: int, precision: str, count: int) -> dict[str, Any]:
    torch.manual_seed(0)
    dtype = torch.float64 if precision == "float64" else torch.float32
    points = torch.rand(count, len(pde.coordinates), device="cuda", dtype=dtype)
    net = network(pde, width).to(points)
    truth = gradients(pde, net, points.double(), "torch", None)
    result: dict[str, Any] = {"error": error(gradients(pde, net, points, "triton", precision), truth)}
    if not result["error"] <= BOUND[precision]:
        return result | {"failed": f"error beyond {BOUND[precision]}"}
    loss_fn = pinnfuse.FusedResidualLoss(pde, backend="triton", precision=precision).to(points)

    def step() -> None:
        for p in net.parameters():
            p.grad = None
        loss_fn(net, points).backward()

    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    result["memory_mb"] = (torch.cuda.max_memory_allocated() - before) / 2**20
    result["eager_ms"] = quantiles(step)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    result["graph_ms"] = quantiles(graph.replay)
    channels = len(loss_fn.explain(net, points).channels)
    result["gflop"] = 3 * channels * 5 * 2 * width**2 * count / 1e9  # hidden products: forward, backward, weights
    result["tflop_per_s"] = result["gflop"] / result["graph_ms"]["median"]
    return result


def main(out: Path, names: list[str]) -> None:
    card = torch.cuda.get_device_name().replace(" ", "_")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    report: dict[str, Any] = {"card": card, "torch": torch.__version__, "triton": triton.__version__, "commit": commit}
    report["cases"] = {}
    for name in names or CASES:
        row = report["cases"][name] = measure(*CASES[name])
        times = (
            f"{row['graph_ms']['median']:8.3f} {row['eager_ms']['median']:8.3f}" if "graph_ms" in row else row["failed"]
        )
        print(f"{name:34s} {times} ms (graph, eager)  error {row['error']:.1e}", flush=True)
        (out / card).mkdir(parents=True, exist_ok=True)
        (out / card / "jets.json").write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
