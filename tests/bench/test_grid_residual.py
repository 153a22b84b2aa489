"""`pinnfuse bench grid` on a small case: what is checked before it is timed, and what is written."""

import json

import pytest
import torch

from pinnfuse.bench import grid_residual as bench
from pinnfuse.cli.main import main


@pytest.mark.parametrize("boundary", ["periodic", "walls"])
def test_all_engines_compute_the_same_loss(boundary):
    case = bench.GridCase(boundary, 9, 2)
    (fields,) = case.inputs(torch.device("cpu"), 1, torch.float64)
    loss, gradient = bench.step_of(bench.eager(case))(fields)
    others = [bench.ours(case, "torch", torch.device("cpu"))]
    others += [bench.step_of(bench.roll(case))] if boundary == "periodic" else []
    for step in others:
        found = step(fields)
        torch.testing.assert_close(found[0], loss)
        torch.testing.assert_close(found[1], gradient)


def test_what_is_written(tmp_path):
    arguments = ["--sizes", "8", "--batch", "1", "--device", "cpu", "--seconds", "0.001", "--out", str(tmp_path)]
    assert main(["bench", "grid", *arguments, "--against", "eager,fourier,coordinates"]) == 0
    (path,) = tmp_path.glob("*/grid_residual.json")
    rows = json.loads(path.read_text())["rows"]
    assert [row["engine"] for row in rows] == [
        "pinnfuse", "eager", "fourier", "coordinates", "pinnfuse", "eager", "coordinates",
    ]  # fmt: skip
    for row in rows:
        assert row["engine"] == "coordinates" or row["ms"]["median"] > 0
        assert row["engine"] in ("coordinates", "fourier") or row["error"] <= bench.BOUND


def test_a_wrong_engine_gets_no_number(monkeypatch):
    monkeypatch.setattr(bench, "roll", lambda case: lambda fields: fields.square().sum())
    rows = bench.measure(bench.GridCase("periodic", 8, 1), ("roll",), torch.device("cpu"), 0.001)
    (row,) = (row for row in rows if row["engine"] == "roll")
    assert "beyond" in row["failed"] and "ms" not in row


def test_unknown_names(capsys):
    assert main(["bench", "grid", "--against", "eagre", "--device", "cpu", "--out", "."]) == 1
    assert "eager" in capsys.readouterr().err
