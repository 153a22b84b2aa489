"""Every notebook runs from its first cell to its last, in the interpreter that runs the tests."""

import json
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

NOTEBOOKS = sorted((Path(__file__).resolve().parent.parent / "notebooks").glob("*.ipynb"))
KERNEL = "this-interpreter"


@pytest.fixture
def kernel(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A kernel of this interpreter, whatever kernels and settings of Jupyter the user's home holds."""
    spec = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": KERNEL,
        "language": "python",
    }
    folder = tmp_path / "jupyter" / "kernels" / KERNEL
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps(spec))
    for variable in ("JUPYTER_PATH", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(variable, str(tmp_path / "jupyter"))
    monkeypatch.setenv("PYTHONPATH", str(root))
    monkeypatch.delenv("MPLBACKEND", raising=False)  # the kernel brings its inline backend
    return KERNEL


def execute(notebook: nbformat.NotebookNode, kernel: str, folder: Path) -> nbformat.NotebookNode:
    client = NotebookClient(notebook, kernel_name=kernel, timeout=300, resources={"metadata": {"path": str(folder)}})
    return client.execute()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, kernel: str, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    execute(notebook, kernel, tmp_path)


def test_the_kernel_is_the_running_interpreter(kernel: str, tmp_path: Path) -> None:
    cell = nbformat.v4.new_code_cell("import sys; sys.executable")
    notebook = execute(nbformat.v4.new_notebook(cells=[cell]), kernel, tmp_path)
    assert notebook.cells[0].outputs[0].data["text/plain"] == repr(sys.executable)


def test_a_failing_cell_fails(kernel: str, tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")])
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        execute(notebook, kernel, tmp_path)
