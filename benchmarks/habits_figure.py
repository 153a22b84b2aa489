"""The figure of docs/flashpde.md from results: habits_figure.py docs/images/habits.png benchmarks/results

Left: error of the Laplacian against spacing, by precision (`*/habits.json`). Right: what one call costs, forward and
backward, against native ones, by size (`crossover` of `*/ops.json`), and several heat steps a launch
(`*/heat_steps.json`) where there are such numbers.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from pinnfuse.figures.style import ACCENT, CYCLE, MUTED, new_figure, style


def newest(root: Path, name: str, key: str) -> dict[str, Any] | None:
    """The report with rows under `key`, from a card if there is one."""
    paths = sorted(root.glob(f"*/{name}"), key=lambda path: path.parent.name.startswith("cpu"))
    reports = (json.loads(path.read_text(encoding="utf-8")) for path in paths)
    return next((r for r in reports if isinstance(r.get(key), list) and r[key]), None)


def precision(ax: Any, report: dict[str, Any]) -> None:
    rows = report["precision"]
    for dtype, colour in zip(
        ("bfloat16", "float16", "float32", "float64"), (CYCLE[0], CYCLE[2], ACCENT, MUTED), strict=True
    ):
        mine = [row for row in rows if row["dtype"] == dtype]
        h = [2 * math.pi / row["n"] for row in mine]
        ax.plot(h, [row["error"] for row in mine], "o-", color=colour, label=dtype, markersize=3)
        ax.plot(h, [0.3 * row["floor"] for row in mine], ":", color=colour, linewidth=0.8)
    ax.set(xscale="log", yscale="log", xlabel="spacing h", ylabel="relative error", ylim=(1e-7, 1e4))
    ax.set_title("Laplacian of order 2 (dotted: 0.3 eps / h^2)")
    ax.legend()


def crossover(ax: Any, report: dict[str, Any]) -> None:
    names = list(dict.fromkeys(row["operator"] for row in report["crossover"]))
    for name, colour in zip(names, (ACCENT, *CYCLE), strict=False):
        mine = [row for row in report["crossover"] if row["operator"] == name and row.get("dimension", 2) == 2]
        ax.plot(
            [row["n"] for row in mine], [row["speedup"] for row in mine], "o-", color=colour, label=name, markersize=3
        )
    ax.axhline(1.0, color=MUTED, linewidth=0.8)
    ax.set(xscale="log", xlabel="points per axis", ylabel="times as fast as native", ylim=(0, None))
    ax.set_title(f"one call as called, {report['machine'].replace('_', ' ')}")
    ax.legend()


def steps(ax: Any, report: dict[str, Any]) -> None:
    for n in dict.fromkeys(row["n"] for row in report["rows"]):
        mine = [
            row for row in report["rows"] if row["n"] == n and "graph_gain" in row and row["variant"] != "one a launch"
        ]
        best = max(mine, key=lambda row: row["graph_gain"], default=None)
        if best is not None:
            ax.bar([str(n)], [best["gain"]], color=MUTED, width=0.6)
            ax.bar([str(n)], [best["graph_gain"]], color=ACCENT, width=0.4)
    ax.axhline(1.0, color=MUTED, linewidth=0.8)
    ax.set(xlabel="points per axis", ylabel="gain (grey: as called, red: CUDA graphs)")
    ax.set_title("several heat steps a launch")


def main(path: str, results: str) -> None:
    root = Path(results)
    found = [
        (draw, newest(root, name, key))
        for draw, name, key in (
            (precision, "habits.json", "precision"),
            (crossover, "ops.json", "crossover"),
            (steps, "heat_steps.json", "rows"),
        )
    ]
    parts = [(draw, report) for draw, report in found if report is not None]
    with style():
        figure, axes = new_figure(1, len(parts), (4.2 * len(parts), 3.4))
        for ax, (draw, report) in zip(axes[0], parts, strict=True):
            draw(ax, report)
        figure.savefig(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
