"""Every program of `examples/flashpde` runs, small, and computes what it says."""

import importlib.util
import re
import warnings
from pathlib import Path
from types import ModuleType

import pytest

CALLS = {
    "verify": {"size": 64},
    "benchmark": {"size": 32, "runs": 3},
    "heat": {"n": 16, "steps": 50},
    "matmul": {"m": 20, "k": 12, "n": 9},
    "autograd_function": {"size": 50},
    "batch_solver": {"samples": 3, "size": 16, "runs": 2},
    "custom_operator": {"size": 24},
    "memory_monitor": {"sizes": (16, 32)},
    "adaptive_batch": {"width": 32, "largest": 2**17, "budget": 100_000_000},
    "compare_profiles": {"size": 32, "steps": 2},
    "fluid": {"grid_size": 32, "steps": 20},
}
CHECKS = {
    "verify": lambda ok: ok,
    "benchmark": lambda row: row["max_relative"] < 1e-5,
    "heat": lambda error: error < 1e-6,
    "matmul": lambda error: error < 1e-4,
    "autograd_function": lambda error: error < 1e-6,
    "batch_solver": lambda difference: difference < 1e-6,
    "custom_operator": lambda ok: ok,
    "memory_monitor": lambda rows: rows[0][1].forward > rows[1][1].result > 0,
    "adaptive_batch": lambda found: found[0].limit == "memory" and found[1].limit == "largest",
    "compare_profiles": lambda found: set(found.host) == {"native", "fused"},
    "fluid": lambda found: abs(found[0]) < 1e-3 and found[1] < 1e-4,
}


@pytest.fixture
def folder(root: Path) -> Path:
    return root / "examples" / "flashpde"


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", CALLS)
def test_the_program_runs(name: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = CALLS[name] | ({"folder": str(tmp_path)} if name == "compare_profiles" else {})
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert CHECKS[name](load(folder / f"{name}.py").main(**arguments))
    assert capsys.readouterr().out


def test_every_program_is_run_and_listed(folder: Path) -> None:
    assert {path.stem for path in folder.glob("*.py")} == set(CALLS) == set(CHECKS)
    listed = re.findall(r"^\| `(\w+)\.py`", (folder / "README.md").read_text(encoding="utf-8"), re.M)
    assert sorted(listed) == sorted(CALLS)
