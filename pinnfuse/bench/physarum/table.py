"""The report of `pinnfuse bench physarum` for people."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table


def show(report: dict[str, Any], console: Console) -> None:
    columns = ("steps/s", "agent updates/s", "ms (20..80 %)", "GB/s", "x torch", "published", "goal", "met")
    table = Table("", *columns, box=SIMPLE_HEAD)
    for row in report["rows"]:
        if "failed" in row:
            table.add_row(row["case"], f"[red]{escape(row['failed'])}[/]")
            continue
        ms = row["step_ms"]
        table.add_row(
            row["case"],
            f"{row['steps_per_s']:,.0f}",
            f"{row['updates_per_s']:.2e}",
            f"{ms['median']:.3g} ({ms['q20']:.3g}..{ms['q80']:.3g})",
            f"{row['least_gb_per_s']:,.0f}",
            f"{row['times_torch']:.1f}" if "times_torch" in row else "",
            row["published"],
            row.get("goal", ""),
            {True: "[green]yes[/]", False: "[red]no[/]"}.get(row.get("met"), ""),
        )
    console.print(table)
    crowd, kernels = report["crowded"], any("triton" in row.get("backend", "") for row in report["rows"])
    console.print(
        f"deposits of {crowd['agents']:,} agents within 16 cells against evenly spread ones: "
        + ", ".join(f"{mode} {crowd[f'slowdown, {mode}']:.1f}x" for mode in ("count", "two-stage", "float"))
        + f"; two-stage in 16 cells against even counts {crowd['slowdown, two-stage against uniform count']:.1f}x"
        + (f" (goal 3x, {'met' if crowd['met'] else 'missed'})" if kernels else ", from torch, which has one way only"),
        highlight=False,
    )
    for name, study in report["scaling"].items():
        console.print(
            f"time against {name}: {_time(study['fixed_s'])} + {_time(study['each_s'])} each, "
            f"equal at {study['crossover']:,.0f}, fit to {100 * study['relative_error']:.0f} %",
            highlight=False,
        )


def _time(seconds: float) -> str:
    """Three digits in the unit that suits them."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e12:.3g} ps"
