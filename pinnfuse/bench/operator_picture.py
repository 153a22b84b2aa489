"""The report of `pinnfuse bench ops` as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pinnfuse.bench.operators import Size
from pinnfuse.figures.style import ACCENT, CYCLE, MUTED, new_figure, style
from pinnfuse.files import whole_file

_COLOURS = dict(
    zip(
        ("pinnfuse", "eager-roll", "eager-slice", "conv", "compile", "fourier"),
        (ACCENT, MUTED, CYCLE[0], CYCLE[2], CYCLE[4], CYCLE[1]),
        strict=True,
    )
)


def draw(report: dict[str, Any], path: Path) -> None:
    """Share of the copy rate, forward and backward, per case on a torus: one bar per engine."""
    rows = [row for row in report["rows"] if "forward" in row and row["boundary"] == "periodic"]
    cases = list(dict.fromkeys(_case(row) for row in rows))
    names = [name for name in _COLOURS if any(row["engine"] == name for row in rows)]
    with style():
        figure, axes = new_figure(1, 2, (9.5, 1.2 + len(cases) * (0.2 + 0.09 * max(1, len(names)))), sharey=True)
        thickness = 0.85 / max(1, len(names))
        for ax, part in zip(axes[0], ("forward", "backward"), strict=True):
            for i, name in enumerate(names):
                found = {_case(r): r[part]["of_copy"] for r in rows if r["engine"] == name}
                places = [k + (i - (len(names) - 1) / 2) * thickness for k, case in enumerate(cases) if case in found]
                shares = [100 * found[case] for case in cases if case in found]
                ax.barh(places, shares, 0.9 * thickness, color=_COLOURS[name], label=name)
            ax.axvline(100, color="black", linewidth=0.6)
            ax.set_title(f"{part}: % of the copy rate, every array counted once")
            ax.set_yticks(range(len(cases)), cases)
            ax.set_ylim(len(cases) - 0.5, -0.5)
            ax.spines[["top", "right"]].set_visible(False)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        if handles:
            figure.legend(handles, labels, loc="outside upper center", ncols=len(names))
        machine, date = report["machine"].replace("_", " "), report["date"][:10]
        versions = f"torch {report['versions']['torch']}, commit {report['commit'] or 'unknown'}"
        figure.supxlabel(f"as CUDA graphs where possible; {machine}, {versions}, {date}", fontsize=8)
        with whole_file(path) as temporary:
            figure.savefig(temporary)


def _case(row: dict[str, Any]) -> str:
    size = Size(row["n"], row["batch"], row["dimension"], row["dtype"]).case(row["operator"]).size
    return f"{row['operator']}\n{size}"
