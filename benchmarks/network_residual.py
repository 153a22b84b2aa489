"""Loss and parameter gradients of a network residual: backends side by side, in time and memory, on this machine.

    python benchmarks/network_residual.py --out benchmarks/results/<machine>/network_residual.json

Each backend runs in a process of its own. Before anything is timed its loss and gradients are compared with float64
nested autograd: a red check means no number. Time is the median over repeats of `loss_fn(net, points).backward()`, the
backends taking turns. Memory is what one such step adds at its peak: on a CPU the high-water mark of resident memory
over its value before the step (Linux), on CUDA `torch.cuda.max_memory_allocated`.
"""

from __future__ import annotations

import argparse
import copy
import json
import multiprocessing
import platform
import statistics
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import torch
from torch import Tensor, nn

import pinnfuse
from pinnfuse import PDE, FusedResidualLoss

CASES: dict[str, Callable[[], PDE]] = {
    "navier_stokes": lambda: PDE(
        "u v p",
        "t x y",
        parameters={"nu": 0.01},
        equations={
            "momentum_x": "u_t + u*u_x + v*u_y + p_x - nu*(u_xx + u_yy)",
            "momentum_y": "v_t + u*v_x + v*v_y + p_y - nu*(v_xx + v_yy)",
            "continuity": "u_x + v_y",
        },
    ),
    "burgers": lambda: PDE("u", "t x", parameters={"nu": 0.003}, equations={"burgers": "u_t + u*u_x - nu*u_xx"}),
    "poisson_10": lambda: PDE("u", [f"x{i}" for i in range(10)], equations={"poisson": "laplacian(u) + sin(x0)"}),
    "kdv": lambda: PDE("u", "t x", equations={"kdv": "u_t + u*u_x + 0.0025*u_xxx"}),
}


def network(inputs: int, outputs: int, width: int, depth: int) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Linear(inputs, width), nn.Tanh()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(width, outputs))


def gradients(pde: PDE, net: nn.Module, points: Tensor, backend: str) -> Tensor:
    loss = FusedResidualLoss(pde, backend=backend).to(points)(net, points)
    found = torch.autograd.grad(loss, list(net.parameters()), allow_unused=True)
    full = [torch.zeros_like(p) if g is None else g for p, g in zip(net.parameters(), found, strict=True)]
    return torch.cat([loss.detach().reshape(1), *(g.reshape(-1) for g in full)]).double()


def worker(connection, options: argparse.Namespace, backend: str) -> None:
    torch.set_num_threads(options.threads)
    pde = CASES[options.case]()
    net = network(len(pde.coordinates), len(pde.fields), options.width, options.depth)
    points = torch.rand(options.points, len(pde.coordinates))
    loss_fn = FusedResidualLoss(pde, backend=backend)

    def step(x: Tensor) -> None:
        loss_fn(net, x).backward()
        if options.device != "cpu":
            torch.cuda.synchronize()

    net, points, loss_fn = net.to(options.device), points.to(options.device), loss_fn.to(options.device)
    step(points[:8])  # imports and set-up do not count
    memory = peak_memory(lambda: step(points), options.device)
    few = points[:512]
    truth = gradients(pde, copy.deepcopy(net).double(), few.double(), "autograd")
    error = ((gradients(pde, net, few, backend) - truth).norm() / truth.norm()).item()
    connection.send({"error": error} | ({"memory_mb": memory} if error < 1e-4 else {}))
    if not error < 1e-4:
        return
    while connection.recv():
        net.zero_grad()
        start = time.perf_counter()
        step(points)
        connection.send(1e3 * (time.perf_counter() - start))


def peak_memory(step: Callable[[], None], device: str) -> float:
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    before = status("VmRSS")
    step()
    return (status("VmHWM") - before) / 2**10


def status(key: str) -> int:
    """A memory reading of this process in kB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key + ":"))


def measure(options: argparse.Namespace) -> list[dict[str, object]]:
    context = multiprocessing.get_context("spawn")
    workers = {}
    for backend in options.backends:
        here, there = context.Pipe()
        process = context.Process(target=worker, args=(there, options, backend), daemon=True)
        process.start()
        workers[backend] = (here, here.recv(), process)
    times: dict[str, list[float]] = {b: [] for b in workers}
    for _ in range(options.repeats):
        for backend, (here, first, _process) in workers.items():
            if "memory_mb" in first:
                here.send(True)
                times[backend].append(here.recv())
    rows = []
    for backend, (here, first, process) in workers.items():
        row: dict[str, object] = {"case": options.case, "backend": backend, **first}
        if "memory_mb" in first:
            here.send(False)
            quantiles = statistics.quantiles(times[backend], n=5)
            row |= {"ms": statistics.median(times[backend]), "ms_20": quantiles[0], "ms_80": quantiles[-1]}
        process.join()
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--backends", nargs="+", default=["autograd", "torch"])
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--points", type=int, default=16384)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    for case in options.cases:
        options.case = case
        rows += measure(options)
        base = next(r for r in rows if r["case"] == case and r["backend"] == "autograd")
        for row in (r for r in rows if r["case"] == case):
            if "ms" not in row:
                print(f"{row['case']:14} {row['backend']:9} check failed: gradient error {row['error']:.1e}")
                continue
            row["speedup"], row["memory_ratio"] = base["ms"] / row["ms"], base["memory_mb"] / row["memory_mb"]  # type: ignore
            print(
                f"{row['case']:14} {row['backend']:9} {row['ms']:8.1f} ms {row['memory_mb']:8.1f} MB  "
                f"{row['speedup']:5.2f}x time {row['memory_ratio']:6.1f}x memory  gradient error {row['error']:.1e}"
            )
    if options.out:
        settings = {k: v for k, v in vars(options).items() if k not in ("out", "case", "cases")}
        machine = torch.cuda.get_device_name() if options.device != "cpu" else f"{platform.machine()} CPU"
        versions = {"pinnfuse": pinnfuse.__version__, "torch": torch.__version__, "python": platform.python_version()}
        report = {"date": str(date.today()), "machine": machine, "versions": versions, **settings, "rows": rows}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
