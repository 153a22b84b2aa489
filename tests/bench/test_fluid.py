"""`pinnfuse bench fluid` small: what it reports and what it calls met."""

import json

from pinnfuse.bench import fluid
from pinnfuse.cli.main import main


def test_a_small_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fluid, "STEADY", 1e-2)
    assert main(["bench", "fluid", "--taylor_green", "16", "--re100", "8,16", "--re1000", "", "--device", "cpu",
                 "--out", str(tmp_path)]) == 1  # 16 cells do not meet the cavity's goal  # fmt: skip
    (path,) = tmp_path.rglob("fluid.json")
    rows = json.loads(path.read_text())["rows"]
    assert [(r["case"], r["n"], r["dtype"]) for r in rows] == [
        ("taylor_green", 16, "float32"),
        ("taylor_green", 16, "float64"),
        ("cavity Re 100", 8, "float64"),
        ("cavity Re 100", 16, "float64"),
    ]
    h = 2 * 3.141592653589793 / 16
    assert abs(rows[1]["decay_error"] / (h * h / 12) - 1) < 0.05  # that of the second difference
    assert all(row["divergence_in_roundings"] < 50 for row in rows[:2])
    assert rows[3]["centre_line_error"] < rows[2]["centre_line_error"] and rows[3]["order"] > 1
    assert rows[3]["met"] is False and "met" not in rows[2]
    assert "cavity Re 100" in capsys.readouterr().out


def test_odd_sizes_are_refused(tmp_path, capsys):
    assert main(["bench", "fluid", "--re100", "33", "--out", str(tmp_path)]) == 1
    assert "--re100: expected even numbers" in capsys.readouterr().err
