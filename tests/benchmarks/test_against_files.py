"""Errors against named files: the reference solution itself scores no more than the floor of a file."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from pinnfuse import problems
from pinnfuse.training.main import main as train
from pinnfuse.training.trained import keep_weights, trained

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "reference"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("against_files", ROOT / "benchmarks" / "against_files.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Solution(nn.Module):
    """The reference as a network."""

    def __init__(self, problem):
        super().__init__()
        self.problem, self.none = problem, nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, x):
        return torch.as_tensor(self.problem.reference.solution(x.numpy()))


CASES = {
    "burgers": ("burgers", {}, 1e-10),
    "kdv": ("kdv", {"d": 0.0025}, 1e-5),
    "cavity": ("navier_stokes", {"reynolds": 100.0}, 2e-3),
}


@pytest.mark.parametrize("case", CASES)
def test_the_solution_scores_the_floor(case, script):
    if not SHARED.is_dir():
        pytest.skip("no collected reference files here")
    pde, options, most = CASES[case]
    problem = problems.get(pde, **options)
    names = [name for name in script.files_of(problem) if (SHARED / name).is_file()]
    assert names
    for name in names:
        data = script.read(SHARED / name)
        found = script.errors(problem, Solution(problem), name, thinned(script, name, data))
        assert max(found.values()) < most, (name, found)


def thinned(script, name, data):
    """Every eighth point of the axes, for a test's time."""
    axes, fields = script.table(name, data)
    cut = {field: values[::8, ::8] for field, values in fields.items()}
    names = ("x", "y") if "v" in cut else ("t", "x")
    return dict(zip(names, (axis[::8] for axis in axes), strict=True)) | cut


def test_weights_that_are_kept_give_the_fields_of_the_run(tmp_path, script):
    run, kept = tmp_path / "run", tmp_path / "kept"
    options = ["--training.interior", "64", "--max_steps", "6", "--network.width", "6", "--logger", "csv"]
    quick = ["--record.figures", "false", "--record.speedup_steps", "0"]
    assert train(["--pde", "burgers", "--out", str(run), *options, *quick]) == 0
    keep_weights(run, kept)
    points = torch.rand(20, 2, dtype=torch.float64)
    assert torch.equal(trained(run)[1](points), trained(kept)[1](points))
    assert sum(path.stat().st_size for path in kept.rglob("*")) < 100_000
    x, t = np.linspace(-1, 1, 5), np.linspace(0, 1, 3)
    (tmp_path / "burgers").mkdir()
    np.savez(tmp_path / "burgers" / "burgers_exact_recomputed.npz", t=t, x=x, u=-np.sin(np.pi * x) + 0 * t[:, None])
    found = script.compare(tmp_path, kept)["burgers/burgers_exact_recomputed.npz"]
    assert 0 < found["u"] < 2 and found["floor"] < 1e-14


def test_time_windows_are_put_together(tmp_path):
    options = ["--training.interior", "32", "--max_steps", "3", "--network.width", "5", "--logger", "csv"]
    quick = ["--record.figures", "false", "--record.speedup_steps", "0", "--training.windows", "2"]
    assert train(["--pde", "heat", "--out", str(tmp_path / "run"), *options, *quick]) == 0
    keep_weights(tmp_path / "run", tmp_path / "kept")
    problem, net = trained(tmp_path / "kept")
    assert len(net.nets) == 2
    assert net(torch.rand(9, len(problem.pde.coordinates), dtype=torch.float64)).isfinite().all()


def test_a_folder_without_a_checkpoint_is_named(tmp_path):
    (tmp_path / "config.yaml").write_text("pde: burgers\n")
    with pytest.raises(ValueError, match="there is no checkpoint in"):
        trained(tmp_path)
