"""An inverse problem: the coefficients of Navier-Stokes from velocities measured in a wake."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from pinnfuse.domains import Box, Region
from pinnfuse.optimizers import Phase
from pinnfuse.pde import PDE, Parameter
from pinnfuse.problems.checks import positive, read_npz
from pinnfuse.problems.condition import Condition, dirichlet, observations
from pinnfuse.problems.problem import Problem
from pinnfuse.problems.spec import ModelSpec, TrainingSpec
from pinnfuse.reference import Reference, Scattered
from pinnfuse.reference.base import Array

COORDINATES, MEASURED = ("t", "x", "y"), ("u", "v")
LEAST_ROWS = 10
_NO_FILE = (
    "cylinder_wake needs your measurements: option `file`, a .csv or .npz with columns x, y, t, u, v (and p, if known)."
)


def cylinder_wake(file: str | None = None, reynolds: float | None = 100.0) -> Problem:
    """Cylinder wake, inverse: find l1, l2 in u_t + l1 (u . grad) u + grad p = l2 lap u, div u = 0, from u and v.

    Velocities at scattered points (t, x, y) are observations; pressure is never shown to the network and is known up to
    a function of time, of which its error takes out the mean only. The domain is the box around the data. Source:
    Raissi, Perdikaris & Karniadakis, J. Comput. Phys. 378 (2019) 686, section 4.1.1.

    Args:
        file: .csv with a header line, or .npz, with columns x, y, t, u, v and perhaps p; others are ignored. Without it
            the problem can be looked at, but not sampled.
        reynolds: of the measured flow, > 0, where known: the right answers are then l1 = 1 and l2 = 1 / reynolds.

    Raises:
        ValueError: `reynolds` is not > 0, the file is missing or damaged, a column is missing, or a value is not a
            finite number.
    """
    if reynolds is not None:
        positive("cylinder_wake", reynolds=reynolds)
    pde = PDE(
        fields="u v p",
        coordinates=COORDINATES,
        parameters=[Parameter("lambda_1", 0.0, trainable=True), Parameter("lambda_2", 0.0, trainable=True)],
        equations={
            "momentum_x": "u_t + lambda_1*(u*u_x + v*u_y) + p_x - lambda_2*(u_xx + u_yy)",
            "momentum_y": "v_t + lambda_1*(u*v_x + v*v_y) + p_y - lambda_2*(v_xx + v_yy)",
            "continuity": "u_x + v_y",
        },
        name="cylinder_wake",
    )
    reference: Reference
    condition: Condition
    if file is None:
        box = Box({"t": (0, 20), "x": (1, 8), "y": (-2, 2)})
        reference = _NoReference()
        condition = dirichlet("observations", pde, _NoPoints(), {"u": 0, "v": 0}, kind="observations")
    else:
        columns = read_columns(file)
        points = np.stack([columns[name] for name in COORDINATES], axis=1)
        values = np.stack([columns.get(name, np.full(len(points), np.nan)) for name in pde.fields], axis=1)
        box = _box_around(file, points)
        reference = Scattered(pde.fields, COORDINATES, points, values, grid=(9, 71, 41))
        measured = {name: torch.from_numpy(columns[name]) for name in MEASURED}
        condition = observations("observations", pde, torch.from_numpy(points), measured)
    return Problem(
        name="cylinder_wake",
        pde_name="navier_stokes",
        title="Wake of a cylinder, inverse: convection and diffusion from measured velocities",
        pde=pde,
        domain=box,
        conditions=(condition,),
        reference=reference,
        metrics={"u": ("u",), "v": ("v",), "p": ("p",), "velocity": ("u", "v")},
        up_to_constant=("p",),
        true_parameters={} if reynolds is None else {"lambda_1": 1.0, "lambda_2": 1 / reynolds},
        model=ModelSpec(
            "mlp",
            {
                "width": 30,
                "depth": 4,
                "activation": "sin",
                "fourier_features": 12,
                "fourier_scale": [2.0, 1.0, 1.0],  # t, x, y scaled to [-1, 1]: vortices pass three times in t
            },
        ),
        training=TrainingSpec(
            interior=2000,
            boundary=2500,
            resample_every=10,
            # the viscous term is a hundredth of the others: its coefficient is seen only once residuals are far smaller
            phases=[Phase(optimizer="adam", steps=300, lr=5e-3), Phase(optimizer="gauss_newton", steps=120)],
            loss_weights={"observations": 10.0},
        ),
    )


def read_columns(file: str) -> dict[str, Array]:
    """{name: [N]} of the columns x, y, t, u, v and p (if there) of a .csv or .npz file; see `cylinder_wake`."""
    path = Path(file).expanduser()
    readers = {".csv": _read_csv, ".npz": _read_npz}
    if path.suffix.lower() not in readers:
        raise ValueError(f"cylinder_wake: `file` must be a .csv or .npz file; got {str(path)!r}.")
    if not path.is_file():
        raise ValueError(f"cylinder_wake: there is no file {str(path)!r} (in {Path.cwd()}).")
    columns = readers[path.suffix.lower()](path)
    needed = (*COORDINATES, *MEASURED)
    missing = [name for name in needed if name not in columns]
    if missing:
        raise ValueError(
            f"cylinder_wake: {path.name} lacks the columns {', '.join(missing)}; it has {', '.join(columns) or 'none'}."
        )
    columns = {name: columns[name] for name in (*needed, "p") if name in columns}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"cylinder_wake: the columns of {path.name} differ in length: {lengths}.")
    if lengths["x"] < LEAST_ROWS:
        raise ValueError(f"cylinder_wake: {path.name} has {lengths['x']} rows; at least {LEAST_ROWS} are needed.")
    for name in needed:
        bad = np.flatnonzero(~np.isfinite(columns[name]))
        if len(bad):
            raise ValueError(
                f"cylinder_wake: {path.name}, column {name}: {len(bad)} values are not finite, the first in row "
                f"{bad[0] + 1}. Remove those rows."
            )
    return columns


def _read_csv(path: Path) -> dict[str, Array]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            rows = list(csv.reader(stream))
    except (UnicodeDecodeError, csv.Error, OSError) as error:
        raise ValueError(f"cylinder_wake: {path.name} is not readable as CSV text: {error}.") from None
    header = [name.strip() for name in rows[0]] if rows else []
    wanted = {name: header.index(name) for name in (*COORDINATES, *MEASURED, "p") if name in header}
    columns: dict[str, list[float]] = {name: [] for name in wanted}
    for number, row in enumerate(rows[1:], start=2):
        if not row:
            continue
        for name, k in wanted.items():
            try:
                columns[name].append(float(row[k]))
            except (IndexError, ValueError):
                text = repr(row[k]) if k < len(row) else "nothing"
                raise ValueError(
                    f"cylinder_wake: {path.name}, line {number}: column {name} must be a number; got {text}."
                ) from None
    others = {name: np.zeros(0) for name in header if name not in wanted} if len(wanted) < 5 else {}
    return {name: np.array(column) for name, column in columns.items()} | others


def _read_npz(path: Path) -> dict[str, Array]:
    columns = read_npz("cylinder_wake", path, (*COORDINATES, *MEASURED), ("p",))
    return {name: np.asarray(column, dtype=np.float64).ravel() for name, column in columns.items()}


def _box_around(file: str, points: Array) -> Box:
    low, high = points.min(0), points.max(0)
    for name, a, b in zip(COORDINATES, low, high, strict=True):
        if not a < b:
            raise ValueError(f"cylinder_wake: all points of {Path(file).name} have the same {name} = {a:g}.")
    return Box({name: (a, b) for name, a, b in zip(COORDINATES, low, high, strict=True)})


class _NoPoints(Region):
    """Stands for the measurements while no file is given."""

    coordinates = COORDINATES
    measure = 1.0

    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        method: str = "sobol",
    ) -> Tensor:
        raise ValueError(_NO_FILE)

    def contains(self, points: Tensor, tolerance: float = 1e-6) -> Tensor:
        raise ValueError(_NO_FILE)


class _NoReference(Reference):
    fields, coordinates = ("u", "v", "p"), COORDINATES

    def solution(self, points: ArrayLike) -> Array:
        raise ValueError(_NO_FILE)

    def grid(self) -> dict[str, Array]:
        raise ValueError(_NO_FILE)
