"""Two variants in one trace."""

import io
import json

import pytest
import torch
from rich.console import Console

from pinnfuse.profiling import compare
from pinnfuse.profiling.comparison import _entries, show


@pytest.fixture(autouse=True)
def nothing_filled(monkeypatch):
    """The NaN that tests write into fresh memory would be operations, too."""
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)


def test_both_ranges_are_in_the_trace(tmp_path):
    x = torch.rand(64, 64)
    found = compare({"one": lambda: x + 1, "three": lambda: (x + 1) * 2 - x}, tmp_path, steps=4, warm_up=1)
    events = json.loads(found.files[0].read_text())["traceEvents"]
    assert {"compare/one", "compare/three"} <= {e.get("name") for e in events}
    counts = {(e.variant, e.name): e.count for e in found.entries}
    wanted = {("one", "aten::add"): 1} | {("three", f"aten::{op}"): 1 for op in ("add", "mul", "sub")}
    assert wanted.items() <= counts.items()
    assert found.entries == sorted(found.entries, key=lambda e: -e.microseconds)
    assert 0 < found.device["one"] <= found.host["one"]
    text = io.StringIO()
    show(found, Console(file=text, width=200))
    assert "aten::add" in text.getvalue()


def test_kernels_belong_to_the_range_they_were_launched_in():
    """The backward launches from a thread of its own."""
    event = lambda name, cat, ts, dur, tid=1, **args: {  # noqa: E731
        "ph": "X", "name": name, "cat": cat, "ts": ts, "dur": dur, "pid": 1, "tid": tid, "args": args,
    }  # fmt: skip
    events = [
        event("compare/a", "user_annotation", 0, 100),
        event("compare/b", "user_annotation", 100.5, 100),
        event("cuLaunchKernel", "cuda_driver", 20, 5, correlation=1),
        event("cuLaunchKernel", "cuda_driver", 150, 5, tid=2, correlation=2),
        event("forward", "kernel", 300, 7, tid=9, correlation=1),
        event("backward", "kernel", 320, 9, tid=9, correlation=2),
        event("stray", "kernel", 330, 9, tid=9, correlation=77),
    ]
    assert [(e.variant, e.name, e.microseconds) for e in _entries(events, 1)] == [
        ("b", "backward", 9),
        ("a", "forward", 7),
    ]


def test_nothing_to_compare(tmp_path):
    with pytest.raises(ValueError, match="at least one"):
        compare({}, tmp_path)


@pytest.mark.gpu
def test_launches_on_a_card(tmp_path):
    x = torch.rand(64, 64, device="cuda")
    found = compare({"one": lambda: x + 1, "three": lambda: (x + 1) * 2 - x}, tmp_path, device="cuda", steps=4)
    assert found.launches == {"one": 1, "three": 3}
