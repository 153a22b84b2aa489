"""The rows of `pinnfuse bench` as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from pinnfuse.figures.style import ACCENT, CYCLE, MUTED, new_figure, style

_COLOURS = {
    "pinnfuse": ACCENT,
    "pinnfuse, graph": "#e58a8d",
    "autograd": MUTED,
    "torch": CYCLE[0],
    "torch-compile": CYCLE[2],
    "jax": CYCLE[4],
}
_RULE = "#d0d7de"  # between two cases


def draw(report: dict[str, Any], path: Path) -> None:
    """A dot for each case and engine, time and (where measured) memory, logarithmic, with its multiple of ours."""
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
            _dots(ax, values, cases, names, title)
        if names:
            handles, labels = axes[0, 0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside upper center", ncols=len(names))
        machine, date = report["machine"].replace("_", " "), report["date"][:10]
        versions = f"torch {report['versions']['torch']}, commit {report['commit'] or 'unknown'}"
        figure.supxlabel(f"loss and parameter gradients, tanh; {machine}, {versions}, {date}", fontsize=8)
        figure.savefig(path)


def _dots(ax: Any, values: dict[tuple[str, str], float], cases: list[str], names: list[str], title: str) -> None:
    """A dot for each value; on the logarithmic axis the line to it from ours is as long as the ratio is large."""
    thickness = 0.8 / max(1, len(names))
    lowest, highest = min(values.values(), default=1.0), max(values.values(), default=1.0)
    ours = {k: values[case, "pinnfuse"] for k, case in enumerate(cases) if (case, "pinnfuse") in values}
    for i, name in enumerate(names):
        found = [(k, values[case, name]) for k, case in enumerate(cases) if (case, name) in values]
        places = [k + (i - (len(names) - 1) / 2) * thickness for k, _ in found]
        starts = [ours.get(k, value) for k, value in found]
        ax.hlines(places, starts, [value for _, value in found], color=_COLOURS[name], linewidth=1, alpha=0.5)
        ax.scatter([value for _, value in found], places, s=18, color=_COLOURS[name], label=name, zorder=3)
        for (k, value), place in zip(found, places, strict=True):
            text = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
            if k in ours and name != "pinnfuse":
                text += f"  {value / ours[k]:.1f}x"
            left = value < ours.get(k, value)  # on the side where the line is not
            where = {"xytext": (-6 if left else 6, 0), "textcoords": "offset points", "ha": "right" if left else "left"}
            ax.annotate(text, (value, place), va="center", fontsize=6.5, **where)
    ax.hlines([k + 0.5 for k in range(len(cases) - 1)], 0, 1, transform=ax.get_yaxis_transform(), color=_RULE, lw=0.6)
    ax.set_xscale("log")
    # between two powers of ten, too, where the axis may have none of them
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if highest < 300 * lowest else (1,), numticks=99))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlim(lowest / 3, highest * (highest / lowest) ** 0.2 * 1.6)
    ax.set_yticks(range(len(cases)), cases)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(cases) - 0.5, -0.5)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.set_title(title)


def _case(row: dict[str, Any]) -> str:
    name = row["name"].replace("_", " ")
    return f"{name}\n{row['width']} x {row['depth']}, {row['points']:,} points, {row['precision']}"
