"""`pinnfuse bench jets`: engines agree with float64, a red check gives no number, and what is written can be read."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sympy
import torch
from PIL import Image

from pinnfuse import BackendUnavailable, FusedResidualLoss
from pinnfuse.bench import Settings, engines, log, measurement, peers, run, suite, timing
from pinnfuse.bench.cases import PDES, Case
from pinnfuse.cli.main import main
from tests.tracking.offline import read

CPU = torch.device("cpu")


def case(name: str, precision: str = "float64") -> Case:
    return Case(name, 8, 3, 40, precision, CPU)


@pytest.mark.parametrize("name", PDES)
def test_the_jets_of_the_peers_are_right(name: str) -> None:
    problem = replace(case(name), depth=1) if name == "poisson_100" else case(name)
    net, (points, _) = problem.network(), problem.inputs(2)
    truth = FusedResidualLoss(problem.pde, backend="autograd").double()(net, points)
    gradients = torch.autograd.grad(truth, list(net.parameters()), allow_unused=True)
    frequencies = problem.frequencies(net)
    loss = peers.torch_jets(problem.plan, problem.kind, frequencies)(list(net.parameters()), points)
    found = torch.autograd.grad(loss, list(net.parameters()), allow_unused=True)
    assert loss.item() == pytest.approx(truth.item(), rel=1e-12)
    for ours, theirs in zip(found, gradients, strict=True):
        if theirs is not None and theirs.any():
            assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-12 * float(theirs.norm()))


@pytest.mark.parametrize("name", ["navier_stokes", "burgers", "kdv", "plate", "poisson_10"])
def test_the_array_code_of_the_peers_holds_for_another_library(name: str) -> None:
    """What jax runs, with numpy in its place."""
    problem = case(name)
    net, (points, _) = problem.network(), problem.inputs(2)
    residuals = sympy.lambdify(problem.plan.arguments, list(problem.plan.residuals), modules="numpy", cse=True)
    weights = [p.detach().numpy() for p in net.parameters()]
    value = peers._jets(problem.plan, np, residuals)(weights, points.numpy())
    truth = FusedResidualLoss(problem.pde, backend="autograd").double()(net, points)
    assert value == pytest.approx(truth.item(), rel=1e-12)


def test_jax_gives_the_same() -> None:
    pytest.importorskip("jax", reason="jax is not installed")
    problem = case("burgers", "float32")
    step, _ = engines.build("jax", problem)
    assert measurement._error(step, problem.inputs(1)[0], measurement._truth(problem, problem.inputs(1)[0])) < 1e-5


@pytest.mark.parametrize(("order", "z"), [(k, z) for k in range(5) for z in (-1.3, 0.2)])
def test_derivatives_of_tanh(order: int, z: float) -> None:
    x = sympy.Symbol("x")
    exact = float(sympy.diff(sympy.tanh(x), x, order).subs(x, z))
    assert peers._tanh(torch.tanh(torch.tensor(z, dtype=torch.float64)), 4)[order].item() == pytest.approx(exact)


def test_counted_work() -> None:
    problem = Case("navier_stokes", 128, 6, 65536, "float32", CPU)
    hidden = 3 * 4 * 5 * 2 * 128**2 * 65536  # products of the hidden layers, four channels
    assert hidden < problem.flop < 1.1 * hidden
    assert problem.bytes == 4 * (65536 * 3 + 2 * sum(p.numel() for p in problem.network().parameters()))


def test_results_are_written_and_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = "--cases burgers,kdv --widths 8 --depths 2 --points 64 --against autograd,jax --seconds 0.01 --device cpu"
    assert main(["bench", "jets", *options.split(), "--out", str(tmp_path)]) == 0
    (folder,) = tmp_path.iterdir()
    report = json.loads((folder / "jets.json").read_text())
    assert {"date", "machine", "versions", "commit", "settings", "rows"} == set(report)
    assert [(row["name"], row["engine"]) for row in report["rows"]] == [
        (name, engine) for name in ("burgers", "kdv") for engine in ("pinnfuse", "autograd", "jax")
    ]
    for row in report["rows"]:
        if "skipped" in row:
            assert row["engine"] == "jax" and "ms" not in row
            continue
        assert row["error"] <= row["bound"]
        assert 0 < row["ms"]["q20"] <= row["ms"]["median"] <= row["ms"]["q80"] and row["ms"]["count"] >= 5
        assert row["engine"] == "jax" or row["memory_mb"] > 0
    with Image.open(folder / "jets.png") as image:
        assert image.size[0] > 1000 and len(image.convert("L").getcolors() or ()) > 20
    assert "burgers 8x2" in capsys.readouterr().out


def test_a_red_check_gives_no_number(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    build = engines.build

    def wrong(name: str, problem: Case, net: torch.nn.Module | None = None):
        step, path = build(name, problem, net)
        if name != "autograd" or problem.precision == "float64":
            return step, path

        def off(points: torch.Tensor):
            loss, gradients = step(points)
            return loss, [*gradients[:-1], 1.01 * gradients[-1]]

        return off, path

    monkeypatch.setattr(engines, "build", wrong)
    settings = Settings(["burgers"], [8], [2], [64], seconds=0.01)
    ours, peer = run(settings, tmp_path)
    assert "ms" in ours and "failed" not in ours
    assert "ms" not in peer and "beyond" in peer["failed"]


def test_a_wrong_reference_stops_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    build = engines.build

    def wrong(name: str, problem: Case, net: torch.nn.Module | None = None):
        step, path = build(name, problem, net)
        return (lambda x: (2 * step(x)[0], step(x)[1])) if name == "torch" else step, path

    monkeypatch.setattr(engines, "build", wrong)
    with pytest.raises(RuntimeError, match="disagrees with nested autograd"):
        measurement._truth(case("burgers"), case("burgers").inputs(1)[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cases": ["burger"]}, "Did you mean 'burgers'"),
        ({"cases": ["burgers"], "against": ["autograd", "jaxx"]}, "Did you mean 'jax'"),
        ({"cases": ["burgers"], "dtype": "float16"}, "dtype"),
        ({"cases": ["burgers"], "precisions": ["float8"]}, "precision"),
        ({"cases": ["burgers"], "backend": "cuda"}, "backend"),
    ],
)
def test_settings_name_what_is_wrong(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--suite quik", "unknown `suite` 'quik'. Did you mean 'quick'"),
        ("--suite quick --widths 8 --against=", "got --widths, --against beside it"),
        ("--suite quick --ready 0", "`ready` must be 1 or more"),
        ("--suite quick --ready 2 --ready-seconds 0", "`ready_seconds` positive"),
        ("--suite quick --ready-seconds 10", "--ready-seconds: only counts with --ready 2 or more"),
    ],
)
def test_options_that_do_not_go_together(options: str, message: str, tmp_path: Path, capsys) -> None:
    assert main(["bench", "jets", *options.split(), "--device", "cpu", "--out", str(tmp_path)]) == 1
    assert message in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_what_ran_out_of_memory_beside_others_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    build, calls = engines.build, []

    def short(name: str, problem: Case, net: torch.nn.Module | None = None):
        calls.append(name)
        if name == "autograd" and net is None and calls.count("autograd of the case") == 0:
            calls.append("autograd of the case")
            raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 72348000000 bytes.")
        return build(name, problem, net)

    monkeypatch.setattr(engines, "build", short)
    settings = Settings(["burgers"], [8], [1], [32], seconds=0.01)
    found = measurement.Measurement(next(settings.expand()), settings)
    found.add("pinnfuse")
    assert found.add("autograd")["skipped"] == "out of memory" and list(found.steps) == ["pinnfuse"]
    ours, peer = found.timed()
    assert ours["engine"] == "pinnfuse" and peer["engine"] == "autograd"
    assert "ms" in ours and "ms" in peer and "skipped" not in peer


def test_a_suite_gets_ready_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = "--suite quick --ready 2 --seconds 0.01 --device cpu"
    assert main(["bench", "jets", *options.split(), "--out", str(tmp_path)]) == 0
    (folder,) = tmp_path.iterdir()
    report = json.loads((folder / "jets.json").read_text())
    entries = suite.get("quick")
    assert report["suite"] == "quick" and report["ready"] == {"processes": 2, "seconds": 600.0}
    assert [one["cases"] for one in report["settings"]] == [[entry.name] for entry in entries]
    rows = report["rows"]
    expected = [(entry.name, engine) for entry in entries for engine in ("pinnfuse", *entry.against)]
    assert [(row["name"], row["engine"]) for row in rows] == expected
    assert all("ms" in row or (row["engine"] == "jax" and "skipped" in row) for row in rows)
    for entry in entries:
        case = [row for row in rows if entry.describes(row)]
        assert case[0]["goals"] == [goal.judged(case) for goal in entry.goals]
        assert not any("goals" in row for row in case[1:])
    assert "1x torch.compile: not measured" in capsys.readouterr().out
    assert log._flat(rows[2])["goals"].endswith("; 1x torch.compile: not measured")
    assert "times_ours" not in rows[0] and rows[1]["times_ours"] > 0


def test_every_entry_of_a_suite_is_one_case() -> None:
    for name, entries in suite.SUITES.items():
        cases = [case for entry in entries for case in entry.settings("cpu", 0.1).expand()]
        assert len(cases) == len(entries) == len(set(entries)), name
        rows = [measurement.blank(case, "pinnfuse") for case in cases]
        for k, row in enumerate(rows):
            assert [entry.describes(row) for entry in entries] == [j == k for j in range(len(entries))]
    assert len(suite.SUITES["goals"]) == 20


def test_goals_are_judged_by_the_rows_of_a_case() -> None:
    def row(engine: str, ms: float, **more: object) -> dict:
        return {"engine": engine, "ms": {"median": ms}, **more}

    rows = [row("pinnfuse", 3.0, graph_ms={"median": 2.0}, memory_mb=50.0), row("torch-compile", 6.0), row("jax", 5.0)]
    wanted = {
        (2.0, "ms"): (2.0, True),  # of the captured step
        (1.9, "ms"): (2.0, False),
        (50.0, "MB"): (50.0, True),
        (49.0, "MB"): (50.0, False),
        (2.5, "best peer"): (2.5, True),
        (2.6, "best peer"): (2.5, False),
        (3.0, "torch.compile"): (3.0, True),
        (5.0, "nested"): (None, None),
    }
    for (bound, of), (measured, met) in wanted.items():
        text = f"{bound:g} {of}" if of in ("ms", "MB") else f"{bound:g}x {of}"
        assert suite.Goal(bound, of).judged(rows) == {"text": text, "measured": measured, "met": met}
        assert suite.Goal(bound, of).judged(rows[1:])["met"] is None


def test_engines_take_turns() -> None:
    order: list[str] = []
    steps = {name: lambda x, name=name: order.append(name) for name in ("a", "b")}
    found = timing.times(steps, [torch.zeros(1)], CPU, 0.001)
    assert all(len(samples) >= 5 for samples in found.values())
    rounds = [name for i, name in enumerate(order) if i == 0 or order[i - 1] != name]
    assert rounds[:6] == ["a", "b"] * 3


def test_a_step_that_queues_its_work_is_waited_for_once_a_round() -> None:
    calls: list[str] = []

    def step(points: torch.Tensor) -> None:
        calls.append("step")

    step.wait = lambda: calls.append("wait")  # type: ignore[attr-defined]
    found = timing.times({"queued": step}, [torch.zeros(1)], CPU, 0.001)["queued"]
    rounds = "".join("s" if call == "step" else "w" for call in calls).split("sw")  # the first step of a round alone
    assert len(rounds) > 5 and 5 <= len(found) <= 10
    assert calls[-1] == "wait"


def test_rows_reach_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    (row,) = run(Settings(["burgers"], [8], [1], [32], against=[], seconds=0.01), tmp_path, logger="wandb")
    (folder,) = tmp_path.iterdir()
    found = read(folder)
    assert found.config["settings"][0]["cases"] == ["burgers"]
    (logged,) = found.rows
    table = json.loads((found.files / logged["rows.path"]).read_text())
    (values,) = table["data"]
    assert len(values) == len(table["columns"]) == logged["rows.ncols"]
    kept = dict(zip(table["columns"], values, strict=True))
    assert kept["name"] == "burgers" and kept["points"] == 32 and kept["ms_median"] == row["ms"]["median"]
    with Image.open(found.files / logged["picture.path"]) as image, Image.open(folder / "jets.png") as picture:
        assert image.tobytes() == picture.tobytes()


def test_an_explicit_backend_that_cannot_run_is_a_skipped_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PINNFUSE_INTERPRET", raising=False)
    with pytest.raises(BackendUnavailable):
        engines.build("triton", case("burgers"))
    (row,) = run(Settings(["burgers"], [8], [1], [32], backend="triton", against=[], seconds=0.01), tmp_path)
    assert "cannot run" in row["skipped"] and "ms" not in row
