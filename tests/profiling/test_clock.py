"""The wall clock of the day is no stopwatch: it jumps, and it does not wait for a card."""

import ast
from pathlib import Path

FOLDERS = ("pinnfuse", "kernels", "models", "datamodules", "benchmarks", "examples")


def of_the_day(code: str) -> list[int]:
    """Lines that name `time.time`."""
    found = []
    for node in ast.walk(ast.parse(code)):
        attribute = isinstance(node, ast.Attribute) and node.attr == "time" and isinstance(node.value, ast.Name)
        imported = isinstance(node, ast.ImportFrom) and node.module == "time"
        if (attribute and node.value.id == "time") or (imported and any(a.name == "time" for a in node.names)):
            found.append(node.lineno)
    return found


def test_nothing_is_timed_by_time_time(root: Path) -> None:
    files = [root / "train.py", *(path for folder in FOLDERS for path in (root / folder).rglob("*.py"))]
    found = [f"{path}:{line}" for path in files for line in of_the_day(path.read_text(encoding="utf-8"))]
    assert not found, "use bench.timing or bench.benchmark_operator, or perf_counter and synchronize"


def test_what_is_forbidden_is_seen() -> None:
    assert of_the_day("import time\nstart = time.time()") == [2]
    assert of_the_day("from time import time") == [1]
    assert not of_the_day("import time\nstart = time.perf_counter()\nu.time")
