"""`pinnfuse bench ops`: the engines agree, promises are judged, and what is written can be read."""

import json
import time

import pytest
import torch

from pinnfuse.bench import operators
from pinnfuse.bench.operator_engines import ENGINES, OPERATORS, Case, build, reference
from pinnfuse.cli.main import main

CPU = torch.device("cpu")


@pytest.mark.parametrize("operator", OPERATORS)
def test_engines_agree_with_float64(operator):
    """Values and gradients of every engine; Fourier has other numbers, and compile needs a compiler."""
    case = Case(operator, 20, 2)
    inputs = case.inputs(CPU)
    for engine in ENGINES:
        if engine not in ("fourier", "compile"):
            assert operators._error(build(engine, case), case, inputs) < operators.BOUND
    broken = build("eager-roll", case)
    assert operators._error(lambda *x: broken(*x) * 1.001, case, inputs) > operators.BOUND
    smooth = [torch.sin(x) for x in Case(operator, 64, 1).inputs(CPU)]
    assert reference(Case(operator, 64, 1))(*smooth).shape == build("fourier", Case(operator, 64, 1))(*smooth).shape


def test_a_report_is_written(tmp_path, capsys):
    options = ["--sizes", "16,16x2", "--small", "8", "--operators", "laplacian", "--against", "eager-roll"]
    assert main(["bench", "ops", *options, "--device", "cpu", "--seconds", "0.01", "--out", str(tmp_path)]) == 0
    (folder,) = tmp_path.iterdir()
    report = json.loads((folder / "ops.json").read_text())
    assert (folder / "ops.png").stat().st_size > 1000
    assert {(row["n"], row["batch"], row["boundary"], row["engine"]) for row in report["rows"]} == {
        (16, batch, boundary, engine)
        for batch in (1, 2)
        for boundary, engine in (("periodic", "pinnfuse"), ("periodic", "eager-roll"), ("dirichlet", "pinnfuse"))
    }
    for row in report["rows"]:
        assert row["error"] < operators.BOUND and row["memory_mb"] > 0
        assert row["forward"]["of_copy"] == pytest.approx(row["forward"]["gb_per_s"] / row["copy_gb_per_s"])
    assert report["crossover"][0]["n"] == 8 and report["crossover"][0]["torch"] > 0
    assert "laplacian 16^2 x 1" in capsys.readouterr().out


def test_promises_are_judged():
    def row(engine: str, forward: float, backward: float, launches: int) -> dict:
        parts = {
            name: {"ms": ms, "graph_ms": ms, "launches": launches}
            for name, ms in (("forward", forward), ("backward", backward))
        }
        return {"operator": "laplacian", "n": 2048, "batch": 1, "boundary": "periodic", "engine": engine, **parts}

    ours, eager = row("pinnfuse", 1.0, 1.0, 1), row("eager-roll", 2.0, 3.0, 7)
    eager |= {"times_ours": 2.5, "graph_times_ours": 2.5}
    found = {p["promise"]: (p["measured"], p["met"]) for p in operators.promises([ours, eager])}
    assert found == {
        "3.0-4.0x at 2048^2": (2.5, False),
        "3.5x fewer launches": (7.0, True),
        "19.2x per kernel": (3.0, False),
    }


def test_the_worst_size_judges_small_grids():
    rows = [{"operator": "laplacian", "speedup": s, "of_torch": t} for s, t in ((2.0, 0.5), (0.9, 1.05), (1.5, 0.8))]
    slower, chosen = operators.small_promises(rows)
    assert (slower["measured"], slower["met"]) == (0.9, False)
    assert chosen["measured"] == pytest.approx(1 / 1.05) and chosen["met"]
    assert not operators.small_promises([rows[0] | {"of_torch": 1.2}])[1]["met"]


def test_times_are_times():
    ms = operators._milliseconds(lambda: time.sleep(0.01), CPU, 0.1)
    assert 9.5 < ms < 15


def test_wrong_options(capsys):
    for options, message in (
        (["--operators", "laplacain"], "Did you mean 'laplacian'"),
        (["--against", "numpy"], "unknown 'numpy'"),
        (["--sizes", "big"], "--sizes: expected positive integers"),
    ):
        assert main(["bench", "ops", *options, "--device", "cpu", "--out", "unused"]) == 1
        assert message in capsys.readouterr().err
