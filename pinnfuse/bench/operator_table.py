"""The report of `pinnfuse bench ops` as tables that fit 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pinnfuse.bench.operators import SMALL_ENGINES, Size

Row = dict[str, Any]


def show(report: dict[str, Any], console: Console) -> None:
    """Times of each operator, the small grids, the promises."""
    for operator in dict.fromkeys(row["operator"] for row in report["rows"]):
        _times([row for row in report["rows"] if row["operator"] == operator], console)
    if report["crossover"]:
        _small(report["crossover"], console)
    if report["promises"]:
        promised(report["promises"], "operator", console)


def table(title: str, left: Sequence[str], right: Sequence[str]) -> Table:
    """A narrow table: names on the left, numbers on the right."""
    found = Table(
        title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
    )
    for name in left:
        found.add_column(name, no_wrap=True)
    for name in right:
        found.add_column(name, justify="right")
    return found


def short(value: float) -> str:
    """Three digits, without an exponent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _times(rows: Sequence[Row], console: Console) -> None:
    """Milliseconds as a CUDA graph where there is one."""
    found = table(
        rows[0]["operator"],
        ("fields", "engine"),
        ("fwd ms", "%copy", "bwd ms", "%copy", "launch", "MB", "x ours"),
    )
    before: str | None = None
    for row in rows:
        size = Size(row["n"], row["batch"], row["dimension"], row["dtype"]).case(row["operator"]).size
        name = size if row["boundary"] == "periodic" else "  walls"
        engine = "[bold]pinnfuse[/]" if row["engine"] == "pinnfuse" else row["engine"]
        if name != before and before is not None and row["boundary"] == "periodic":
            found.add_section()
        first, before = "" if name == before else name, name
        found.add_row(first, engine, *(["[red]no number[/]"] if "failed" in row else _cells(row)))
    console.print(found)
    for row in rows:
        if "failed" in row:
            console.print(f"  {row['engine']}, {row['n']}, {row['boundary']}: [red]{escape(row['failed'])}[/]")


def _cells(row: Row) -> list[str]:
    last = [f"{row['memory_mb']:,.0f}", short(row["times_ours"]) if "times_ours" in row else ""]
    if "both_ms" in row:
        return ["", "", short(row["both_ms"]), "both", str(row.get("launches", "")), *last]
    parts = [text for part in ("forward", "backward") for text in _part(row[part])]
    return [*parts, "/".join(str(row[part].get("launches", "-")) for part in ("forward", "backward")), *last]


def _part(part: Row) -> list[str]:
    return [short(part["graph_ms" if "graph_ms" in part else "ms"]), f"{100 * part['of_copy']:.0f}"]


def _small(rows: Sequence[Row], console: Console) -> None:
    engines = [name for name in SMALL_ENGINES if name in rows[0]]
    found = table("forward + backward, ms as called", ("operator", "fields"), (*engines, "speed-up"))
    for row in rows:
        found.add_row(row["operator"], row["size"], *(short(row[k]) for k in engines), f"{row['speedup']:.2f}")
    console.print(found)


def promised(promises: Sequence[Row], of: str, console: Console) -> None:
    """One line per promise, operator (or case) and baseline."""
    met = sum(row["met"] for row in promises)
    found = table(f"promises: {met} of {len(promises)} met", ("promise", of, "against"), ("measured", "met?"))
    before = None
    for row in promises:
        colour, answer = ("green", "yes") if row["met"] else ("red", "no")
        name = "" if row["promise"] == before else row["promise"]
        before = row["promise"]
        found.add_row(name, row[of], row["baseline"], short(row["measured"]), f"[{colour}]{answer}[/]")
    console.print(found)
