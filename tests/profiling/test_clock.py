"""The wall clock of the day is no stopwatch: it jumps, and it does not wait for a card."""

import ast
from pathlib import Path


def test_nothing_is_timed_by_time_time(root: Path) -> None:
    for folder in ("pinnfuse", "kernels", "models", "datamodules"):
        for path in (root / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute) and node.attr == "time" and isinstance(node.value, ast.Name):
                    assert node.value.id != "time", (
                        f"{path}:{node.lineno}: use bench.timing, or perf_counter and synchronize"
                    )
