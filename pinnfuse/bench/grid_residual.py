"""`pinnfuse bench grid`: Navier-Stokes residuals on grids, loss and gradient, against what people write today.

    pinnfuse        the two generated kernels (on a CPU plain torch); "pinnfuse again" forms the residuals twice instead
                    of keeping them
    graph           the same step as a CUDA graph, without the host
    eager           ghost points by `torch.cat`, differences by slices, gradient by autograd
    roll            differences by `torch.roll` (periodic only)
    torch-compile   the eager function compiled by TorchInductor
    fourier         derivatives by FFT (periodic only)
    coordinates     memory only: the same residuals of a network of 4 x 64 at as many points by nested autograd

The floor is the time of reading all fields twice and writing their gradient once at the rate of a copy in the same run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import Tensor, nn

from pinnfuse import PDE, BackendUnavailable, FusedGridResidualLoss, FusedResidualLoss, Grid
from pinnfuse.bench import machine, timing
from pinnfuse.grid import Dirichlet
from pinnfuse.grid.stencils import ghost_rows

Step = Callable[[Tensor], tuple[Tensor, Tensor]]
Row = dict[str, Any]
NU, DT, SPACING, BOUND = 0.01, 0.01, (0.01, 0.015), 1e-5
PROMISE = {512: 1.5, 2048: 3.0, 8192: 5.0}
"""The FlashPDE article's least speed-up over eager operators, by points per axis."""
NAVIER_STOKES = PDE(
    "u v p", "t x y", parameters={"nu": NU},
    equations={
        "momentum_x": "u_t + u*u_x + v*u_y + p_x - nu*(u_xx + u_yy)",
        "momentum_y": "v_t + u*v_x + v*v_y + p_y - nu*(v_xx + v_yy)",
        "continuity": "u_x + v_y",
    },
)  # fmt: skip


