"""The tables of docs/grid.md say what there is, and what was measured."""

import inspect
import json
import re
from pathlib import Path

import pytest

from pinnfuse import grid
from pinnfuse.grid.registry import OPERATORS


@pytest.fixture
def page(root: Path) -> str:
    return (root / "docs" / "grid.md").read_text()


def table(page: str, head: str) -> list[list[str]]:
    """The cells of the table whose first line begins so."""
    lines = page[page.index(head) :].splitlines()[2:]
    rows = (line for line in lines[: next(k for k, line in enumerate(lines) if not line.startswith("|"))])
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_every_operator_is_listed(page):
    """Functions of the package that take fields, those of the registry among them, and no other."""
    listed = {name for row in table(page, "| operator |") for name in re.findall(r"`(\w+)", row[0])} - {"grid"}
    helpers = {"axis_stencil", "backends"}
    public = {name for name in grid.__all__ if inspect.isfunction(getattr(grid, name))} - helpers
    assert listed == public | {"spectral"}
    tested = {name.split()[0] for name in OPERATORS} - {"mixed"}  # a derivative
    assert tested <= public


def test_shares_of_the_copy_rate_are_those_of_the_results(page, root):
    results = json.loads((root / "benchmarks" / "results" / "NVIDIA_H200" / "ops.json").read_text())
    measured = {
        (r["operator"], r["boundary"], r["n"], r["batch"]): r for r in results["rows"] if r["engine"] == "pinnfuse"
    }
    rows = table(page, "| periodic (walls) |")
    assert len(rows) == 4
    columns = [(n, batch, way) for n, batch in ((2048, 8), (8192, 1)) for way in ("forward", "backward")]
    for name, *cells in rows:
        for (n, batch, way), cell in zip(columns, cells[:4], strict=True):
            printed = [float(x) for x in re.fullmatch(r"(\d+) % \((\d+)\)", cell).groups()]
            for boundary, share in zip(("periodic", "dirichlet"), printed, strict=True):
                found = measured[name.replace(",", ""), boundary, n, batch][way]["of_copy"]
                assert share == pytest.approx(100 * found, abs=0.51), (name, cell)
    met = [p["met"] for p in results["promises"]]
    assert f"{sum(met)} of the {len(met)} promised rows" in page
