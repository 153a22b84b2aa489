"""The examples of the README and of the docs run as they stand."""

import math
import re
from pathlib import Path

import lightning
import pytest
import torch
from torch.utils.data import DataLoader

from pinnfuse.training.main import main


def test_the_example_runs(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, module, flow = re.findall(
        r"^```python\n(.*?)^```", (root / "README.md").read_text(encoding="utf-8"), re.M | re.S
    )
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    assert all(p.grad is not None for p in names["net"].parameters())
    assert "closed form" in capsys.readouterr().out
    exec(compile(module, "README.md", "exec"), names)
    settings = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    trainer = lightning.Trainer(max_steps=2, enable_model_summary=False, **settings)
    trainer.fit(names["Burgers"](), DataLoader([torch.rand(2)] * 16, batch_size=8))
    assert trainer.global_step == 2
    exec(compile(flow, "README.md", "exec"), names)
    decay = names["flow"].max_speed() / math.exp(-2 * 0.05)
    assert decay == pytest.approx(math.cos(math.pi / 64) ** 2, rel=2e-3)  # the largest at the centres of cells


def test_the_problem_of_ones_own_runs(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (root / "docs" / "your_own_problem.md").read_text(encoding="utf-8")
    code, afterwards, of_a_run, *_ = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    for there, here in (("adam=100, steps=200", "adam=3, steps=3"), ("runs/fisher", str(tmp_path))):
        assert there in code
        code = code.replace(there, here)
    names: dict[str, object] = {}
    exec(compile(code, "your_own_problem.md", "exec"), names)
    assert capsys.readouterr().out.splitlines()[-1].startswith("{'u': ") and (tmp_path / "figures" / "u.png").is_file()
    exec(compile(afterwards.replace("runs/fisher", str(tmp_path)), "your_own_problem.md", "exec"), names)
    points = names["points"]
    torch.testing.assert_close(names["values"]["u"], names["net"](points)[:, 0])
    assert main(["--pde", "heat", "--max_steps", "2", "--logger", "none", "--out", str(tmp_path / "mine")]) == 0
    exec(compile(of_a_run.replace("runs/mine", str(tmp_path / "mine")), "your_own_problem.md", "exec"), names)
    assert names["net"](points).shape == (2, 1)


def test_the_grid_example_runs(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (root / "docs" / "grid.md").read_text(encoding="utf-8")
    code, of_a_network, *_ = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    names: dict[str, object] = {}
    exec(compile(code, "grid.md", "exec"), names)
    assert names["fields"].grad.abs().sum() > 0 and "crank_nicolson" in capsys.readouterr().out
    exec(compile(of_a_network, "grid.md", "exec"), names)
    assert names["net"].weight.grad.abs().sum() > 0
