"""`pinnfuse.debug.compare` finds faults that were put there, and none where there are none."""

import pytest
import torch

from pinnfuse import Grid
from pinnfuse.debug import compare
from pinnfuse.grid import laplacian

H = 0.1
GRID = Grid("x y", H, boundary="periodic")


def truth(u):
    return laplacian(u, GRID, backend="torch")


def roll(u):
    return (sum(torch.roll(u, s, d) for s in (1, -1) for d in (-2, -1)) - 4 * u) / H**2


def test_rounding_is_no_fault():
    report = compare(roll, truth, torch.rand(3, 40, 50), h=H)
    assert report and report.smallest is None
    assert [row.dtype for row in report.rows] == ["float64", "float32"]
    assert all(0 < row.constant < 10 and row.ulp > 0 for row in report.rows)
    assert "ok" in str(report) and "input 0: [3, 40, 50]" in str(report)


def test_a_fault_beyond_a_tile_is_found_with_its_size_and_place():
    def faulty(u):
        found = truth(u)
        if u.shape[-1] > 32:
            found[..., 32] *= 1.001  # the first point of a second tile
        return found

    report = compare(faulty, truth, torch.rand(20, 90, dtype=torch.float64), h=H)
    assert not report and report.smallest is not None
    assert report.smallest.dtype == "float64" and report.smallest.shape[-1] == 33
    assert report.smallest.where[-1] == 32
    assert "DIFFERS" in str(report)


def test_a_fault_of_one_precision_is_told_apart():
    def faulty(u):
        return truth(u.bfloat16().float()) if u.dtype == torch.float32 else truth(u)

    report = compare(faulty, truth, torch.rand(16, 16), h=H)
    assert [row.ok for row in report.rows] == [True, False]
    assert report.smallest.dtype == "float32" and max(report.smallest.shape) < 16


def test_nan_is_flagged_with_its_place():
    def faulty(u):
        found = truth(u)
        found[2, 3] = float("nan")
        return found

    report = compare(faulty, truth, torch.rand(16, 16), h=H)
    assert not report.rows[0].ok and "the first at [2, 3]" in report.rows[0].finite
    assert "op has 1 NaN" in str(report)


def test_a_seeded_fault_in_a_kernel_is_found(monkeypatch):
    """A row of the heat kernel at the wall taken for an interior one."""
    pytest.importorskip("triton")
    monkeypatch.setenv("PINNFUSE_INTERPRET", "1")
    from pinnfuse.simulation import heat, steps

    where = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    walls = Grid("x y", H, boundary={"x": "periodic", "y": "neumann"})
    run = lambda b: lambda u: heat(u, walls, diffusivity=0.002, dt=1.0, steps=3, backend=b)  # noqa: E731
    u = torch.rand(20, 24, device=where)
    assert compare(run("triton"), run("torch"), u, h=1.0)
    rows = steps.rows

    def faulty(*arguments):
        found = rows(*arguments).clone()
        found[2 * 24] /= 2  # weight of the neighbour of the first point
        return found

    monkeypatch.setattr(steps, "rows", faulty)
    steps._on_device.cache_clear()
    report = compare(run("triton"), run("torch"), u, h=1.0)
    steps._on_device.cache_clear()
    assert not report and report.rows[0].where[-1] == 0


def test_bad_input():
    with pytest.raises(ValueError, match="they must agree"):
        compare(lambda u: u[:1], truth, torch.rand(8, 8))
    with pytest.raises(ValueError, match="`h` > 0"):
        compare(roll, truth, torch.rand(8, 8), h=0.0)
