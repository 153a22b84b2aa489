"""The torus: its equations against an exact flow, and the file that starts it."""

import numpy as np
import pytest
import torch
from torch import nn

from pinnfuse import FusedResidualLoss, problems
from pinnfuse.problems.windows import window
from pinnfuse.training.marching import errors


class Vortices(nn.Module):
    def forward(self, p):
        t, x, y = p[:, 0:1], p[:, 1:2], p[:, 2:3]
        u, v, w = torch.cos(x) * torch.sin(y), -torch.sin(x) * torch.cos(y), -2 * torch.cos(x) * torch.cos(y)
        return torch.cat([u, v, w], 1) * torch.exp(-2 * t / 25)


def test_decaying_vortices_solve_it():
    problem = problems.get("navier_stokes", "torus", reynolds=25)
    points = problem.domain.sample(50, dtype=torch.float64)
    net = Vortices()
    assert FusedResidualLoss(problem.pde, "autograd").residuals(net, points).abs().max() < 1e-14
    assert np.allclose(problem.reference.solution(points.numpy()), net(points).numpy(), atol=1e-14)


def written(path, **changes):
    t, x = np.linspace(0, 2, 5), 2 * np.pi * np.arange(8) / 8
    grid = torch.from_numpy(np.stack(np.meshgrid(t, x, x, indexing="ij"), -1).reshape(-1, 3))
    u, v, w = Vortices()(grid).numpy().reshape(5, 8, 8, 3).transpose(3, 0, 1, 2)
    np.savez(path, **({"t": t + 0.05, "x": x, "y": x, "u": u, "v": v, "w": w} | changes))
    return str(path)


def test_a_file_gives_start_and_reference(tmp_path):
    problem = problems.get("navier_stokes", "torus", file=written(tmp_path / "a.npz"), end=2.0, reynolds=25)
    points, values, known = problem.evaluation_points()
    assert known.all() and np.allclose(values, Vortices()(torch.from_numpy(points)).numpy(), atol=1e-12)
    start, data = problem.conditions[0].sample(1000, dtype=torch.float64)
    assert len(start) == 64 and (start[:, 0] == 0).all()
    found = torch.stack([data[f"observed_{name}"] for name in "uvw"], 1)
    assert torch.allclose(found, Vortices()(start))
    assert np.isnan(problem.reference.solution([[0.3, 0.1, 0.0]])).all()  # off the grid


def test_what_is_wrong_with_a_file_is_said(tmp_path):
    def get(**options):
        return problems.get("navier_stokes", "torus", **options)

    with pytest.raises(ValueError, match="torus: there is no file"):
        get(file=str(tmp_path / "none.npz"))
    with pytest.raises(ValueError, match="covers 2 units of time, fewer than `end` = 10"):
        get(file=written(tmp_path / "b.npz"))
    with pytest.raises(ValueError, match=r"w must be finite numbers \(5, 8, 8\); got \(5, 8, 7\)"):
        get(file=written(tmp_path / "c.npz", w=np.zeros((5, 8, 7))), end=1.0)
    (tmp_path / "d.npz").write_bytes(b"no")
    with pytest.raises(ValueError, match="not a readable .npz"):
        get(file=str(tmp_path / "d.npz"))


class Streams(nn.Module):
    def forward(self, p):
        psi = -torch.cos(p[:, 1:2]) * torch.cos(p[:, 2:3]) * torch.exp(-2 * p[:, 0:1] / 25)
        return torch.cat([psi, 2 * psi], 1)


def test_the_same_flow_by_its_stream_function(tmp_path):
    problem = problems.get("navier_stokes", "torus", form="stream", reynolds=25)
    points = problem.domain.sample(50, dtype=torch.float64)
    assert FusedResidualLoss(problem.pde, "autograd").residuals(Streams(), points).abs().max() < 1e-14
    assert np.allclose(problem.reference.solution(points.numpy()), Streams()(points).numpy(), atol=1e-14)
    options = {"file": written(tmp_path / "a.npz"), "end": 2.0, "reynolds": 25}
    read = problems.get("navier_stokes", "torus", form="stream", **options)
    points, values, known = read.evaluation_points()  # psi comes from w, by Fourier modes
    assert known.all() and np.allclose(values, Streams()(torch.from_numpy(points)).numpy(), atol=1e-12)
    start, data = read.conditions[0].sample(1000, dtype=torch.float64)
    assert torch.allclose(torch.stack([data["observed_psi"], data["observed_w"]], 1), Streams()(start))

    class Drifting(nn.Module):  # psi has a constant of its own at each time
        def __init__(self):
            super().__init__()
            self.one = nn.Parameter(torch.ones((), dtype=torch.float64))

        def forward(self, p):
            return Streams()(p) + self.one * torch.cat([p[:, 0:1].sin(), torch.zeros_like(p[:, 0:1])], 1)

    for part in (read, window(read, 0.0, 1.0)):
        found = errors(part, Drifting())
        assert found["stream"] < 1e-7 and found["vorticity"] < 1e-12
    with pytest.raises(ValueError, match="option `form` must be one of 'velocity', 'stream'; got 'vortex'"):
        problems.get("navier_stokes", "torus", form="vortex")
