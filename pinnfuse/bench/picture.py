"""The rows of `pinnfuse bench` as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from pinnfuse.figures.style import ACCENT, CYCLE, MUTED, new_figure, style
from pinnfuse.files import whole_file

_COLOURS = {
    "pinnfuse": ACCENT,
    "pinnfuse, graph": "#e58a8d",
    "autograd": MUTED,
    "torch": CYCLE[0],
    "torch-compile": CYCLE[2],
    "jax": CYCLE[4],
}
_RULE = "#d0d7de"  # between two cases
_GAP = 0.8  # between them, in lines


def draw(report: dict[str, Any], path: Path) -> None:
    """A dot for each case and engine, time and (where measured) memory, logarithmic, with its multiple of ours.

    Cases of ours alone are left to the table, unless there are no others.
    """
    times: dict[tuple[str, str], float] = {}
    memory: dict[tuple[str, str], float] = {}
    for row in report["rows"]:
        if "ms" in row:
            times[_case(row), row["engine"]] = row["ms"]["median"]
            if "graph_ms" in row:
                times[_case(row), "pinnfuse, graph"] = row["graph_ms"]["median"]
        if row.get("memory_mb"):
            memory[_case(row), row["engine"]] = row["memory_mb"]
    cases = list(dict.fromkeys(_case(row) for row in report["rows"]))
    compared = {case for case, engine in times if not engine.startswith("pinnfuse")}
    places = _places(times, [case for case in cases if case in compared or not compared])
    names = [name for name in _COLOURS if any(engine == name for _, engine in places)]
    with style():
        figure, axes = new_figure(1, 2, (9.5, 1.3 + 0.17 * max(places.values(), default=1.0)), sharey=True)
        for ax, values, title in zip(axes[0], (times, memory), ("time, ms", "peak memory, MB"), strict=True):
            _dots(ax, values, places, names, title)
        if names:
            handles, labels = axes[0, 0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside upper center", ncols=len(names))
        machine, date = report["machine"].replace("_", " "), report["date"][:10]
        versions = f"torch {report['versions']['torch']}, commit {report['commit'] or 'unknown'}"
        figure.supxlabel(f"loss and parameter gradients, tanh; {machine}, {versions}, {date}", fontsize=8)
        with whole_file(path) as temporary:
            figure.savefig(temporary)


def _places(times: dict[tuple[str, str], float], cases: list[str]) -> dict[tuple[str, str], float]:
    """The height of each measured line, counted in lines from above; a gap between two cases."""
    places: dict[tuple[str, str], float] = {}
    height = 0.0
    for case in cases:
        for name in _COLOURS:
            if (case, name) in times:
                places[case, name] = height
                height += 1
        height += _GAP
    return places


def _dots(
    ax: Any, values: dict[tuple[str, str], float], places: dict[tuple[str, str], float], names: list[str], title: str
) -> None:
    """A dot for each value; on the logarithmic axis the line to it from ours is as long as the ratio is large."""
    values = {key: value for key, value in values.items() if key in places}
    lowest, highest = min(values.values(), default=1.0), max(values.values(), default=1.0)
    ours = {case: value for (case, name), value in values.items() if name == "pinnfuse"}
    for name in names:
        found = [(case, value, places[case, name]) for (case, engine), value in values.items() if engine == name]
        heights, ends = [place for *_, place in found], [value for _, value, _ in found]
        starts = [ours.get(case, value) for case, value, _ in found]
        ax.hlines(heights, starts, ends, color=_COLOURS[name], linewidth=1, alpha=0.5)
        ax.scatter(ends, heights, s=18, color=_COLOURS[name], label=name, zorder=3)
        for case, value, place in found:
            text = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
            if case in ours and name != "pinnfuse":
                text += f"  {value / ours[case]:.2g}x"
            left = value < ours.get(case, value)  # on the side where the line is not
            where = {"xytext": (-6 if left else 6, 0), "textcoords": "offset points", "ha": "right" if left else "left"}
            ax.annotate(text, (value, place), va="center", fontsize=6.5, **where)
    cases = list(dict.fromkeys(case for case, _ in places))
    span = {case: [place for (c, _), place in places.items() if c == case] for case in cases}
    rules = [max(span[case]) + (1 + _GAP) / 2 for case in cases[:-1]]
    ax.hlines(rules, 0, 1, transform=ax.get_yaxis_transform(), color=_RULE, lw=0.6)
    ax.set_xscale("log")
    # between two powers of ten, too, where the axis may have none of them
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if highest < 300 * lowest else (1,), numticks=99))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlim(lowest / 8, highest * (highest / lowest) ** 0.2 * 1.6)
    ax.set_yticks([sum(span[case]) / len(span[case]) for case in cases], cases)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(max(places.values(), default=0) + 0.9, -0.9)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.set_title(title)


def _case(row: dict[str, Any]) -> str:
    name = row["name"].replace("_", " ")
    return f"{name}\n{row['width']} x {row['depth']}, {row['points']:,} points, {row['precision']}"
