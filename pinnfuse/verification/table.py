"""The rows of `pinnfuse verify` for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pinnfuse.verification.runner import Row


def show(rows: Sequence[Row], console: Console) -> None:
    """Per case and path, the largest relative L2 error and its bound in both precisions; then what failed, and why."""
    table = Table("PDE", "network", "path", "float32", "float64")
    cells: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in rows:
        if row.error is not None:
            cells.setdefault((row.pde, row.network, row.path), {})[row.dtype] = _cell(row)
    before = ("", "")
    for (pde, network, path), found in cells.items():
        names = ("", "") if (pde, network) == before else (pde, network)
        before = pde, network
        table.add_row(*map(escape, (*names, path)), found.get("float32", ""), found.get("float64", ""))
    console.print(table)
    console.print("error / bound, relative L2, of the quantity that comes nearest to its bound", style="dim")
    skipped = Counter(f"{row.path}: {row.note}" for row in rows if row.status == "skipped")
    for reason, count in skipped.items():
        console.print(f"[yellow]skipped[/] {count} x {escape(reason)}", highlight=False, soft_wrap=True)
    for row in rows:
        if row.status == "failed":
            why = row.note or f"{row.quantity} is off by {row.error:.1e}, allowed are {row.bound:.1e}"
            text = escape(f"{row.pde}, {row.network}, {row.path}, {row.dtype}: {why}")
            console.print("[bold red]failed[/]", text, highlight=False, soft_wrap=True)


def _cell(row: Row) -> str:
    text = f"{row.error:.1e} / {row.bound:.1e}"
    return f"[green]{text}[/]" if row.status == "ok" else f"[bold red]{text}[/]"


def summary(rows: Sequence[Row]) -> str:
    """One line."""
    counts = Counter(row.status for row in rows)
    colour = "red" if counts["failed"] else "green"
    return f"[{colour}]{counts['ok']} ok, {counts['failed']} failed[/], {counts['skipped']} skipped"
