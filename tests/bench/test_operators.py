"""`pinnfuse bench ops`: the engines agree, promises are judged, and what is written can be read."""

import json
import time

import pytest
import torch

from pinnfuse import derivatives
from pinnfuse.bench import operators
from pinnfuse.bench.operator_engines import (
    ENGINES,
    OPERATORS,
    Case,
    applies,
    build,
    by_coordinates,
    network,
    reference,
)
from pinnfuse.cli.main import main

CPU = torch.device("cpu")


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize(
    "n, dimension, dtype", [(20, 2, "float32"), (40, 1, "float64"), (8, 3, "float32"), (20, 2, "float16")]
)
def test_engines_agree_with_float64(operator, n, dimension, dtype):
    """Values and gradients of every engine; Fourier has other numbers, and compile needs a compiler."""
    case = Case(operator, n, 2, dimension=dimension, dtype=dtype)
    inputs, bound = case.inputs(CPU), operators.BOUND[dtype]
    for engine in ENGINES:
        if engine not in ("fourier", "compile", "coordinates"):
            assert operators._error(build(engine, case), case, inputs) < bound
    broken = build("eager-roll", case)
    assert operators._error(lambda *x: broken(*x) * (1 + 50 * bound), case, inputs) > bound
    if applies("fourier", case):
        assert reference(case)(*inputs).shape == build("fourier", case)(*inputs).shape


def test_limited_schemes_have_only_our_paths(tmp_path):
    options = [
        "--sizes",
        "16x2",
        "--small",
        "8",
        "--operators",
        "convection weno5",
        "--against",
        "eager-roll,conv,torch",
    ]
    assert main(["bench", "ops", *options, "--device", "cpu", "--seconds", "0.01", "--out", str(tmp_path)]) == 0
    report = json.loads(next(tmp_path.glob("*/ops.json")).read_text())
    assert [(row["boundary"], row["engine"]) for row in report["rows"]] == [
        ("periodic", "pinnfuse"),
        ("periodic", "torch"),
        ("dirichlet", "pinnfuse"),
    ]
    assert all(row["error"] < operators.BOUND["float32"] and "forward" in row for row in report["rows"])
    assert report["crossover"] == []


def test_fourier_converges_to_the_same():
    """The spacing is 1/2 whatever the number of points, so waves are longer on more points."""
    errors = []
    for n in (16, 32):
        case = Case("laplacian", n, 1)
        u = torch.sin(torch.arange(n) * (2 * torch.pi / n)).expand(1, n, n)
        exact = build("fourier", case)(u)
        errors.append(float((reference(case)(u) - exact).norm() / exact.norm()))
    assert 3.5 < errors[0] / errors[1] < 4.5


@pytest.mark.parametrize("operator", OPERATORS)
def test_nested_autograd_is_the_operator_of_the_network(operator):
    net, points = network(2).double(), torch.rand(5, 2, dtype=torch.float64)
    found = derivatives(net, points, ["u_x", "u_y", "u_xx", "u_yy"], fields="u", coordinates="x y")
    expected = {"laplacian": found["u_xx"] + found["u_yy"], "gradient": torch.stack((found["u_x"], found["u_y"]), 1)}
    torch.testing.assert_close(
        by_coordinates(operator, net, points), expected.get(operator, found["u_x"] + found["u_y"]), check_stride=False
    )


def test_a_report_is_written(tmp_path, capsys):
    options = ["--sizes", "16,16x2,32^1,6^3:float64", "--small", "8,12^1", "--operators", "laplacian"]
    options += ["--against", "eager-roll,coordinates"]
    assert main(["bench", "ops", *options, "--device", "cpu", "--seconds", "0.01", "--out", str(tmp_path)]) == 0
    (folder,) = tmp_path.iterdir()
    report = json.loads((folder / "ops.json").read_text())
    assert (folder / "ops.png").stat().st_size > 1000
    sizes = [(16, 1, 2, "float32"), (16, 2, 2, "float32"), (32, 1, 1, "float32"), (6, 1, 3, "float64")]
    engines = [
        ("periodic", "pinnfuse"),
        ("periodic", "eager-roll"),
        ("periodic", "coordinates"),
        ("dirichlet", "pinnfuse"),
    ]
    assert {
        (*(row[k] for k in ("n", "batch", "dimension", "dtype")), row["boundary"], row["engine"])
        for row in report["rows"]
    } == {
        (*size, *engine) for size in sizes for engine in engines if size[-1] == "float32" or engine[1] != "coordinates"
    }
    for row in report["rows"]:
        assert row["error"] < operators.BOUND[row["dtype"]] and row["memory_mb"] > 0
        if row["engine"] == "coordinates":
            assert row["both_ms"] > 0 and row["times_ours"] > 0 and row["memory_times_ours"] > 1
        else:
            assert row["forward"]["of_copy"] == pytest.approx(row["forward"]["gb_per_s"] / row["copy_gb_per_s"])
    assert [row["size"] for row in report["crossover"]] == ["8", "12^1"] and report["crossover"][0]["torch"] > 0
    assert "6^3:float64" in capsys.readouterr().out


