"""What was promised of operators on grids, judged by the rows of one run: each promise with its number and "met".

The article: 1.5 to 2 times eager operators at 512^2, 3 to 4 at 2048^2, 5 to 8 at 8192^2. The paper: 37 times less
memory than coordinate autodiff, 3.5 times fewer launches, 19.2 times per kernel. Our own: at 2048^2 x 8 and 8192^2 at
least 85 % of the rate of a copy forward and 80 % backward; no small grid slower than eager.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

Row = dict[str, Any]
ARTICLE = {512: (1.5, 2.0), 2048: (3.0, 4.0), 8192: (5.0, 8.0)}
NATIVE = ("eager-roll", "eager-slice", "conv")
OF_COPY = {"forward": 0.85, "backward": 0.80}
LARGE = ((2048, 8), (8192, 1))
"""(n, batch) where the rate counts."""


def promises(rows: Sequence[Row]) -> list[Row]:
    """Every promise that these rows can judge; those of 2-D fields in float32 between no walls."""
    plane = [r for r in rows if (r["boundary"], r["dimension"], r["dtype"]) == ("periodic", 2, "float32")]
    plane = [row for row in plane if "failed" not in row]
    ours = {(r["operator"], r["n"], r["batch"]): r for r in plane if r["engine"] == "pinnfuse"}
    found: list[Row] = []
    for row in plane:
        mine = ours.get((row["operator"], row["n"], row["batch"]))
        if mine is row and (row["n"], row["batch"]) in LARGE:
            found += _rates(row)
        elif mine is not None and mine is not row and row["batch"] == 1:
            found += _against(row, mine)
    return found


def _rates(row: Row) -> Iterator[Row]:
    for part, least in OF_COPY.items():
        where = f"{row['n']}^2 x {row['batch']}"
        yield judged(f"{least:.0%} of a copy, {part}, {where}", row, row[part]["of_copy"], least, baseline="copy")


def _against(row: Row, mine: Row) -> Iterator[Row]:
    if row["n"] in ARTICLE and row["engine"] in NATIVE:
        least, most = ARTICLE[row["n"]]
        found = judged(f"{least}-{most}x at {row['n']}^2", row, row["times_ours"], least)
        yield found | {"as_graph": row["graph_times_ours"]}
    if row["n"] != 2048:
        return
    if row["engine"] == "coordinates":
        yield judged("37x less memory", row, row["memory_times_ours"], 37.0)
    if row["engine"] == "eager-roll" and "launches" in row["forward"] and "launches" in mine["forward"]:
        counts = [sum(r[k]["launches"] for k in OF_COPY) for r in (row, mine)]
        yield judged("3.5x fewer launches", row, counts[0] / counts[1], 3.5)
        best = max(row[k].get("graph_ms", row[k]["ms"]) / mine[k].get("graph_ms", mine[k]["ms"]) for k in OF_COPY)
        yield judged("19.2x per kernel", row, best, 19.2)


def small_promises(crossovers: Sequence[Row]) -> list[Row]:
    """No size slower than eager; "auto" within 10 % of the better of kernels and plain torch. The worst size counts.

    Measured is forward + backward as called, by the wall clock: for "auto" the median over rounds of its time over
    that of the better path in the same round (`operators.crossover`).
    """
    found = []
    for operator in dict.fromkeys(row["operator"] for row in crossovers):
        rows = [row for row in crossovers if row["operator"] == operator]
        name = {"operator": operator, "engine": "eager"}
        found.append(judged("no small grid slower", name, min(row["speedup"] for row in rows), 1.0))
        chosen = [1.0 / row["of_best"] for row in rows if "of_best" in row]
        if chosen:
            found.append(judged("auto within 10 %", name, min(chosen), 1 / 1.1, baseline="better path"))
    return found


def judged(promise: str, row: Row, measured: float, least: float, baseline: str = "") -> Row:
    return {
        "promise": promise,
        "operator": row["operator"],
        "baseline": baseline or row["engine"],
        "measured": measured,
        "least": least,
        "met": measured >= least,
    }
