"""The figure of docs/flashpde.md is drawn from the results, and its numbers on half precision are theirs."""

import json
import runpy

import pytest


def test_it_is_drawn(root, tmp_path):
    script = runpy.run_path(str(root / "benchmarks" / "habits_figure.py"))
    script["main"](str(tmp_path / "habits.png"), str(root / "benchmarks" / "results"))
    assert (tmp_path / "habits.png").read_bytes()[:4] == b"\x89PNG"


def test_errors_of_half_precision(root):
    rows = json.loads((root / "benchmarks" / "results" / "cpu-2-cores" / "habits.json").read_text())["precision"]
    error = {(row["n"], row["dtype"]): row["error"] for row in rows}
    page = " ".join((root / "docs" / "flashpde.md").read_text().split())
    percent = [f"{100 * error[n, dtype]:.2g}" for n in (64, 256) for dtype in ("float16", "bfloat16")]
    assert (
        "off by {} % in float16 and by {} % in bfloat16; on 256^2 by {} % and {} %".format(
            *(f"{float(p):.0f}" for p in percent)
        )
        in page
    )
    assert error[256, "float32"] == pytest.approx(1.3e-4, rel=0.05) and "1.3e-4 at 256^2" in page
