"""What was promised of residuals on grids, judged by the rows of one run.

Ours: Navier-Stokes at 2048^2 and 8192^2 at 60 % of the floor or more, 8 times eager and 2 times compiled code, two
launches. The article: 1.5, 3 and 5 times eager operators at 512^2, 2048^2 and 8192^2. The paper, on six PDEs: 37 times
less memory than coordinate autodiff, 3.5 times fewer launches, 19.2 times per kernel, 2.30 times a training step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

Row = dict[str, Any]
ARTICLE = {512: 1.5, 2048: 3.0, 8192: 5.0}
LARGE = (2048, 8192)
EAGER = ("eager", "roll")
LAUNCHES = 2


def promises(rows: Sequence[Row], training: Sequence[Row]) -> list[Row]:
    """Every promise that these rows can judge; in float32, on two axes."""
    found: list[Row] = []
    ours: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        if (row["dimension"], row["dtype"]) == (2, "float32") and "ms" in row:
            if row["engine"] == "pinnfuse":
                ours[_case(row)] = row
                found += _alone(row)
            elif _case(row) in ours:
                found += _against(row, ours[_case(row)])
    for row in training:
        if row["engine"] in (*EAGER, "coordinates") and "times_ours" in row:
            found.append(_judged("2.30x a training step", row, row["times_ours"], 2.3))
    return found


def _case(row: Row) -> tuple[Any, ...]:
    return row["pde"], row["boundary"], row["n"], row["batch"]


def _alone(row: Row) -> Iterator[Row]:
    if row["pde"] == "navier_stokes" and row["n"] in LARGE:
        yield _judged("60 % of the floor", row, row["of_floor"], 0.6, "floor")
        if row["launches"] is not None:
            yield _judged("two launches", row, row["launches"], LAUNCHES, "its own") | {
                "met": row["launches"] <= LAUNCHES
            }


def _against(row: Row, mine: Row) -> Iterator[Row]:
    if row["engine"] == "coordinates":
        yield _judged("37x less memory", row, row["memory_times_ours"], 37.0)
        return
    if row["pde"] == "navier_stokes" and row["n"] in LARGE:
        if row["engine"] in EAGER:
            yield _judged("8x eager differences", row, row["times_ours"], 8.0)
        if row["engine"] == "torch-compile":
            yield _judged("2x compiled ones", row, row["times_ours"], 2.0)
    if row["engine"] not in EAGER:
        return
    if row["pde"] == "navier_stokes" and row["n"] in ARTICLE:
        yield _judged(f"{ARTICLE[row['n']]:g}x at {row['n']}^2", row, row["times_ours"], ARTICLE[row["n"]])
    if row["boundary"] == "periodic" and row["n"] not in ARTICLE and row["launches"] and mine["launches"]:
        yield _judged("3.5x fewer launches", row, row["launches"] / mine["launches"], 3.5)
        yield _judged(
            "19.2x per kernel", row, row["graph_times_ours" if "graph_times_ours" in row else "times_ours"], 19.2
        )


def _judged(promise: str, row: Row, measured: float, least: float, baseline: str = "") -> Row:
    where = f"{row['pde']} {row['n']}^2" + (f"x{row['batch']}" if row["batch"] > 1 else "")
    where += " walls" if row["boundary"] == "walls" else ""
    return {
        "promise": promise,
        "case": where,
        "baseline": baseline or row["engine"],
        "measured": measured,
        "least": least,
        "met": measured >= least,
    }
