"""Decaying two-dimensional turbulence on a torus, from an initial field in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import torch

from pinnfuse.domains import Box
from pinnfuse.pde import PDE
from pinnfuse.problems.checks import positive, read_npz
from pinnfuse.problems.condition import Condition, dirichlet, observations, periodic
from pinnfuse.problems.problem import Problem
from pinnfuse.problems.spec import ModelSpec, TrainingSpec, quasi_newton
from pinnfuse.reference import FunctionReference, Reference
from pinnfuse.reference.base import Array

_FIELDS = ("u", "v", "w")
_ARRAYS = ("t", "x", "y", *_FIELDS)


def torus(
    file: str | None = None,
    reynolds: float = 100.0,
    end: float = 10.0,
    form: Literal["velocity", "stream"] = "velocity",
) -> Problem:
    """Flow on [0, 2 pi]^2, periodic, by its vorticity: w_t + u w_x + v w_y = lap w / Re, u_x + v_y = 0, w = v_x - u_y.

    Source: jaxpi, example `ns_tori` (Re = 100, t <= 10), which trains ten windows in time: `--training.windows 10`.

    Args:
        file: .npz with t [T], x, y [n] (equidistant, without the end point) and u, v, w [T, n, n] in the order t, x, y.
            The fields at the first time are the initial condition, the others the reference. Without it the start is
            that of Taylor and Green, whose decay is known: u = cos x sin y F, v = -sin x cos y F, F = exp(-2 t / Re).
        reynolds: of unit length and speed, > 0.
        end: of time, > 0.
        form: the fields are u, v and w, or psi and w with u = psi_y, v = -psi_x, w = -lap psi: free of divergence
            whatever the network does, and one equation less.

    Raises:
        ValueError: the file is missing, damaged, lacks an array, or does not reach `end`.
    """
    positive("torus", reynolds=reynolds, end=end)
    stream = form == "stream"
    pde = _stream_pde(reynolds) if stream else _velocity_pde(reynolds)
    side = 2 * np.pi
    box = Box({"t": (0, end), "x": (0, side), "y": (0, side)})
    reference, initial = _vortices(pde, box, reynolds) if file is None else _from_file(pde, file, end)
    return Problem(
        name="torus",
        pde_name="navier_stokes",
        title=f"Decaying turbulence on a torus, Re = {reynolds:g}",
        pde=pde,
        domain=box,
        conditions=(initial, periodic("periodic_x", pde, box, "x"), periodic("periodic_y", pde, box, "y")),
        reference=reference,
        periodic={"x": side, "y": side},
        metrics={"stream": ("psi",), "vorticity": ("w",)} if stream else {"velocity": ("u", "v"), "vorticity": ("w",)},
        up_to_constant=("psi",) if stream else (),
        model=ModelSpec("mlp", {"width": 40, "depth": 4, "activation": "tanh", "harmonics": 2}),
        training=TrainingSpec(
            interior=4000,
            boundary=2000,
            resample_every=200,
            phases=quasi_newton(steps=3000),
            loss_weights={"initial": 100.0},
        ),
    )


def _velocity_pde(reynolds: float) -> PDE:
    equations = {
        "vorticity": "w_t + u*w_x + v*w_y - nu*(w_xx + w_yy)",
        "continuity": "u_x + v_y",
        "curl": "w - v_x + u_y",
    }
    return PDE(_FIELDS, "t x y", {"nu": 1 / reynolds}, equations, name="torus")


def _stream_pde(reynolds: float) -> PDE:
    equations = {"vorticity": "w_t + psi_y*w_x - psi_x*w_y - nu*(w_xx + w_yy)", "curl": "w + psi_xx + psi_yy"}
    return PDE(("psi", "w"), "t x y", {"nu": 1 / reynolds}, equations, name="torus_stream")


def _vortices(pde: PDE, box: Box, reynolds: float) -> tuple[Reference, Condition]:
    def solution(points: Array) -> Array:
        t, x, y = points.T
        both = np.cos(x) * np.cos(y)
        fields = {"u": np.cos(x) * np.sin(y), "v": -np.sin(x) * np.cos(y), "w": -2 * both, "psi": -both}
        return np.stack([fields[name] for name in pde.fields], axis=1) * np.exp(-2 * t / reynolds)[:, None]

    axes = {name: np.linspace(*box.bounds[name], count) for name, count in (("t", 11), ("x", 49), ("y", 49))}
    texts = {"u": "cos(x)*sin(y)", "v": "-sin(x)*cos(y)", "w": "-2*cos(x)*cos(y)", "psi": "-cos(x)*cos(y)"}
    start = dirichlet("initial", pde, box.initial(), {name: texts[name] for name in pde.fields}, kind="initial")
    return FunctionReference(pde.fields, axes, solution), start


def _from_file(pde: PDE, file: str, end: float) -> tuple[Reference, Condition]:
    data = _read(Path(file).expanduser())
    t, x, y = (data[name] for name in ("t", "x", "y"))
    if t[-1] - t[0] < end * (1 - 1e-9):
        raise ValueError(f"torus: {file} covers {t[-1] - t[0]:g} units of time, fewer than `end` = {end:g}.")
    t = t - t[0]
    if "psi" in pde.fields:
        data["psi"] = _stream_function(data["w"])
    fields = np.stack([data[name] for name in pde.fields], axis=-1).astype(np.float64)  # [T, n, n, m]

    def solution(points: Array) -> Array:
        index = [np.rint((p - a[0]) / (a[1] - a[0])).astype(int) for p, a in zip(points.T, (t, x, y), strict=True)]
        near = np.abs(t[np.clip(index[0], 0, len(t) - 1)] - points[:, 0]) < 1e-6
        values = fields[np.clip(index[0], 0, len(t) - 1), index[1] % len(x), index[2] % len(y)]
        on_grid = near & (np.abs(x[index[1] % len(x)] - points[:, 1] % (2 * np.pi)) < 1e-6)
        on_grid &= np.abs(y[index[2] % len(y)] - points[:, 2] % (2 * np.pi)) < 1e-6
        return np.where(on_grid[:, None], values, np.nan)

    within = t[t <= end * (1 + 1e-9)]
    axes = {"t": within[:: max(1, len(within) // 20)], "x": x[:: max(1, len(x) // 64)], "y": y[:: max(1, len(y) // 64)]}
    grid = np.stack(np.meshgrid(np.zeros(1), x, y, indexing="ij"), axis=-1).reshape(-1, 3)
    start = {name: torch.from_numpy(fields[0, ..., k].reshape(-1).copy()) for k, name in enumerate(pde.fields)}
    condition = observations("initial", pde, torch.from_numpy(grid), start)
    condition.kind = "initial"
    return FunctionReference(pde.fields, axes, solution), condition


def _stream_function(w: Array) -> Array:
    """psi [T, n, n] of mean zero with -lap psi = w - mean of w, on [0, 2 pi)^2, by Fourier modes."""
    kx, ky = (np.fft.fftfreq(n, 1 / n) for n in w.shape[1:])
    squares = kx[:, None] ** 2 + ky**2
    modes = np.fft.fft2(w.astype(np.float64))
    return np.fft.ifft2(np.where(squares > 0, modes / np.maximum(squares, 1), 0)).real


def _read(path: Path) -> dict[str, Array]:
    if not path.is_file():
        raise ValueError(f"torus: there is no file {str(path)!r} (in {Path.cwd()}).")
    data = read_npz("torus", path, _ARRAYS)
    shape = (len(data["t"]), len(data["x"]), len(data["y"]))
    for name in _FIELDS:
        if data[name].shape != shape or not np.isfinite(data[name]).all():
            raise ValueError(f"torus: {path.name}, {name} must be finite numbers {shape}; got {data[name].shape}.")
    return data
