"""The report of `pinnfuse bench ops` as tables and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pinnfuse.figures.style import ACCENT, CYCLE, MUTED, new_figure, style

_COLOURS = dict(
    zip(
        ("pinnfuse", "eager-roll", "eager-slice", "conv2d", "compile", "fourier"),
        (ACCENT, MUTED, CYCLE[0], CYCLE[2], CYCLE[4], CYCLE[1]),
        strict=True,
    )
)


def show(report: dict[str, Any], console: Console) -> None:
    """Times, then the small grids, then the promises."""
    each = ("ms", "graph", "of copy")
    names = [*(f"fwd {name}" for name in each), *(f"bwd {name}" for name in each), "launches", "MB", "x ours"]
    table = Table("", *names, box=SIMPLE_HEAD)
    table.columns[0].no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    before = None
    for row in report["rows"]:
        case = (row["operator"], row["n"], row["batch"], row["boundary"])
        if case != before:
            copied = f"copy {row['copy_gb_per_s']:,.0f} GB/s"
            table.add_row(f"[bold]{row['operator']} {row['n']}^2 x {row['batch']}, {row['boundary']}[/], {copied}")
        before = case
        if "failed" in row:
            table.add_row(f"  {row['engine']}", f"[red]{escape(row['failed'])}[/]")
            continue
        cells = [text for part in ("forward", "backward") for text in _part(row[part])]
        counts = "/".join(str(row[part].get("launches", "-")) for part in ("forward", "backward"))
        times = f"{row['times_ours']:.1f}" if "times_ours" in row else ""
        table.add_row(f"  {row['engine']}", *cells, counts, f"{row['memory_mb']:,.0f}", times)
    console.print(table)
    if report["crossover"]:
        engines = ("pinnfuse", "torch", "eager-roll", "eager-slice")
        small = Table("forward + backward, ms as called", "n", *engines, "speed-up")
        for row in report["crossover"]:
            small.add_row(row["operator"], str(row["n"]), *(f"{row[k]:.3g}" for k in engines), f"{row['speedup']:.2f}")
        console.print(small)
    kept = Table("promise", "operator", "baseline", "measured", "met?")
    for row in report["promises"]:
        met = "[green]yes[/]" if row["met"] else "[red]no[/]"
        kept.add_row(row["promise"], row["operator"], row["baseline"], f"{row['measured']:.2f}x", met)
    console.print(kept)


def _part(part: dict[str, Any]) -> list[str]:
    graph = f"{part['graph_ms']:.3g}" if "graph_ms" in part else ""
    return [f"{part['ms']:.3g}", graph, f"{part['of_copy']:.0%}"]


def draw(report: dict[str, Any], path: Path) -> None:
    """Share of the copy rate, forward and backward, per case: one bar per engine."""
    rows = [row for row in report["rows"] if "forward" in row and row["boundary"] == "periodic"]
    cases = list(dict.fromkeys((row["operator"], row["n"], row["batch"]) for row in rows))
    names = [name for name in _COLOURS if any(row["engine"] == name for row in rows)]
    with style():
        figure, axes = new_figure(1, 2, (9.5, 1.2 + len(cases) * (0.2 + 0.11 * max(1, len(names)))), sharey=True)
        thickness = 0.85 / max(1, len(names))
        for ax, part in zip(axes[0], ("forward", "backward"), strict=True):
            for i, name in enumerate(names):
                found = {(r["operator"], r["n"], r["batch"]): r[part]["of_copy"] for r in rows if r["engine"] == name}
                places = [k + (i - (len(names) - 1) / 2) * thickness for k, case in enumerate(cases) if case in found]
                shares = [100 * found[case] for case in cases if case in found]
                ax.barh(places, shares, 0.9 * thickness, color=_COLOURS[name], label=name)
            ax.axvline(100, color="black", linewidth=0.6)
            ax.set_title(f"{part}: % of the copy rate, every array counted once")
            ax.set_yticks(range(len(cases)), [f"{op}\n{n}$^2$ x {batch}" for op, n, batch in cases])
            ax.set_ylim(len(cases) - 0.5, -0.5)
            ax.spines[["top", "right"]].set_visible(False)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        if handles:
            figure.legend(handles, labels, loc="outside upper center", ncols=len(names))
        machine, date = report["machine"].replace("_", " "), report["date"][:10]
        versions = f"torch {report['versions']['torch']}, commit {report['commit'] or 'unknown'}"
        figure.supxlabel(f"float32, as CUDA graphs where possible; {machine}, {versions}, {date}", fontsize=8)
        figure.savefig(path)
