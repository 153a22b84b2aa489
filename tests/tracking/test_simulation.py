"""A flow's numbers in a logger."""

import csv
import math

import pytest
import torch

from pinnfuse import Grid
from pinnfuse.simulation import FluidSimulator
from pinnfuse.tracking import History, follow


def test_the_largest_speed_is_logged(tmp_path):
    grid = Grid("x y", 2 * math.pi / 16, centring="cell", boundary="periodic")
    flow = FluidSimulator(grid, (16, 16), 0.05, dtype=torch.float64)
    flow.set_velocity(lambda x, y: x.cos() * y.sin(), lambda x, y: -x.sin() * y.cos())
    history = History(tmp_path / "flow.csv")
    flow.run(steps=25, dt=0.02, every=10, report=follow(history, dt=0.02))
    history.save()
    rows = list(csv.DictReader((tmp_path / "flow.csv").open()))
    assert [float(row["sim/time"]) for row in rows] == pytest.approx([0.2, 0.4, 0.5])
    speeds = [float(row["sim/max_speed"]) for row in rows]
    assert speeds == sorted(speeds, reverse=True) and speeds[-1] == pytest.approx(flow.max_speed())
    assert float(rows[0]["sim/divergence"]) < 1e-13 and 0 < float(rows[0]["sim/share_of_stable_step"]) < 1
