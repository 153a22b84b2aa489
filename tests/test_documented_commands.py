"""Every `pinnfuse ...` and `python train.py ...` in the README and the docs is understood by its parser."""

import re
import shlex
from pathlib import Path

import pytest

from pinnfuse.cli.main import _parser, main

BLOCK = re.compile(r"^```sh\n(.*?)^```", re.M | re.S)


def commands(root: Path, program: str) -> list[str]:
    found = []
    for path in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        for block in BLOCK.findall(path.read_text(encoding="utf-8")):
            lines = block.replace("\\\n", " ").splitlines()
            found += [part.strip() for line in lines for part in line.split(" && ") if part.startswith(program)]
    return found


def test_pinnfuse_commands(root: Path) -> None:
    found = commands(root, "pinnfuse ")
    assert len(found) >= 6
    for command in found:
        options = shlex.split(command, comments=True)[1:]
        assert _parser().parse_args(options).subcommand == options[0], command


def test_the_quick_path_of_the_readme(root: Path) -> None:
    """doctor, verify, bench, train: in this order. Tests of each run it small."""
    block = next(b for b in BLOCK.findall((root / "README.md").read_text(encoding="utf-8")) if "pinnfuse doctor" in b)
    programs = [" ".join(line.split()[:2]) for line in block.strip().splitlines()]
    order = [p for p in programs if p in ("pinnfuse doctor", "pinnfuse verify", "pinnfuse bench", "python train.py")]
    assert list(dict.fromkeys(order)) == ["pinnfuse doctor", "pinnfuse verify", "pinnfuse bench", "python train.py"]


def test_the_quick_path_runs_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """The CPU's variant of the four commands, verification by a test of its own (tests/cli/test_verify.py)."""
    from pinnfuse.cli import doctor

    monkeypatch.setattr(doctor, "driver", lambda: None)
    monkeypatch.setattr(doctor, "other_installs", lambda: [])
    assert main(["doctor"]) == 0
    small = ["--cases", "burgers", "--widths", "8", "--depths", "1", "--points", "64", "--against", ""]
    assert main(["bench", "jets", *small, "--seconds", "0.01", "--device", "cpu", "--out", str(tmp_path)]) == 0
    assert "burgers" in capsys.readouterr().out
