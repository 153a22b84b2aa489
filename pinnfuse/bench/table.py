"""The rows of `pinnfuse bench` for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pinnfuse.bench import suite

_COLUMNS = ("ms (20..80 %)", "graph ms", "x ours", "MB", "x ours", "TFLOP/s", "error")


def show(rows: Sequence[dict[str, Any]], console: Console) -> None:
    """One line per case, and one per engine below it."""
    table = Table("", *_COLUMNS, box=SIMPLE_HEAD)
    table.columns[0].no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        ours = row["engine"] == "pinnfuse"
        if ours:
            case = f"{row['name']} {row['width']}x{row['depth']}, {row['points']:,} points, {row['precision']}"
            table.add_row(f"[bold]{case}[/]")
            if row.get("goals"):
                table.add_row(f"  [italic]{suite.told(row['goals'])}[/]")
        engine = f"  [bold]{escape(row.get('path', 'pinnfuse'))}[/]" if ours else f"  {row['engine']}"
        table.add_row(engine, *(_numbers(row) if "ms" in row else _reason(row)))
    console.print(table)


def _numbers(row: dict[str, Any]) -> list[str]:
    ms = row["ms"]
    return [
        f"{ms['median']:.3g} ({ms['q20']:.3g}..{ms['q80']:.3g})",
        f"{row['graph_ms']['median']:.3g}" if "graph_ms" in row else "",
        f"{row['times_ours']:.2f}" if "times_ours" in row else "",
        f"{row['memory_mb']:,.{0 if row['memory_mb'] >= 10 else 2}f}" if "memory_mb" in row else "",
        f"{row['memory_times_ours']:.1f}" if "memory_times_ours" in row else "",
        f"{row['tflop_per_s']:.2g}",
        f"{row['error']:.0e}",
    ]


def _reason(row: dict[str, Any]) -> list[str]:
    return [f"[red]{escape(row['failed'])}[/]" if "failed" in row else f"[yellow]{escape(row['skipped'])}[/]"]
