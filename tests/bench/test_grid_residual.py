"""`pinnfuse bench grid` on small cases: what is checked before it is timed, what is judged, what is written."""

import io
import json

import pytest
import torch
from rich.console import Console

from pinnfuse.bench import grid_engines as engines
from pinnfuse.bench import grid_residual as bench
from pinnfuse.bench import grid_table
from pinnfuse.bench.grid_equations import SIX
from pinnfuse.bench.grid_promises import promises
from pinnfuse.cli.main import main

CPU = torch.device("cpu")
CASES = [engines.GridCase("periodic", 9, 2, pde) for pde in SIX]
CASES += [engines.GridCase("walls", 9, 2, pde) for pde in ("navier_stokes", "burgers", "poisson")]
CASES += [engines.GridCase("periodic", 12, 1, pde, 1) for pde in ("heat", "burgers")]
CASES += [engines.GridCase(b, 7, 1, "navier_stokes", 3) for b in ("periodic", "walls")]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.pde}-{c.dimension}-{c.boundary}")
def test_all_engines_compute_the_same_loss(case):
    (fields,) = case.inputs(CPU, 1, torch.float64)
    loss, gradient = engines.step_of(engines.eager(case))(fields)
    others = [engines.ours(case, "torch", CPU)]
    others += [engines.step_of(engines.roll(case))] if case.boundary == "periodic" else []
    for step in others:
        found = step(fields)
        torch.testing.assert_close(found[0], loss)
        torch.testing.assert_close(found[1], gradient)


@pytest.mark.parametrize("pde, dimension", [("navier_stokes", 2), ("poisson", 3), ("burgers", 1)])
def test_fourier_derivatives_are_those_of_a_wave(pde, dimension):
    """On a wave of one mode the spectral residual differs from differences by O(h^2)."""
    errors = []
    for n in (16, 32):
        case = engines.GridCase("periodic", n, 1, pde, dimension)
        x = torch.arange(n, dtype=torch.float64) * (2 * torch.pi / n)
        wave = x.sin().reshape([-1] + [1] * (dimension - 1)).expand(case.shape).clone() * (0.01 * n) ** 2
        exact, near = (engines.step_of(make(case))(wave)[0] for make in (engines.fourier, engines.eager))
        errors.append(float((exact - near).abs() / exact))
    assert errors[1] < errors[0] / 3


def test_what_is_written(tmp_path):
    arguments = ["--device", "cpu", "--seconds", "0.001", "--out", str(tmp_path), "--batch", "1"]
    arguments += ["--sizes", "8,12^1,8:float64", "--six", "8", "--training", "8"]
    assert main(["bench", "grid", *arguments, "--against", "eager,roll,fourier,coordinates"]) == 0
    (path,) = tmp_path.glob("*/grid_residual.json")
    report = json.loads(path.read_text())
    rows = report["rows"]
    assert [row["engine"] for row in rows[:5]] == ["pinnfuse", "eager", "roll", "fourier", "coordinates"]
    assert {row["pde"] for row in rows} == {row["pde"] for row in report["training"]} == set(SIX)
    assert {(row["dimension"], row["dtype"]) for row in rows} == {(2, "float32"), (1, "float32"), (2, "float64")}
    for row in rows + report["training"]:
        assert row["ms"]["median"] > 0 and row["memory_mb"] > 0
        assert row["engine"] == "fourier" or row["error"] <= bench.BOUND[row["dtype"]]
    judged = {(row["promise"], row["case"].split()[0]) for row in report["promises"]}
    assert judged >= {(text, pde) for text in ("37x less memory", "2.30x a training step") for pde in SIX}
    for row in rows + report["training"]:
        row |= {"ms": dict.fromkeys(("q20", "median", "q80"), 123.4), "graph_ms": 99.9, "launches": 123}
        row |= {"memory_mb": 12345.0, "times_ours": 123.4}
    text = io.StringIO()
    grid_table.show(report, Console(file=text, width=80))
    assert "\u2026" not in text.getvalue()  # nothing is cut on a terminal of 80 columns


def test_promises_are_judged():
    def row(engine: str, n: int, **found) -> dict:
        kind = {"pde": "navier_stokes", "boundary": "periodic", "n": n, "batch": 1, "dimension": 2, "dtype": "float32"}
        return kind | {"engine": engine, "ms": {}, "launches": 2, "memory_times_ours": 1.0} | found

    rows = [
        row("pinnfuse", 2048, of_floor=0.7),
        row("eager", 2048, times_ours=7.0, launches=99),
        row("torch-compile", 2048, times_ours=2.5),
        row("pinnfuse", 8192, of_floor=0.5, launches=3),
        row("pinnfuse", 1024, of_floor=0.5),
        row("roll", 1024, times_ours=9.0, graph_times_ours=20.0, launches=30),
        row("coordinates", 1024, memory_times_ours=36.0),
    ]
    trained = [row("pinnfuse", 256), row("eager", 256, times_ours=2.4), row("roll", 256)]
    found = {(p["promise"], p["case"].split()[1], p["baseline"]): p["met"] for p in promises(rows, trained)}
    assert found == {
        ("60 % of the floor", "2048^2", "floor"): True,
        ("60 % of the floor", "8192^2", "floor"): False,
        ("two launches", "2048^2", "its own"): True,
        ("two launches", "8192^2", "its own"): False,
        ("8x eager differences", "2048^2", "eager"): False,
        ("3x at 2048^2", "2048^2", "eager"): True,
        ("2x compiled ones", "2048^2", "torch-compile"): True,
        ("3.5x fewer launches", "1024^2", "roll"): True,
        ("19.2x per kernel", "1024^2", "roll"): True,
        ("37x less memory", "1024^2", "coordinates"): False,
        ("2.30x a training step", "256^2", "eager"): True,
    }


@pytest.mark.parametrize("boundary", ["periodic", "walls"])
def test_the_compiled_engine_is_one_graph(boundary):
    """A graph that breaks would be a slower peer than a user could have."""
    case, graphs = engines.GridCase(boundary, 8, 2), []
    loss = engines.compiled(case, backend=lambda graph, _: graphs.append(graph) or graph.forward)
    (fields,) = case.inputs(torch.device("cpu"), 1)
    assert torch.equal(loss(fields), engines.eager(case)(fields)) and len(graphs) == 1


def test_a_wrong_engine_gets_no_number(monkeypatch):
    case = engines.GridCase("periodic", 8, 1)
    wrong = lambda case: lambda fields: fields.square().sum()  # noqa: E731
    monkeypatch.setattr(engines, "roll", wrong)
    monkeypatch.setattr(bench, "roll", wrong)
    for rows in (bench.measure(case, ("roll",), CPU, 0.001), bench.train(case, ("roll",), CPU, 0.001)):
        (row,) = (row for row in rows if row["engine"] == "roll")
        assert "beyond" in row["failed"] and "ms" not in row
    nested = engines.by_coordinates

    def shifted(case, device, dtype=torch.float32):
        net, loss = nested(case, device, dtype)
        return net, lambda net, points: 1.001 * loss(net, points)

    monkeypatch.setattr(engines, "by_coordinates", shifted)
    assert "beyond" in bench.coordinates(case, CPU, 0.001)["failed"]


def test_unknown_names(capsys):
    for options, message in (
        (["--against", "eagre"], "eager"),
        (["--sizes", "4"], "8 or more"),
        (["--six", "x"], "--six: expected sizes"),
    ):
        assert main(["bench", "grid", *options, "--device", "cpu", "--out", "."]) == 1
        assert message in capsys.readouterr().err
