"""The import contracts of pyproject.toml hold, and they see through the links to the folders at the root."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDERS = ("pinnfuse", "kernels", "models", "datamodules")


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", program, "--no-cache"]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300)


def test_the_contracts_hold(root: Path) -> None:
    result = lint_imports(root)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("path", "line", "contract"),
    [
        ("kernels/wrong.py", "import pinnfuse.models", "imports point one way"),
        ("pinnfuse/errors.py", "def f():\n    from pinnfuse.kernels import registry", "imports point one way"),
        ("pinnfuse/newcomer.py", "", "imports point one way"),
        ("models/wrong.py", "import triton.language as tl", "only kernels import Triton"),
        ("kernels/wrong.py", "from lightning.pytorch import Trainer", "the core does not import Lightning"),
        ("models/wrong.py", "import pytorch_lightning", "the core does not import Lightning"),
    ],
)
def test_a_violation_is_found(root: Path, tmp_path: Path, path: str, line: str, contract: str) -> None:
    shutil.copy(root / "pyproject.toml", tmp_path)
    for name in FOLDERS:
        shutil.copytree(root / name, tmp_path / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    with open(tmp_path / path, "a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    result = lint_imports(tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"{contract} BROKEN" in result.stdout
    assert Path(path).stem in result.stdout


def test_parts_are_there_after_one_import_and_loaded_when_used(root: Path) -> None:
    program = """
import pinnfuse, sys
assert "lightning" not in sys.modules and "pinnfuse.problems" not in sys.modules
assert pinnfuse.problems.get("heat").name == "heat" and "lightning" not in sys.modules
for name in pinnfuse._PARTS:
    assert getattr(pinnfuse, name).__name__ == f"pinnfuse.{name}"
try:
    pinnfuse.optimisers
except AttributeError as error:
    assert "Did you mean 'optimizers'" in str(error)
"""
    result = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
