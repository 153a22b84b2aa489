"""One file a trained run for `benchmarks/results/<card>/training/recipes`: recipe_result.py OUT RUN [RUN ...]

Of each run folder, `summary.json`, `config.yaml` and `metrics.csv` become `OUT/<name of the run>.json`: what was asked
for, the last errors, and the curve of loss and errors against seconds of `fit`. Errors against files, which
`benchmarks/against_files.py` leaves in the run's folder, are copied along.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import yaml

ERROR = "val/rel_l2/"
KEPT = ("device", "seed", "steps", "seconds", "loss", "rel_l2", "backend", "precision", "versions")


def result(run: Path) -> dict[str, Any]:
    """The contents of the file.

    Raises:
        FileNotFoundError: the run has no `summary.json`: it has not ended.
    """
    summary = json.loads((run / "summary.json").read_text())
    config = yaml.safe_load((run / "config.yaml").read_text())
    found: dict[str, Any] = {"pde": config["pde"], "problem": config.get("problem"), "model": config["model"]}
    found |= {key: summary[key] for key in KEPT}
    found["goal"] = config["training"].get("target_error")
    found["options"] = {key: config[key] for key in ("options", "network", "training")}
    against = run / "against_files.json"
    if against.is_file():
        found["against_files"] = json.loads(against.read_text())
    return found | {"columns": ["seconds", "step", "loss", "rel_l2"], "curve": curve(run / "metrics.csv")}


def curve(path: Path) -> list[list[Any]]:
    """[seconds of fit, step, loss, {field: relative L2}] at each comparison with the reference."""
    rows = []
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            errors = {key[len(ERROR) :]: float(value) for key, value in row.items() if key.startswith(ERROR) and value}
            if errors and row.get("perf/seconds"):
                loss = float(row["loss/total"]) if row.get("loss/total") else None
                rows.append([round(float(row["perf/seconds"]), 2), int(row["step"]), loss, errors])
    return rows


def text(found: dict[str, Any]) -> str:
    """JSON with a line for each point of the curve."""
    head = json.dumps({key: value for key, value in found.items() if key != "curve"}, indent=2)
    lines = ",\n".join(f"    {json.dumps(row)}" for row in found["curve"])
    return f'{head[:-2]},\n  "curve": [\n{lines}\n  ]\n}}'


def main(out: str, *runs: str) -> None:
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    for run in map(Path, runs):
        (folder / f"{run.name}.json").write_text(text(result(run)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
