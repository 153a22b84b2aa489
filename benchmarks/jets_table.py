"""The tables of docs/performance.md ("All cases") and, with --readme, of README.md ("Speed"), as Markdown.

    python benchmarks/jets_table.py benchmarks/results/NVIDIA_H200/jets.json [--readme]

The file is what `pinnfuse bench jets --suite goals` writes; goals are judged anew, by `pinnfuse/bench/suite.py`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from pinnfuse.bench.suite import COMPILED, Entry, get

Rows = dict[str, dict[str, Any]]
"""Those of one case, by engine."""
ALL = (
    "case, width, precision",
    "points",
    "ours, captured",
    "ours, as called",
    "torch.compile",
    "JAX",
    "nested autograd",
    "best peer / ours captured (as called)",
    "goal",
    "gradient error",
)
README = (
    "case, width, precision",
    "ours, captured",
    "ours, as called",
    "best peer",
    "nested autograd",
    "best peer / ours captured (as called)",
    "goal",
)
LEFT_TO_ALL = (
    *[("burgers", width, 65536) for width in (64, 256)],
    ("plate", 128, 65536),
    *[("poisson_100", width, 65536) for width in (64, 256)],
    ("piratenet", 256, 65536),
    *[("navier_stokes", width, 4194304) for width in (64, 128)],
)
"""What README.md leaves out: name, width, points."""


def table(report: dict[str, Any], readme: bool = False) -> list[str]:
    """The lines, heading first; cases in the order of the suite, those that the report lacks left out."""
    columns = README if readme else ALL
    lines = [_line(columns), _line(["---"] * len(columns))]
    for entry in get("goals"):
        rows = {row["engine"]: row for row in report["rows"] if entry.describes(row)}
        if rows and not (readme and (entry.name, entry.width, entry.points) in LEFT_TO_ALL):
            lines.append(_line(_short(entry, rows) if readme else _long(entry, rows)))
    return lines


def _line(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


def _long(entry: Entry, rows: Rows) -> list[str]:
    ours = rows["pinnfuse"]
    return [
        _name(entry),
        f"{entry.points:,}",
        *_ours(ours),
        *(_peer(rows.get(engine)) for engine in (*COMPILED, "autograd")),
        _ratio(rows),
        _goals(entry, rows),
        f"{ours['error']:.0e}" if "error" in ours else "-",
    ]


def _short(entry: Entry, rows: Rows) -> list[str]:
    name = _name(entry) + (f", {entry.points:,} points" if entry.points != 65536 else "")
    best = _best(rows)
    asked = [_peer(rows[engine]) for engine in COMPILED if engine in rows]
    peer = f"{_ms(rows[best])}, {COMPILED[best]}" if best else asked[0] if asked else "-"
    return [name, *_ours(rows["pinnfuse"]), peer, _peer(rows.get("autograd"), False), _ratio(rows), _goals(entry, rows)]


def _name(entry: Entry) -> str:
    return f"{entry.name}, {entry.width}, {entry.precision}"


def _ms(row: dict[str, Any], key: str = "ms") -> str:
    return f"{row[key]['median']:.3g}"


def _ours(row: dict[str, Any]) -> tuple[str, str]:
    """Captured, with its memory, and as called."""
    if "ms" not in row:
        return _why(row), "-"
    captured = f"**{_ms(row, 'graph_ms')}**" if "graph_ms" in row else "-"
    return f"{captured}, {row['memory_mb']:,.0f} MB", _ms(row)


def _peer(row: dict[str, Any] | None, memory: bool = True) -> str:
    if row is None:
        return "-"
    if "ms" not in row:
        return _why(row)
    return _ms(row) + (f", {row['memory_mb']:,.0f} MB" if memory and "memory_mb" in row else "")


def _why(row: dict[str, Any]) -> str:
    """Why there is no time, in two or three words."""
    if "failed" in row:
        return "failed"
    return "not ready" if row["skipped"].startswith("not compiled") else row["skipped"]


def _best(rows: Rows) -> str | None:
    timed = {engine: rows[engine]["ms"]["median"] for engine in COMPILED if "ms" in rows.get(engine, {})}
    return min(timed, key=timed.__getitem__) if timed else None


def _ratio(rows: Rows) -> str:
    ours, best = rows["pinnfuse"], _best(rows)
    if best is None or "ms" not in ours:
        return "-"
    called = f"({rows[best]['ms']['median'] / ours['ms']['median']:.2f})"
    captured = f"{rows[best]['ms']['median'] / ours['graph_ms']['median']:.2f}" if "graph_ms" in ours else "-"
    return f"{captured} {called}"


def _goals(entry: Entry, rows: Rows) -> str:
    """The number stands beside a goal where no other column has it."""
    said = []
    for goal in entry.goals:
        judged = goal.judged(list(rows.values()))
        number = f" ({judged['measured']:.1f}x)" if goal.of == "nested" and judged["measured"] else ""
        met = {True: "met", False: "**missed**", None: "not measured"}[judged["met"]]
        said.append(f"{goal.text}{number}: {met}")
    return "; ".join(said) or "-"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, help="a jets.json")
    parser.add_argument("--readme", action="store_true", help="the shorter table")
    given = parser.parse_args()
    print("\n".join(table(json.loads(given.report.read_text(encoding="utf-8")), given.readme)))
