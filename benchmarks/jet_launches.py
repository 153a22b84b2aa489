"""Sweep launch configurations of the jet kernels: memory of a chunk, rows of a tile, warps, programs.

    python benchmarks/jet_launches.py benchmarks/results [case:width:precision:points ...] [--only TEXT] [--keep]

One line a configuration, each differing from the default in one respect: ms of loss and gradients (replayed from a CUDA
graph), memory, error. Writes `<out>/<card>/jet_launches.json`; `--only "by a schedule"` measures the default and those
whose name begins so; `--keep` also stores the fastest of each case where pinnfuse looks for it (`launches.json` in its
cache folder). With TRITON_INTERPRET=1 and PINNFUSE_INTERPRET=1 it runs on a CPU, to see that it does.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from pinnfuse.bench import machine
from pinnfuse.bench.cases import Case
from pinnfuse.bench.runner import measure
from pinnfuse.bench.settings import Settings
from pinnfuse.kernels.jets import choices
from pinnfuse.kernels.jets.config import Launch, is_hopper, launch
from pinnfuse.kernels.jets.looped import loops

CASES = (
    *(f"navier_stokes:{width}:{precision}:65536" for width in (64, 128, 256) for precision in ("float32", "tf32")),
    "navier_stokes:64:float32:4096",
    "burgers:128:float32:65536",
    "poisson_10:128:float32:65536",
    "plate:128:float32:65536",
    "kdv:128:float32:65536",
    "poisson_100:64:float32:65536",
    "poisson_100:256:float32:65536",
)
MEGABYTES = (32, 64, 128, 256, 512, 1024)
CHANGES: dict[str, dict[str, Any]] = {
    "default": {},
    **{f"scratch {m} MB": {"scratch": m * 2**20} for m in MEGABYTES},
    **{f"resident {r}": {"resident": r} for r in (1, 3, 4)},
    **{f"rings {up}, {down}": {"ring": (up, down)} for up, down in ((1, 1), (4, 4), (6, 4), (8, 4), (8, 8))},
    "not in one kernel": {"fused": False},
    "layer at a time": {"chained": False},
    "lean": {"lean": True},
    "lean, one kernel": {"lean": True, "thrifty": True},
    "lean, rings 4, 4": {"lean": True, "ring": (4, 4)},
    "portable": {"rows": 64, "ring": (1, 1)},
    "thrifty 136 MB": {"thrifty": True, "scratch": 136 * 2**20, "gradient_block": 64, "gradient": (4, 4)},
    "by a schedule": {"scheduled": True},
}


def sweep(base: Launch, width: int) -> dict[str, Launch]:
    """Name -> configuration: changes of the default, then what tuning tries, without the Hopper kernels."""
    found = {label: replace(base, **change) for label, change in CHANGES.items()}
    portable = replace(base, hopper=False)
    for option in choices.candidates(portable, width):
        changed = {k: v for k, v in asdict(option).items() if v != asdict(portable)[k]}
        found[" ".join(["portable", *(f"{k} {v}" for k, v in changed.items())])] = option
    return found


def rows_of(case: Case, options: dict[str, Launch], name: str) -> dict[str, Any]:
    """Measure every option. A choice is made by storing it in an empty cache: the same way in as for everyone."""
    settings = Settings((case.name,), backend="triton", against=(), device=str(case.device))
    home, rows = os.environ.get("PINNFUSE_CACHE"), {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PINNFUSE_CACHE"] = folder
        try:
            for label, option in options.items():
                choices.write(name, option)
                row = rows[label] = measure(case, settings)[0] | {"launch": asdict(option)}
                time = (row.get("graph_ms") or row.get("ms") or {}).get("median", float("nan"))
                why = row.get("failed") or row.get("skipped") or f"error {row['error']:.1e}"
                print(f"{case.name} {label:32s} {time:9.3f} ms {row.get('memory_mb', 0):7.0f} MB  {why}", flush=True)
        finally:
            del os.environ["PINNFUSE_CACHE"]
            if home is not None:
                os.environ["PINNFUSE_CACHE"] = home
    return rows


def main(out: Path, names: list[str], only: str, keep: bool) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    folder = out / machine.name(device)
    folder.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = machine.head(device)
    for text in names or CASES:
        case_name, width, precision, points = text.split(":")
        case = Case(case_name, int(width), 6, int(points), precision, device)
        channels = len(case.plan.space)
        name = choices.key(case.width, channels, precision, device)
        base = launch(case.width, channels, precision, loops(case.plan.space), is_hopper(device))
        options = {
            label: option
            for label, option in sweep(base, case.width).items()
            if label == "default" or label.startswith(only)
        }
        rows = report[text] = rows_of(case, options, name)
        times = {label: (row.get("graph_ms") or row["ms"])["median"] for label, row in rows.items() if "ms" in row}
        if keep and times:
            choices.write(name, options[min(times, key=lambda label: times[label])])
        (folder / "jet_launches.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="results go to OUT/<card>/")
    parser.add_argument("names", nargs="*", metavar="case:width:precision:points")
    parser.add_argument("--only", default="", help="names of configurations begin so")
    parser.add_argument("--keep", action="store_true", help="store the fastest of each case")
    given = parser.parse_args()
    main(given.out, given.names, given.only, given.keep)
