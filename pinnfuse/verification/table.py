"""The rows of `pinnfuse verify` for people: what failed, then a line for each group, or for each comparison."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pinnfuse.verification.operators import DTYPES, OperatorRow
from pinnfuse.verification.runner import Row

AnyRow = Row | OperatorRow


def show(rows: Sequence[AnyRow], console: Console, full: bool = False) -> None:
    """What failed, and why; a table; what was skipped, and why; a line of counts.

    Args:
        rows: of networks, of operators, or both.
        full: a line for every case instead of every group.
    """
    alike: dict[str, list[AnyRow]] = {}
    for row in rows:
        if row.status == "failed":
            why = row.note or f"{row.quantity} is off by {row.error:.1e}, allowed are {row.bound:.1e}"
            alike.setdefault(why, []).append(row)
    for why, (row, *others) in alike.items():
        more = f" and {len(others)} more" if others else ""
        text = escape(f"{row.case}, {row.path}, {row.dtype}{more}: {why}")
        console.print("[bold red]failed[/]", text, highlight=False, soft_wrap=True)
    if full:
        for kind in (Row, OperatorRow):
            if chosen := [row for row in rows if isinstance(row, kind)]:
                console.print(_cases(chosen))
        console.print("error / bound of the quantity that comes nearest to its bound", style="dim")
    else:
        console.print(_groups(rows))
    for (path, reason), count in Counter((row.path, row.note) for row in rows if row.status == "skipped").items():
        console.print(f"[yellow]skipped[/] {count} x {path}: {escape(reason)}", highlight=False, soft_wrap=True)
    console.print(summary(rows) + ("" if full else "; --full lists every comparison"), highlight=False)


def summary(rows: Sequence[AnyRow]) -> str:
    """One line."""
    counts = Counter(row.status for row in rows)
    colour = "red" if counts["failed"] else "green"
    return f"[{colour}]{counts['ok']} ok, {counts['failed']} failed[/], {counts['skipped']} skipped"


def _groups(rows: Sequence[AnyRow]) -> Table:
    """For each group and path that ran: how many comparisons, and the one that comes nearest to its bound."""
    table = Table("what", "path", "ok", "failed", "nearest to its bound", box=None, padding=(0, 2, 0, 0))
    for column in table.columns[2:4]:
        column.justify = "right"
    compared: dict[tuple[str, str], list[AnyRow]] = {}
    for row in rows:
        if row.error is not None:
            compared.setdefault((row.group, row.path), []).append(row)
    for (group, path), members in compared.items():
        worst = max(members, key=_share)
        failed = sum(row.status == "failed" for row in members)
        nearest = f"{_share(worst):.0%} of it: {worst.case}, {worst.dtype}"
        cells = (group, path, str(len(members) - failed), str(failed or ""), nearest)
        table.add_row(*map(escape, cells), style="bold red" if failed else None)
    return table


def _share(row: AnyRow) -> float:
    """Error over bound; infinite for NaN, and for any error where none is allowed."""
    assert row.error is not None and row.bound is not None
    if row.bound == 0:
        return 0.0 if row.error == 0 else math.inf
    return math.inf if math.isnan(row.error) else row.error / row.bound


def _cases(rows: Sequence[AnyRow]) -> Table:
    """For each case and path, error and bound in every precision."""
    present = {row.dtype for row in rows}
    dtypes = [dtype for dtype in DTYPES if dtype in present]
    table = Table("case", "path", *dtypes)
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        if row.error is not None:
            text, style = f"{row.error:.0e} / {row.bound:.0e}", "bold red" if row.status == "failed" else "green"
            cells.setdefault((row.case, row.path), {})[row.dtype] = f"[{style}]{text}[/]"
    for (case, path), found in cells.items():
        table.add_row(escape(case), escape(path), *(found.get(dtype, "") for dtype in dtypes))
    return table
