"""Two cards against one: the same numbers, then how much faster. One command, under two minutes on two H200:

    python benchmarks/two_cards.py benchmarks/results              # two CUDA cards of one machine, NCCL
    python benchmarks/two_cards.py OUT --device cpu --quick        # two processes, gloo, tiny

Writes `OUT/<card>/two_cards.json`, the trace of a step of each process and `physarum_split.json`; a run that is cut off
leaves what its stages found in `OUT/<card>/two_cards/`. What is measured, and the goals:

    equality    a few optimiser steps on the same union of points: losses and parameters (float32 1e-6, float64 1e-12)
    steps       the fused step of the cavity: 2^20 points a card >= 1.95 times the points/s of one, 2^18 in all >= 1.7
    reduction   the all-reduce alone, and its share of the kernels' time in the trace of a step
    surrogate   FNO, Darcy's flow, data and physics: >= 1.8 times the samples/s
    graphs      the steps as CUDA graphs with the all-reduce inside
    physarum    16 M agents split over both cards: the bits of one, >= 1.6 times the steps/s
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from pinnfuse import parallel
from pinnfuse.bench import data_parallel as bench
from pinnfuse.bench import machine
from pinnfuse.bench.physarum.split import run_split
from pinnfuse.errors import ProcessDied
from pinnfuse.files import write_whole
from pinnfuse.profiling import profile
from pinnfuse.simulation.physarum.split import spawn

RANKS = 2
GOALS = {"steps at many points": 1.95, "steps at few points": 1.7, "surrogate": 1.8}
Row = dict[str, Any]


class Sizes:
    """Of what is measured; `quick` is for a test on a CPU."""

    def __init__(self, quick: bool):
        self.quick = quick
        self.equality = (96, 8) if quick else (4096, 64)  # points in all, width
        self.many, self.few = (256, 64) if quick else (2**20, 2**18)  # points of a process, points in all
        self.width, self.depth = (8, 2) if quick else (64, 4)
        self.surrogate = (16, 2) if quick else (127, 64)  # points per axis, samples of a process
        self.seconds = 0.05 if quick else 1.0

    @property
    def cases(self) -> list[bench.Case]:
        weights = ("none", "causal")
        found = [c for c in bench.CASES if c.optimizer in ("adam", "ssbroyden") and c.point_weights in weights]
        return found[:2] if self.quick else found


def equality(sizes: Sizes, device: torch.device, folder: Path) -> Row:
    found = {case.name: bench.steps_of(case, *sizes.equality, device) for case in sizes.cases}
    return {name: row | {"parameters": row["parameters"].tolist()} for name, row in found.items()}


def steps(sizes: Sizes, device: torch.device, folder: Path, graph: bool = False) -> Row:
    """Milliseconds of a step at many points in each process, and at few divided among all."""
    found: Row = {}
    for name, points in (("many", sizes.many), ("few", sizes.few // parallel.size())):
        step, explain = bench.training_step(points, device, sizes.width, sizes.depth, graph)
        samples = bench.milliseconds(step, device, sizes.seconds)
        found[name] = {"points_per_process": points, "ms": statistics.median(samples), "all": samples, "how": explain()}
    return found


def reduction(sizes: Sizes, device: torch.device, folder: Path) -> Row:
    """The all-reduce alone, and in the trace of a step at few points."""
    found: Row = bench.reduction(device, sizes.width, sizes.depth, sizes.seconds)
    step, _ = bench.training_step(sizes.few // parallel.size(), device, sizes.width, sizes.depth, False)
    traced = profile(step, folder, f"step_{parallel.size()}_{parallel.rank()}", device=device, steps=10)
    ours = [k.microseconds / traced.steps for k in traced.kernels if "nccl" in k.name.lower()]
    return found | {
        "traced_step_ms": traced.steady / 1e3,
        "kernels_ms": traced.device_time / 1e3,
        "reduction_kernels_ms": sum(ours) / 1e3,
        "launches": traced.launches,
    }


def surrogate(sizes: Sizes, device: torch.device, folder: Path) -> Row:
    step = bench.surrogate_step(*sizes.surrogate, device)
    samples = bench.milliseconds(step, device, sizes.seconds)
    return {"samples_per_process": sizes.surrogate[1], "ms": statistics.median(samples), "all": samples}


def graphs(sizes: Sizes, device: torch.device, folder: Path) -> Row:
    return steps(sizes, device, folder, graph=True)


STAGES: dict[str, Callable[..., Row]] = {
    stage.__name__: stage for stage in (equality, steps, reduction, surrogate, graphs)
}


def run_stages(device: torch.device, quick: bool, names: list[str], folder: str) -> None:
    """Those stages in this process; rank 0 writes `folder/<stage>_<processes>.json` after each."""
    torch.set_num_threads(1)
    for name in names:
        started = time.perf_counter()
        found = STAGES[name](Sizes(quick), device, Path(folder))
        if parallel.rank() == 0:
            write_whole(Path(folder) / f"{name}_{parallel.size()}.json", json.dumps(found))
            write_whole(Path(folder) / f"seconds_{name}_{parallel.size()}", f"{time.perf_counter() - started:.1f}\n")


def compare(one: dict[str, Row], two: dict[str, Row], sizes: Sizes) -> Row:
    """The report from what stages found in one process and in two."""
    report: Row = {"one": one, "two": two, "equality": {}, "ratios": {}}
    both = one.keys() & two.keys()
    for case in sizes.cases if "equality" in both else ():
        a, b = (x["equality"][case.name] for x in (one, two))
        for row in (a, b):
            row["parameters"] = np.array(row["parameters"])
        found: Row = bench.disagreement(a, b)
        del a["parameters"], b["parameters"]
        report["equality"][case.name] = found | {"met": max(found.values()) <= case.tolerance}
    for name, stage in (("", "steps"), (" as graphs", "graphs")):
        if stage in both:
            many, few = (one[stage][key]["ms"] / two[stage][key]["ms"] for key in ("many", "few"))
            report["ratios"][f"steps at many points{name}"] = RANKS * many
            report["ratios"][f"steps at few points{name}"] = few
    if "surrogate" in both:
        report["ratios"]["surrogate"] = RANKS * one["surrogate"]["ms"] / two["surrogate"]["ms"]
    if {"reduction", "steps"} <= both:
        report["reduction_share"] = {k: two["reduction"]["ms"] / two["steps"][k]["ms"] for k in ("many", "few")}
    report["goals"] = {}
    for name, goal in GOALS.items():
        best = max((ratio for key, ratio in report["ratios"].items() if key.startswith(name)), default=None)
        if best is not None:
            report["goals"][name] = {"goal": goal, "found": best, "met": best >= goal}
    return report


def read(folder: Path, size: int) -> dict[str, Row]:
    paths = {name: folder / f"{name}_{size}.json" for name in STAGES}
    return {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: a test of the script, not a measurement")
    everything = [*STAGES, "physarum"]
    parser.add_argument("--stages", nargs="+", choices=everything, default=everything, help="only these")
    options = parser.parse_args()
    found = torch.cuda.device_count()
    if options.device == "cuda" and found < RANKS:
        parser.error(f"needs {RANKS} CUDA cards, and torch finds {found}; --device cpu runs anywhere")
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # NVLink multicast stays off
    console, sizes = Console(highlight=False, soft_wrap=True), Sizes(options.quick)
    device = torch.device("cuda", 0) if options.device == "cuda" else torch.device("cpu")
    folder = Path(options.out) / machine.name(device)
    parts = folder / "two_cards"
    shutil.rmtree(parts, ignore_errors=True)
    parts.mkdir(parents=True)
    head: Row = machine.head(device)
    head |= {"clocks": machine.clocks(device), "quick": options.quick}
    died = False
    chosen = [name for name in STAGES if name in options.stages]
    if chosen:
        run_stages(device, options.quick, chosen, str(parts))
        try:
            spawn(run_stages, RANKS, options.quick, chosen, str(parts), device=options.device, timeout=90.0)
        except ProcessDied as error:
            head["died"], died = str(error), True
    if "physarum" in options.stages:
        try:
            split = run_split(RANKS, device, options.out, console, seconds=sizes.seconds, quick=options.quick)
            head["physarum"] = {key: split[key] for key in ("check", "best", "goal", "met")}
        except ProcessDied as error:
            head["physarum"], died = {"died": str(error)}, True
    report = head | compare(read(parts, 1), read(parts, RANKS), sizes)
    write_whole(folder / "two_cards.json", json.dumps(report, indent=1) + "\n")
    for trace in parts.glob(f"step_{RANKS}_*.trace.json"):
        (folder / f"two_cards_{trace.name}.gz").write_bytes(gzip.compress(trace.read_bytes()))
    shutil.rmtree(parts)
    show(report, console)
    console.print(f"wrote {folder / 'two_cards.json'}")
    return int(died or not all(row["met"] for row in report["equality"].values()))


def show(report: Row, console: Console) -> None:
    for name, row in report["equality"].items():
        missed = "" if row["met"] else ", MISSED"
        console.print(f"{name}: loss {row['loss']:.1e}, parameters {row['parameters']:.1e}{missed}")
    for name, ratio in report["ratios"].items():
        console.print(f"{name}: {ratio:.2f}x")
    for name, row in report["goals"].items():
        console.print(f"{name}: best {row['found']:.2f}x, goal {row['goal']:g}x, {'met' if row['met'] else 'MISSED'}")
    if "died" in report:
        console.print(report["died"])


if __name__ == "__main__":
    raise SystemExit(main())
