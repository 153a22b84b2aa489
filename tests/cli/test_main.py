"""The command itself: its entry point, its help, its errors."""

import os
import re
import signal
from pathlib import Path

import pytest

from pinnfuse.cli import main as module
from pinnfuse.cli.main import main


def test_the_entry_point_exists(root: Path) -> None:
    text = (root / "pyproject.toml").read_text()
    assert re.search(r'^pinnfuse = "pinnfuse\.cli\.main:main"$', text, re.M)
    assert module.main is main


@pytest.mark.parametrize(
    "command",
    [
        ["doctor"],
        ["verify"],
        ["bench"],
        ["bench", "jets"],
        ["bench", "physarum"],
        ["profile", "physarum"],
        ["physarum"],
        [],
    ],
)
def test_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([*command, "--help"])
    assert exit_.value.code == 0
    assert "usage: pinnfuse" in capsys.readouterr().out


def test_no_command_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "versions, card, memory" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [["doctr"], ["verify", "--fast"], ["bench", "jets"], ["bench"]])
def test_a_wrong_command_ends_with_two(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(wrong)
    assert exit_.value.code == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--widths", "64,x"], "--widths: expected positive integers"),
        (["--points", "0"], "--points: expected positive integers"),
        (["--cases", "burger"], "Did you mean 'burgers'"),
        (["--cases", ","], "`cases` must name at least one of navier_stokes"),
        (["--seconds", "0"], "`seconds` must be a positive number; got 0"),
        (["--dtype", "float64", "--precision", "float64,tf32"], "'tf32' needs `dtype` float32"),
        (["--logger", "paper"], "`logger` must be 'wandb'"),
    ],
)
def test_a_wrong_value_is_one_line(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "jets", "--out", str(tmp_path), "--device", "cpu", *options]) == 1
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1


@pytest.mark.parametrize("kind", ["jets", "ops", "grid", "fluid", "physarum"])
def test_results_that_cannot_be_written_are_one_line(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["bench", kind, "--out", str(tmp_path / "file" / "folder"), "--device", "cpu"]) == 1
    assert "Choose a folder that you may write to" in capsys.readouterr().err


def test_sigterm_ends_a_command_as_an_exception_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A spinner hides the cursor until its block ends; workers and parts of files wait for theirs as well."""
    ended = []

    def doctor(options: object) -> int:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            return 0
        finally:
            ended.append(options)

    monkeypatch.setattr(module, "_doctor", doctor)
    with pytest.raises(SystemExit) as exit_:
        main(["doctor"])
    assert exit_.value.code == 128 + signal.SIGTERM and len(ended) == 1
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
