"""Two ways of computing the same, traced side by side under their names."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch.profiler import record_function

from pinnfuse.profiling import trace
from pinnfuse.profiling.run import profile


@dataclass(frozen=True)
class Entry:
    """A kernel, or on a CPU a torch operation with its own time, of one variant; per call."""

    variant: str
    name: str
    count: float
    microseconds: float


@dataclass(frozen=True)
class Comparison:
    """What was found. Times in microseconds per call."""

    host: dict[str, float]
    """of each variant, the device waited for"""
    device: dict[str, float]
    """of its kernels; on a CPU of its operations"""
    launches: dict[str, float]
    """kernels; 0 on a CPU"""
    entries: list[Entry]
    """of all variants, the slowest first"""
    files: list[Path]


def compare(
    variants: Mapping[str, Callable[[], Any]],
    folder: str | Path,
    *,
    device: torch.device | str = "cpu",
    steps: int = 20,
    warm_up: int = 5,
    name: str = "compare",
) -> Comparison:
    """Trace all variants in turns, each in a named range; writes `name.pt.trace.json` (Perfetto) and `name.folded`.

    Args:
        variants: `{name: call}`; names become ranges `compare/<name>`.
        folder, steps, warm_up: as for `pinnfuse.profiling.profile`.

    A kernel belongs to the variant in whose range it was launched, from whatever thread (backward has its own).

    Raises:
        ValueError: no variants; settings that `profile` refuses.
    """
    if not variants:
        raise ValueError("compare: `variants` must hold at least one call; got none.")
    device = torch.device(device)

    def all_of_them() -> None:
        for label, call in variants.items():
            with record_function(f"compare/{label}"):
                call()
                if device.type == "cuda":
                    torch.cuda.synchronize(device)

    found = profile(all_of_them, folder, name, device=device, steps=steps, warm_up=warm_up)
    events = json.loads(found.files[0].read_text(encoding="utf-8", errors="replace"))["traceEvents"]
    entries = _entries(events, steps)
    ranges = trace.ranges(events, "compare/")
    on_card = device.type == "cuda"
    return Comparison(
        host={v: ranges[f"compare/{v}"][1] / steps for v in variants},
        device={v: sum(e.microseconds for e in entries if e.variant == v) for v in variants},
        launches={v: sum(e.count for e in entries if e.variant == v) if on_card else 0.0 for v in variants},
        entries=entries,
        files=found.files,
    )


def _entries(events: Iterable[Mapping[str, Any]], steps: int) -> list[Entry]:
    """Kernels, or operations where there are none, by variant and name."""
    whole = trace.complete(events)
    windows = [
        (e["ts"], e["ts"] + e["dur"], e["name"].removeprefix("compare/"))
        for e in whole
        if e.get("cat") == "user_annotation" and e["name"].startswith("compare/")
    ]

    def variant(time: float) -> str | None:
        return next((label for start, end, label in windows if start <= time <= end), None)

    launched = {
        e["args"]["correlation"]: e["ts"]
        for e in whole
        if e.get("cat") in trace.LAUNCHES and "correlation" in e.get("args", {})
    }
    kernels = [e for e in whole if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    counts: Counter[tuple[str, str]] = Counter()
    times: dict[tuple[str, str], float] = defaultdict(float)
    if kernels:
        timed = [(launched.get(e.get("args", {}).get("correlation"), -1.0), str(e["name"]), e["dur"]) for e in kernels]
    else:
        timed = [(e["ts"], str(e["name"]), own) for e, own in trace.own_times(whole) if e["cat"] == "cpu_op"]
    for start, label, duration in timed:
        owner = variant(start)
        if owner is not None:
            counts[owner, label] += 1
            times[owner, label] += duration
    rows = [Entry(*key, count=n / steps, microseconds=times[key] / steps) for key, n in counts.items()]
    return sorted(rows, key=lambda row: -row.microseconds)


def show(found: Comparison, console: Console, most: int = 20) -> None:
    """Variants, then what they are made of, the slowest first."""
    table = Table("variant", "us a call", "us of kernels", "launches", box=SIMPLE_HEAD)
    for v in found.host:
        table.add_row(escape(v), f"{found.host[v]:,.1f}", f"{found.device[v]:,.1f}", f"{found.launches[v]:g}")
    console.print(table)
    table = Table("us a call", "times", "variant", "kernel or operation", box=SIMPLE_HEAD)
    for e in found.entries[:most]:
        table.add_row(f"{e.microseconds:,.2f}", f"{e.count:g}", escape(e.variant), escape(e.name[:80]))
    console.print(table)
    console.print(f"wrote {', '.join(map(str, found.files))}", soft_wrap=True, highlight=False)
