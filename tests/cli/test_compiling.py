"""`pinnfuse compile`: in a process of its own, since this one may interpret kernels."""

import os
import subprocess
import sys

from pinnfuse.cli.main import main


def test_fills_the_cache(tmp_path, root):
    command = [sys.executable, "-c", "import sys; from pinnfuse.cli.main import main; sys.exit(main())", "compile"]
    command += ["--card", "a100", "--pde", "burgers", "--width", "16", "--depth", "1", "--points", "100"]
    environment = os.environ | {"TRITON_INTERPRET": "0", "PYTHONPATH": str(root), "CUDA_VISIBLE_DEVICES": ""}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path / "triton"), "PINNFUSE_CACHE": str(tmp_path / "sources")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    found = list((tmp_path / "triton").glob("*/*.cubin"))
    assert f"{len(found)} kernels in {tmp_path}" in done.stdout
    assert {"input_kernel", "output_kernel", "sum_rows_kernel"} <= {path.stem for path in found}


def test_an_unknown_card_is_one_line(capsys):
    assert main(["compile", "--card", "h20", "--pde", "burgers"]) == 1
    assert "h200" in capsys.readouterr().err


def test_a_wrong_number_of_points_is_one_line(capsys):
    assert main(["compile", "--card", "h200", "--pde", "burgers", "--points", "-5"]) == 1
    assert "--points: expected a positive integer; got -5" in capsys.readouterr().err


def test_an_unknown_precision_is_one_line(capsys):
    assert main(["compile", "--card", "h200", "--pde", "burgers", "--precision", "fp8"]) == 1
    assert "pinnfuse compile: `precision` must be" in capsys.readouterr().err
