"""The README's example runs as it stands."""

import re
from pathlib import Path

import pytest


def test_the_example_runs(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", (root / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    assert all(p.grad is not None for p in names["net"].parameters())
    assert "closed form" in capsys.readouterr().out
