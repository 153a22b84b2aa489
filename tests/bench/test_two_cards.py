"""`benchmarks/two_cards.py` on two processes at tiny size: it ends, the numbers agree, the report is whole."""

import json
import os
import subprocess
import sys


def test_two_processes(root, tmp_path):
    command = [sys.executable, str(root / "benchmarks" / "two_cards.py"), str(tmp_path), "--device", "cpu", "--quick"]
    command += ["--stages", "equality", "steps", "reduction", "surrogate"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*/two_cards.json")
    report = json.loads(path.read_text())
    assert report["equality"].keys() == {"adam float64", "adam float32"}
    assert all(row["met"] and row["loss"] < 1e-6 for row in report["equality"].values())
    points = {
        (size, name): row["points_per_process"]
        for size in ("one", "two")
        for name, row in report[size]["steps"].items()
    }
    assert points["one", "many"] == points["two", "many"] and points["one", "few"] == 2 * points["two", "few"]
    ratio = report["one"]["steps"]["few"]["ms"] / report["two"]["steps"]["few"]["ms"]
    assert report["ratios"]["steps at few points"] == ratio
    assert report["goals"].keys() == {"steps at many points", "steps at few points", "surrogate"}
    assert report["two"]["reduction"]["bytes"] > 0 and "all-reduce" in report["two"]["steps"]["few"]["how"]
    assert len(list(path.parent.glob("two_cards_step_2_?.*.gz"))) == 2
    assert not (path.parent / "two_cards").exists()
