"""Errors of trained runs against published and recomputed files: against_files.py FOLDER_OF_FILES RUN [RUN ...]

Prints, for each run and each file of its problem that is there, the relative L2 error over the file's own grid, and
writes them to `against_files.json` in the run's folder. Cavity: a disc of radius 0.04 about both lid corners is left
out, and the error is that of the velocity, and of its magnitude (as jaxpi measures it). Torus: up to the end of the
last window that was trained.

A file has a floor, the distance between it and the solution; an error near it says nothing (see `FLOORS`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pinnfuse import derivatives
from pinnfuse.problems import Problem
from pinnfuse.training.trained import trained

Array = NDArray[np.float64]
Table = tuple[tuple[Array, ...], dict[str, Array]]
"""(axes in the order of the coordinates, {field: values on their grid})"""

FLOORS = {
    "burgers/burgers_shock.mat": 2.9e-12,
    "burgers/burgers_exact_recomputed.npz": 8e-16,
    "allen_cahn/AC.mat": 1.2e-5,
    "allen_cahn/allen_cahn.mat": 1.57e-5,
    "allen_cahn/allen_cahn_recomputed.npz": 4e-8,
    "kdv/KdV.mat": 6.6e-12,
    "kdv/jaxpi2/kdv.mat": 1.9e-11,
    "lid_driven_cavity/ldc_Re100.mat": 8e-4,
    "lid_driven_cavity/ldc_Re100_recomputed.npz": 3e-6,
    "lid_driven_cavity/ldc_Re400.mat": 3.0e-3,
    "lid_driven_cavity/ldc_Re400_recomputed.npz": 1e-5,
    "lid_driven_cavity/ldc_Re1000.mat": 3.1e-2,
    "lid_driven_cavity/ldc_Re1000_recomputed.npz": 2e-5,
    "ns_torus/ns_tori_recomputed.npz": 4e-8,
}
TORUS = "ns_torus/ns_tori_recomputed.npz"


def files_of(problem: Problem) -> tuple[str, ...]:
    """Names of the files that hold the problem's solution."""
    constants = {name: float(p.value) for name, p in problem.pde.parameters.items()}
    match problem.name:
        case "burgers" if np.isclose(constants["nu"], 0.01 / np.pi):
            return "burgers/burgers_shock.mat", "burgers/burgers_exact_recomputed.npz"
        case "allen_cahn" if np.isclose(constants["eps"], 1e-4) and np.isclose(constants["r"], 5):
            return tuple(name for name in FLOORS if name.startswith("allen_cahn/"))
        case "kdv" if np.isclose(constants["d"], 0.0025):
            return ("kdv/KdV.mat",)
        case "kdv" if np.isclose(constants["d"], 0.022**2):
            return ("kdv/jaxpi2/kdv.mat",)
        case "lid_driven_cavity":
            stem = f"lid_driven_cavity/ldc_Re{1 / constants['nu']:.0f}"
            return f"{stem}.mat", f"{stem}_recomputed.npz"
        case "torus":
            return (TORUS,)
    return ()


def read(path: Path) -> dict[str, Array]:
    """The arrays of a .mat or .npz file."""
    if path.suffix == ".mat":
        from scipy.io import loadmat

        return {name: np.squeeze(value) for name, value in loadmat(path).items() if not name.startswith("__")}
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def table(name: str, data: dict[str, Array]) -> Table:
    """Axes and fields of a file."""
    folder = name.split("/")[0]
    if folder == "lid_driven_cavity":
        return (data["x"], data["y"]), {"u": data["u"], "v": data["v"]}
    if folder == "ns_torus":
        return tuple(data[axis] for axis in "txy"), {"u": data["u"], "v": data["v"], "w": data["w"]}
    t, x = data["tt"] if "tt" in data else data["t"], data["x"]
    u = next(data[key] for key in ("usol", "uu", "u") if key in data)
    return (t, x), {"u": u if u.shape == (len(t), len(x)) else u.T}


def measures(problem: Problem) -> dict[str, Callable[[dict[str, Array]], Array]]:
    """{name: fields -> [N, k]} of what is compared."""
    if problem.name == "lid_driven_cavity":
        return {
            "velocity": lambda f: np.stack([f["u"], f["v"]], 1),
            "speed": lambda f: np.hypot(f["u"], f["v"])[:, None],
        }
    if problem.name == "torus":
        return {"velocity": lambda f: np.stack([f["u"], f["v"]], 1), "vorticity": lambda f: f["w"][:, None]}
    return {field: lambda f, field=field: f[field][:, None] for field in problem.pde.fields}


def fields(problem: Problem, net: nn.Module, points: Array, batch: int = 16_384) -> dict[str, Array]:
    """{field: [N]} of the network, and u, v where it has a stream function."""
    inputs, names = torch.as_tensor(points).to(next(net.parameters()).dtype), list(problem.pde.fields)
    slopes = ["psi_x", "psi_y"] if "psi" in names else []
    parts = []
    for part in inputs.split(batch):
        columns = list(net(part).detach().unbind(1))
        if slopes:
            columns += derivatives(net, part, slopes, fields=names, coordinates=problem.pde.coordinates).values()
        parts.append(torch.stack([c.detach().double() for c in columns]))
    found = dict(zip([*names, *slopes], torch.cat(parts, 1).numpy(), strict=True))
    return found | ({"u": found["psi_y"], "v": -found["psi_x"]} if slopes else {})


def errors(problem: Problem, net: nn.Module, name: str, data: dict[str, Array]) -> dict[str, float]:
    """{measure: relative L2 error over the file's grid}."""
    axes, values = table(name, data)
    grid = np.meshgrid(*(np.asarray(axis, dtype=np.float64) for axis in axes), indexing="ij")
    points = np.stack([c.ravel() for c in grid], 1)
    kept = np.ones(len(points), dtype=bool)
    if "t" in problem.domain.bounds:
        kept &= points[:, 0] <= problem.domain.bounds["t"][1] * (1 + 1e-9)
    if problem.name == "lid_driven_cavity":
        x, y = points.T
        kept &= np.minimum(np.hypot(x, 1 - y), np.hypot(1 - x, 1 - y)) >= 0.04
    ours = fields(problem, net, points[kept])
    true = {field: np.asarray(value, dtype=np.float64).ravel()[kept] for field, value in values.items()}
    return {
        key: float(np.linalg.norm(what(ours) - what(true)) / np.linalg.norm(what(true)))
        for key, what in measures(problem).items()
    }


def compare(folder: Path, run: Path) -> dict[str, Any]:
    """{file: {measure: error, "floor": of the file}} for the files that are in `folder`."""
    options = {"file": str(folder / TORUS)} if "torus" in (run / "config.yaml").read_text() else {}
    problem, net = trained(run, **options)
    found = {}
    for name in files_of(problem):
        if (folder / name).is_file():
            found[name] = errors(problem, net, name, read(folder / name)) | {"floor": FLOORS.get(name, float("nan"))}
    return found


def main(folder: str, *runs: str) -> None:
    for run in map(Path, runs):
        found = compare(Path(folder), run)
        (run / "against_files.json").write_text(json.dumps(found, indent=2) + "\n")
        for name, values in found.items() or {"no file of its problem is there": {}}.items():
            print(run.name, name, " ".join(f"{key} {value:.2e}" for key, value in values.items()))


if __name__ == "__main__":
    main(*sys.argv[1:])
