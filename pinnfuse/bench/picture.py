"""The rows of `pinnfuse bench` as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.ticker import NullFormatter

from pinnfuse.figures.style import ACCENT, CYCLE, MUTED, new_figure, style

_COLOURS = {
    "pinnfuse": ACCENT,
    "pinnfuse, graph": "#e58a8d",
    "autograd": MUTED,
    "torch": CYCLE[0],
    "torch-compile": CYCLE[2],
    "jax": CYCLE[4],
}


def draw(report: dict[str, Any], path: Path) -> None:
    """Time (and memory, where it was measured) per case, one bar per engine, logarithmic; ours in red."""
    cases = list(dict.fromkeys(_case(row) for row in report["rows"]))
    times: dict[tuple[str, str], float] = {}
    memory: dict[tuple[str, str], float] = {}
    for row in report["rows"]:
        if "ms" in row:
            times[_case(row), row["engine"]] = row["ms"]["median"]
            if "graph_ms" in row:
                times[_case(row), "pinnfuse, graph"] = row["graph_ms"]["median"]
        if row.get("memory_mb"):
            memory[_case(row), row["engine"]] = row["memory_mb"]
    names = [name for name in _COLOURS if any(engine == name for _, engine in times)]
    with style():
        height = 0.9 + len(cases) * (0.2 + 0.17 * max(1, len(names)))
        figure, axes = new_figure(1, 2, (9.5, height), sharey=True)
        for ax, values, title in zip(axes[0], (times, memory), ("time, ms", "peak memory, MB"), strict=True):
            _bars(ax, values, cases, names, title)
        if names:
            handles, labels = axes[0, 0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside upper center", ncols=len(names))
        machine, date = report["machine"].replace("_", " "), report["date"][:10]
        versions = f"torch {report['versions']['torch']}, commit {report['commit'] or 'unknown'}"
        figure.supxlabel(f"loss and parameter gradients, tanh; {machine}, {versions}, {date}", fontsize=8)
        figure.savefig(path)


def _bars(ax: Any, values: dict[tuple[str, str], float], cases: list[str], names: list[str], title: str) -> None:
    thickness = 0.8 / max(1, len(names))
    lowest, highest = min(values.values(), default=1.0), max(values.values(), default=1.0)
    for i, name in enumerate(names):
        found = [(k, values[case, name]) for k, case in enumerate(cases) if (case, name) in values]
        places = [k + (i - (len(names) - 1) / 2) * thickness for k, _ in found]
        lengths = [value for _, value in found]
        ax.barh(places, lengths, 0.9 * thickness, color=_COLOURS[name], label=name)
        for (k, value), place in zip(found, places, strict=True):
            ours = values.get((cases[k], "pinnfuse"))
            ratio = f"  {value / ours:.1f}x" if ours and name != "pinnfuse" else ""
            ax.text(value * 1.04, place, f"{value:.3g}{ratio}", va="center", fontsize=6.5)
    ax.set_xscale("log")
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlim(lowest / 2, highest * (highest / lowest) ** 0.25 * 2)
    ax.set_yticks(range(len(cases)), cases)
    ax.set_ylim(len(cases) - 0.5, -0.5)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title(title)


def _case(row: dict[str, Any]) -> str:
    name = row["name"].replace("_", " ")
    return f"{name}\n{row['width']} x {row['depth']}, {row['points']:,} points, {row['precision']}"