@dataclass(frozen=True)
class GridCase:
    """Backward Euler between two levels of `batch` samples on n x n cells, periodic or with a moving lid."""

    boundary: str
    n: int
    batch: int

    @property
    def grids(self) -> dict[str, Grid]:
        common: dict[str, Any] = {"axes": "x y", "spacing": SPACING, "centring": "cell"}
        if self.boundary == "periodic":
            return {name: Grid(**common, boundary="periodic") for name in "uvp"}
        lid = {"x": "dirichlet", "y": ("dirichlet", Dirichlet(1.0))}
        return {name: Grid(**common, boundary=b) for name, b in (("u", lid), ("v", "dirichlet"), ("p", "neumann"))}

    def inputs(self, device: torch.device, copies: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
        generator = torch.Generator(device).manual_seed(0)
        shape = (self.batch, 2, 3, self.n, self.n)
        return [torch.randn(shape, generator=generator, device=device, dtype=dtype) for _ in range(copies)]

    @property
    def megabytes(self) -> float:
        return self.batch * 6 * self.n**2 * 4 / 1e6


def loss_of(case: GridCase, derivative: Callable[[str, Tensor], dict[str, Tensor]]) -> Callable[[Tensor], Tensor]:
    """The loss of a step, from a function that gives the derivatives of one field."""

    def loss(fields: Tensor) -> Tensor:
        old, (u, v, p) = fields[:, 0], fields[:, 1].unbind(1)
        du, dv, dp = (derivative(name, f) for name, f in zip("uvp", (u, v, p), strict=True))
        r = (
            (u - old[:, 0]) / DT + u * du["x"] + v * du["y"] + dp["x"] - NU * (du["xx"] + du["yy"]),
            (v - old[:, 1]) / DT + u * dv["x"] + v * dv["y"] + dp["y"] - NU * (dv["xx"] + dv["yy"]),
            du["x"] + dv["y"],
        )
        return sum((e.square().mean() for e in r[1:]), r[0].square().mean())

    return loss


def eager(case: GridCase) -> Callable[[Tensor], Tensor]:
    """Ghost points, then slices: second order, the same rows at walls as ours."""

    def padded(f: Tensor, grid: Grid, axis: str, dim: int) -> Tensor:
        if grid.periodic[axis]:
            return torch.cat([f.narrow(dim, -1, 1), f, f.narrow(dim, 0, 1)], dim)
        (low,), (high,) = ghost_rows(grid, axis, 3, 1)
        n = f.shape[dim]
        sides = []
        for row, last in ((low, False), (high, True)):
            pairs = zip(row.offsets_from_that_end, row.weights, strict=True)
            terms = [w * f.narrow(dim, n - 1 - i if last else i, 1) for i, w in pairs]
            sides.append(sum(terms[1:], terms[0]) + row.constant)
        return torch.cat([sides[0], f, sides[1]], dim)

    def derivative(name: str, f: Tensor) -> dict[str, Tensor]:
        grid = case.grids[name]
        hx, hy = grid.spacing
        x, y = padded(f, grid, "x", -2), padded(f, grid, "y", -1)
        west, east, south, north = x[..., :-2, :], x[..., 2:, :], y[..., :-2], y[..., 2:]
        return {
            "x": (east - west) / (2 * hx),
            "y": (north - south) / (2 * hy),
            "xx": (east - 2 * f + west) / hx**2,
            "yy": (north - 2 * f + south) / hy**2,
        }

    return loss_of(case, derivative)


def roll(case: GridCase) -> Callable[[Tensor], Tensor]:
    hx, hy = case.grids["u"].spacing

    def derivative(name: str, f: Tensor) -> dict[str, Tensor]:
        west, east, south, north = f.roll(1, -2), f.roll(-1, -2), f.roll(1, -1), f.roll(-1, -1)
        return {
            "x": (east - west) / (2 * hx),
            "y": (north - south) / (2 * hy),
            "xx": (east - 2 * f + west) / hx**2,
            "yy": (north - 2 * f + south) / hy**2,
        }

    return loss_of(case, derivative)


def fourier(case: GridCase) -> Callable[[Tensor], Tensor]:
    hx, hy = case.grids["u"].spacing

    def derivative(name: str, f: Tensor) -> dict[str, Tensor]:
        n = f.shape[-1]
        kx = 2j * math.pi * torch.fft.fftfreq(n, hx, device=f.device)[:, None]
        ky = 2j * math.pi * torch.fft.rfftfreq(n, hy, device=f.device)
        spectrum = torch.fft.rfft2(f)
        factors = {"x": kx, "y": ky, "xx": kx**2, "yy": ky**2}
        return {key: torch.fft.irfft2(spectrum * k, s=f.shape[-2:]) for key, k in factors.items()}

    return loss_of(case, derivative)


def step_of(loss: Callable[[Tensor], Tensor]) -> Step:
    def step(fields: Tensor) -> tuple[Tensor, Tensor]:
        fields = fields.detach().requires_grad_()
        value = loss(fields)
        return value.detach(), torch.autograd.grad(value, fields)[0]

    return step


def ours(case: GridCase, backend: str, device: torch.device, recompute: bool = False) -> Step:
    loss = FusedGridResidualLoss(NAVIER_STOKES, case.grids, DT, "backward_euler", backend, recompute=recompute)
    return step_of(loss.to(device))


def steps(case: GridCase, against: Sequence[str], device: torch.device) -> dict[str, Callable[[], Step]]:
    """Engines that apply to a case, built when called."""
    found: dict[str, Callable[[], Step]] = {"pinnfuse": lambda: ours(case, "auto", device)}
    periodic = case.boundary == "periodic"
    others: dict[str, Callable[[], Step]] = {
        "pinnfuse again": lambda: ours(case, "triton", device, recompute=True),
        "torch": lambda: ours(case, "torch", device),
        "eager": lambda: step_of(eager(case)),
        "torch-compile": lambda: step_of(torch.compile(eager(case), dynamic=False)),
    }
    if periodic:
        others |= {"roll": lambda: step_of(roll(case)), "fourier": lambda: step_of(fourier(case))}
    return found | {name: build for name, build in others.items() if name in against}


ENGINES = ("pinnfuse again", "torch", "eager", "roll", "torch-compile", "fourier", "coordinates")


def measure(case: GridCase, against: Sequence[str], device: torch.device, seconds: float) -> list[Row]:
    """The rows of a case: every engine is checked against float64 before it is timed."""
    inputs = case.inputs(device, 2)
    truth = step_of(eager(case))(inputs[0].double())
    rows: list[Row] = []
    timed: dict[str, Step] = {}
    for name, build in steps(case, against, device).items():
        row: Row = {**asdict(case), "engine": name, "fields_mb": case.megabytes}
        rows.append(row)
        try:
            step = build()
            found = step(inputs[0])
            if name != "fourier":  # exact derivatives: another number
                row["error"] = max(_distance(a, b) for a, b in zip(found, truth, strict=True))
                if not row["error"] <= BOUND:
                    raise ValueError(f"error {row['error']:.1e} beyond {BOUND:.0e}")
            del found
            row["memory_mb"] = timing.peak_memory(step, inputs[0], device)
            if (case.boundary, name) not in _launches:
                _launches[case.boundary, name] = launches(step, inputs[0], device)
            row["launches"] = _launches[case.boundary, name]
            timed[name] = step
            if name == "pinnfuse" and device.type == "cuda":
                timed["graph"] = timing.graph(step, inputs[0])
                rows.append({**asdict(case), "engine": "graph", "fields_mb": case.megabytes})
                rows[-1]["error"] = max(_distance(a, b) for a, b in zip(timed["graph"](inputs[0]), truth, strict=True))
        except (BackendUnavailable, torch.OutOfMemoryError) as reason:
            row["skipped"] = str(reason).splitlines()[0]
        except Exception as fault:  # one engine's compiler must not take the other numbers along
            row["failed"] = f"{type(fault).__name__}: {str(fault)[:200]}"
    del truth
    target = torch.empty_like(inputs[0])
    timed["copy"] = lambda fields: target.copy_(fields)  # type: ignore[assignment,return-value]
    times = timing.times(timed, inputs, device, seconds)
    copy = timing.quantiles(times["copy"])["median"]
    for row in rows:
        if row["engine"] in times:
            row["ms"] = timing.quantiles(times[row["engine"]])
            row["copy_gb_per_s"] = 2 * case.megabytes / copy
            row["floor_ms"] = 1.5 * copy  # two reads and one write of what a copy reads once and writes once
            row["of_floor"] = row["floor_ms"] / row["ms"]["median"]
    _compare(rows, case)
    if "coordinates" in against:
        rows.append(coordinates(case, device, rows[0].get("memory_mb")))
    return rows


def _distance(found: Tensor, truth: Tensor) -> float:
    return float((found.double() - truth).norm() / truth.norm())


def _compare(rows: Sequence[Row], case: GridCase) -> None:
    best = min(
        (row["ms"]["median"] for row in rows if row["engine"] in ("pinnfuse", "graph") and "ms" in row), default=None
    )
    for row in rows:
        if best and "ms" in row and row["engine"] not in ("pinnfuse", "graph"):
            row["times_ours"] = row["ms"]["median"] / best
        if row["engine"] in ("eager", "roll") and case.n in PROMISE and "times_ours" in row:
            row["promise"] = PROMISE[case.n]
            row["met"] = row["times_ours"] >= row["promise"]


_launches: dict[tuple[str, str], int | None] = {}


def launches(step: Step, fields: Tensor, device: torch.device) -> int | None:
    """Kernels of one step, autograd's own fill of the loss's gradient included."""
    if device.type != "cuda":
        return None
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step(fields)
        torch.cuda.synchronize(device)
    kernels = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    return sum(1 for e in kernels if not e.name.startswith("Mem"))


def coordinates(case: GridCase, device: torch.device, our_mb: float | None) -> Row:
    """Peak memory of the same residuals of a network by nested autograd, at as many points as the grid has."""
    row: Row = {**asdict(case), "engine": "coordinates"}
    layers: list[nn.Module] = []
    for a, b in ((3, 64), (64, 64), (64, 64), (64, 64), (64, 3)):
        layers += [nn.Linear(a, b), nn.Tanh()]
    net = nn.Sequential(*layers[:-1]).to(device)
    loss = FusedResidualLoss(NAVIER_STOKES, backend="autograd")

    def step(points: Tensor) -> None:
        torch.autograd.grad(loss(net, points), list(net.parameters()))

    try:
        points = torch.rand(case.batch * case.n**2, 3, device=device)
        row["memory_mb"] = timing.peak_memory(step, points, device)
        if our_mb:
            row["memory_times_ours"] = row["memory_mb"] / our_mb
            row["promise"], row["met"] = 37.0, row["memory_times_ours"] >= 37.0
    except torch.OutOfMemoryError:
        row["skipped"] = "out of memory"
        torch.cuda.empty_cache()
    return row


def run(
    cases: Sequence[GridCase],
    against: Sequence[str],
    device: torch.device,
    seconds: float,
    out: str | Path,
    console: Console | None = None,
    extra: dict[str, Any] | None = None,
) -> list[Row]:
    """Measure, print a table, and write `grid_residual.json` into `out/<card or processor>/`."""
    console = console or Console(quiet=True)
    folder = Path(out) / machine.name(device)
    folder.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {
        **machine.head(device),
        "pde": NAVIER_STOKES.to_text(),
        **(extra or {}),
        "rows": [],
    }
    for case in cases:
        report["rows"] += measure(case, against, device, seconds)
        (folder / "grid_residual.json").write_text(json.dumps(report, indent=1) + "\n")
        if device.type == "cuda":
            torch.cuda.empty_cache()
    show(report["rows"], console)
    console.print(f"wrote {folder / 'grid_residual.json'}", soft_wrap=True, highlight=False)
    return report["rows"]


def show(rows: Sequence[Row], console: Console) -> None:
    table = Table("", box=SIMPLE_HEAD)
    for column in ("ms (20..80 %)", "of floor", "x ours", "launches", "MB", "error", "promise"):
        table.add_column(column, justify="right")
    last = None
    for row in rows:
        case = f"{row['boundary']} {row['n']}^2 x {row['batch']}"
        if case != last:
            rate = f", copy {row['copy_gb_per_s']:.0f} GB/s" if "copy_gb_per_s" in row else ""
            table.add_row(f"[bold]{case}[/]{rate}")
            last = case
        cells = [
            f"{row['ms']['median']:.3g} ({row['ms']['q20']:.3g}..{row['ms']['q80']:.3g})" if "ms" in row else "",
            f"{row['of_floor']:.0%}" if "of_floor" in row else "",
            f"{row['times_ours']:.1f}" if "times_ours" in row else "",
            str(row.get("launches") or ""),
            f"{row['memory_mb']:,.0f}" if "memory_mb" in row else "",
            f"{row['error']:.0e}" if "error" in row else "",
            f"{'met' if row['met'] else 'missed'} ({row['promise']:g}x)" if "promise" in row else "",
        ]
        if "failed" in row or "skipped" in row:
            cells[0] = f"[red]{escape(row.get('failed') or row['skipped'])}[/]"
        table.add_row(f"  {row['engine']}", *cells)
    console.print(table)
