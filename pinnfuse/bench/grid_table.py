"""The report of `pinnfuse bench grid` as tables that fit 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pinnfuse.bench.operator_table import promised, short

Row = dict[str, Any]


def show(report: dict[str, Any], console: Console) -> None:
    """Steps, training steps, promises."""
    if report["rows"]:
        _rows("residual loss and gradient of fields", report["rows"], console)
    if report["training"]:
        _rows("a training step", report["training"], console)
    if report.get("promises"):
        promised(report["promises"], "case", console)


def _rows(title: str, rows: Sequence[Row], console: Console) -> None:
    """One table per case, all with the same widths; the header once."""
    console.print(f"[bold]{title}[/]")
    for k, case in enumerate(dict.fromkeys(_case(row) for row in rows)):
        found = Table(title=f"\n[bold]{case}[/]", title_justify="left", box=None, show_header=not k, pad_edge=False)
        found.add_column("engine", min_width=14, no_wrap=True)
        for name in ("ms", "graph", "floor", "x ours", "launch", "MB", "error"):
            found.add_column(name, justify="right", min_width=7, no_wrap=True)
        mine = [row for row in rows if _case(row) == case]
        for row in mine:
            name = f"[bold]{row['engine']}[/]" if row["engine"] == "pinnfuse" else row["engine"]
            found.add_row(name, *(_cells(row) if "ms" in row else ["[red]none[/]"]))
        console.print(found)
        for row in mine:
            reason = row.get("failed") or row.get("skipped")
            if reason:
                console.print(f"{row['engine']}: [red]{escape(reason)}[/]")


def _case(row: Row) -> str:
    size = f"{row['n']}^{row['dimension']}" + (f" x {row['batch']}" if row["batch"] > 1 else "")
    text = f"{row['pde']} {size}" + (", walls" if row["boundary"] == "walls" else "")
    return text + ("" if row["dtype"] == "float32" else f", {row['dtype']}")


def _cells(row: Row) -> list[str]:
    return [
        short(row["ms"]["median"]),
        short(row["graph_ms"]) if "graph_ms" in row else "",
        f"{row['of_floor']:.0%}" if "of_floor" in row else "",
        short(row["times_ours"]) if "times_ours" in row else "",
        str(row.get("launches") or ""),
        f"{row['memory_mb']:,.0f}",
        f"{row['error']:.0e}" if "error" in row else "",
    ]
