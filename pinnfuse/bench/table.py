"""The rows of `pinnfuse bench` for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table


def show(rows: Sequence[dict[str, Any]], console: Console) -> None:
    """One line per case and engine."""
    table = Table()
    for title in ("case", "engine"):
        table.add_column(title, no_wrap=True)
    for title in ("ms (20..80 %)", "graph", "x ours", "MB", "x ours", "TFLOP/s", "error"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        first = row["engine"] == "pinnfuse"
        label = f"{row['name']} {row['width']}x{row['depth']}, {row['points']:,}, {row['precision']}" if first else ""
        engine = f"[bold]{escape(row.get('path', 'pinnfuse'))}[/]" if first else row["engine"]
        if "ms" not in row:
            reason = f"[red]{escape(row['failed'])}[/]" if "failed" in row else f"[yellow]{escape(row['skipped'])}[/]"
            table.add_row(label, engine, reason)
            continue
        ms = row["ms"]
        table.add_row(
            label,
            engine,
            f"{ms['median']:.3g} ({ms['q20']:.3g}..{ms['q80']:.3g})",
            f"{row['graph_ms']['median']:.3g}" if "graph_ms" in row else "",
            f"{row['times_ours']:.2f}" if "times_ours" in row else "",
            f"{row['memory_mb']:,.1f}" if "memory_mb" in row else "",
            f"{row['memory_times_ours']:.1f}" if "memory_times_ours" in row else "",
            f"{row['tflop_per_s']:.2g}",
            f"{row['error']:.0e}",
        )
    console.print(table)
