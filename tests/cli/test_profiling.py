"""`pinnfuse profile ops` and `profile train`, small."""

import json

import pytest

from pinnfuse.cli.main import main


def names(path):
    return {event.get("name") for event in json.loads(path.read_text())["traceEvents"]}


def test_ops(tmp_path, capsys):
    command = ["profile", "ops", "--size", "32", "--device", "cpu", "--steps", "2", "--out", str(tmp_path)]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "forward peak" in out and "launches" in out and "aten::" in out
    assert {"compare/eager-roll", "compare/pinnfuse"} <= names(tmp_path / "ops.pt.trace.json")


def test_train(tmp_path, capsys):
    command = ["profile", "train", "--pde", "heat", "--device", "cpu", "--steps", "1", "--warm_up", "1"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    assert "train/gradient" in capsys.readouterr().out
    parts = {"train/points", "train/loss", "train/gradient", "train/update"}
    assert parts <= names(tmp_path / "train.pt.trace.json")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["ops", "--operator", "laplace"], "--operator: unknown"),
        (["ops", "--size", "2"], "--size"),
        (["train", "--logger", "csv"], "--logger"),
        (["train", "--pde", "heap"], "unknown PDE"),
    ],
)
def test_bad_options(options, message, tmp_path, capsys):
    assert main(["profile", *options, "--device", "cpu", "--out", str(tmp_path)]) == 1
    assert message in capsys.readouterr().err
