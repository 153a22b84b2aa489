"""The accuracy table of docs/training.md from `summary.json` files: table.py [benchmarks/results/*/training]"""

from __future__ import annotations

import json
import sys
from pathlib import Path

JOINT = ("velocity", "h")  # metrics of several fields at once, shown where there is one


def rows(folder: Path) -> list[str]:
    lines = []
    for path in sorted(folder.glob("*.json")):
        summary = json.loads(path.read_text(encoding="utf-8"))
        if "rel_l2" not in summary:  # of another library, or steps per second
            continue
        metric = next((name for name in JOINT if name in summary["rel_l2"]), next(iter(summary["rel_l2"])))
        error, machine = summary["rel_l2"][metric], folder.parent.name.replace("_", " ").replace("-", " ")
        machine += ", 1 thread" if "1 thread" in summary["device"] else ""
        lines.append(
            f"| {summary['pde']} / {summary['problem']} | {metric} | {error:.1e} | {summary['steps']:,} | "
            f"{summary['seconds']:.0f} s | {machine} |"
        )
    return lines


if __name__ == "__main__":
    print("| problem | field | relative L2 | steps | time of fit | machine |\n| --- | --- | --- | --- | --- | --- |")
    here = Path(__file__).parent / "results"
    for folder in map(Path, sys.argv[1:]) if sys.argv[1:] else sorted(here.glob("*/training")):
        print("\n".join(rows(folder)))
