"""A program of native operators is one of fused ones after its import line; a backward by hand is in a trace."""

import warnings

import torch

from pinnfuse.compat import flashpde

BEFORE = """
from native import laplacian_2d

u = torch.zeros(20, 30)
u[5:12, 6:20] = 1.0
for _ in range(10):
    u = u + 0.01 * laplacian_2d(u, 0.5, 0.25)
"""
NATIVE = """
def laplacian_2d(u, dx, dy):
    along = lambda dim: u.roll(1, dim) + u.roll(-1, dim) - 2 * u
    return along(-2) / dx**2 + along(-1) / dy**2
"""


def test_only_the_import_changes(tmp_path, monkeypatch):
    (tmp_path / "native.py").write_text(NATIVE)
    monkeypatch.syspath_prepend(tmp_path)
    after = BEFORE.replace("from native import", "from pinnfuse.compat.flashpde import")
    changed = [b for a, b in zip(BEFORE.splitlines(), after.splitlines(), strict=True) if a != b]
    assert changed == ["from pinnfuse.compat.flashpde import laplacian_2d"]
    fields = []
    for program in (BEFORE, after):
        names = {"torch": torch}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # periodic, said once
            exec(program, names)
        fields.append(names["u"])
    assert torch.allclose(*fields, atol=1e-5) and fields[0].dtype == fields[1].dtype
    assert not torch.allclose(fields[0], torch.zeros(20, 30), atol=0.1)


def test_a_backward_by_hand_is_in_the_trace():
    x = torch.randn(100, requires_grad=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as traced:
        flashpde.optimized_function(x).sum().backward()
    assert any("_SwishBackward" in event.key for event in traced.key_averages())