def test_a_wrong_engine_gets_no_number(monkeypatch):
    monkeypatch.setattr(operators, "build", lambda engine, case: lambda f: 1.001 * reference(case)(f))
    (row,) = operators.measure(Case("laplacian", 8, 1), ("eager-roll",), CPU, 0.01, 1.0)
    assert "beyond" in row["failed"] and "forward" not in row
    monkeypatch.setattr(
        operators, "by_coordinates", lambda operator, net, x: net(x)[:, 0] + 1e-3 * (x.dtype == torch.float32)
    )
    (row,) = operators.measure(Case("laplacian", 8, 1), ("coordinates",), CPU, 0.01, 1.0)
    assert "beyond" in row["failed"] and "both_ms" not in row


def test_promises_are_judged():
    def row(engine: str, forward: float, backward: float, launches: int) -> dict:
        parts = {
            name: {"ms": ms, "graph_ms": ms, "launches": launches}
            for name, ms in (("forward", forward), ("backward", backward))
        }
        kind = {
            "operator": "laplacian",
            "n": 2048,
            "batch": 1,
            "boundary": "periodic",
            "dimension": 2,
            "dtype": "float32",
        }
        return kind | {"engine": engine, **parts}

    ours, eager = row("pinnfuse", 1.0, 1.0, 1), row("eager-roll", 2.0, 3.0, 7)
    eager |= {"times_ours": 2.5, "graph_times_ours": 2.5}
    nested = row("coordinates", 1.0, 1.0, 1) | {"memory_times_ours": 40.0}
    large = row("pinnfuse", 1.0, 1.0, 1) | {"n": 8192}
    large["forward"], large["backward"] = {"of_copy": 0.9}, {"of_copy": 0.7}
    elsewhere = [r | {"dimension": 3} for r in (ours, eager)]
    rows = [ours, eager, nested, large, *elsewhere]
    found = {p["promise"]: (p["measured"], p["met"]) for p in operators.promises(rows)}
    assert found == {
        "3.0-4.0x at 2048^2": (2.5, False),
        "3.5x fewer launches": (7.0, True),
        "19.2x per kernel": (3.0, False),
        "37x less memory": (40.0, True),
        "85% of a copy, forward, 8192^2 x 1": (0.9, True),
        "80% of a copy, backward, 8192^2 x 1": (0.7, False),
    }


def test_the_worst_size_judges_small_grids():
    rows = [{"operator": "laplacian", "speedup": s, "of_best": t} for s, t in ((2.0, 0.5), (0.9, 1.05), (1.5, 0.8))]
    slower, chosen = operators.small_promises(rows)
    assert (slower["measured"], slower["met"]) == (0.9, False)
    assert chosen["measured"] == pytest.approx(1 / 1.05) and chosen["met"]
    assert not operators.small_promises([rows[0] | {"of_best": 1.2}])[1]["met"]


def test_times_are_times():
    ms = operators._milliseconds(lambda: time.sleep(0.01), CPU, 0.1)
    assert 9.5 < ms < 15


def test_wrong_options(capsys):
    for options, message in (
        (["--operators", "laplacain"], "Did you mean 'laplacian'"),
        (["--against", "numpy"], "unknown 'numpy'"),
        (["--sizes", "big"], "--sizes: expected sizes such as"),
        (["--sizes", "64^4"], "got '64^4'"),
        (["--sizes", "64:float8"], "dtypes: float32"),
    ):
        assert main(["bench", "ops", *options, "--device", "cpu", "--out", "unused"]) == 1
        assert message in capsys.readouterr().err


def test_short_steps_are_timed_together(monkeypatch):
    """Recording an event takes five times as long as the step here; a stand-in for a card keeps the time."""
    from pinnfuse.bench import timing

    now = [0.0]

    class Event:
        def __init__(self, enable_timing):
            self.at = 0.0

        def record(self):
            now[0] += 0.05
            self.at = now[0]

        def elapsed_time(self, end):
            return end.at - self.at

    def step(_):
        now[0] += 0.01

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    (found,) = timing.times({"": step}, [torch.empty(0)], torch.device("cuda"), 0.01).values()
    assert len(found) >= 5 and all(ms == pytest.approx(0.01 + 0.05 / 4) for ms in found)  # 0.06 ms each at first
