"""Choices of the Hopper kernels; their results on a card (the interpreter does not run Gluon)."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

import pinnfuse
from pinnfuse.kernels.jets import config
from pinnfuse.kernels.jets.config import Launch

from .cases import PDES, errors, mlp  # noqa: TID251 - this folder, not the library's


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("width", [64, 128, 192, 256, 384])
def test_a_ring_leaves_room_for_every_resident_program(width, parts):
    launch = Launch(ring=(99, 99))
    for channels in range(1, 6):
        blocks = config.ring(launch, width, channels, parts)
        for ring in blocks:
            assert 2 <= ring <= channels * (width // 64) + 1
            if ring > 2:  # two are the least that work
                assert launch.resident * ((width // 64 + ring) * parts * 8192 + 1024) <= 228 * 1024


def test_a_ring_of_one_means_none():
    assert config.ring(Launch(), 128, 4, 2) == (1, 1)


@pytest.mark.parametrize(
    ("depth", "channels", "parts", "tiles", "expected"),
    [
        (5, 4, 2, 64, True),
        (5, 4, 2, 1024, True),
        (5, 4, 1, 1024, False),  # several tiles a multiprocessor, half precision: chained kernels are faster
        (5, 3, 1, 1024, True),
        (1, 4, 2, 64, False),  # the compiler fails
        (2, 4, 2, 64, True),
        (6, 4, 2, 64, False),  # 224 KB of weights and jets
        (6, 4, 1, 64, True),
    ],
)
def test_one_kernel_where_it_fits_and_pays(depth, channels, parts, tiles, expected):
    launch = config.launch(64, channels, "float32" if parts == 2 else "tf32", hopper=True)
    assert config.fused(launch, depth, channels, parts, tiles, 132) is expected
    assert not config.fused(replace(launch, fused=False), depth, channels, parts, tiles, 132)


@pytest.mark.parametrize(
    ("shape", "changes"),
    [
        ((20, 4, "float32"), {}),
        ((50, 4, "float32"), {"lean": True}),
        ((100, 3, "float32"), {"ring": (4, 4)}),
        ((128, 4, "bf16x3"), {"ring": (4, 4), "lean": True}),
        ((128, 5, "float32"), {}),
        ((512, 4, "tf32"), {"ring": (8, 4)}),
        ((64, 11, "float32"), {"scheduled": True}),
        ((256, 12, "float32", True), {"ring": (4, 4), "output": 4}),
        (
            (64, 102, "float32", True),
            {"rows": 64, "ring": (4, 4), "thrifty": True, "groups": 4, "scratch": 900 * 2**20},
        ),
        ((128, 4, "float64"), {}),
    ],
    ids=str,
)
def test_what_was_measured_on_hopper_cards_is_their_default(shape, changes):
    assert config.launch(*shape, hopper=True) == replace(config.launch(*shape), **changes)


@pytest.mark.gpu
@pytest.mark.parametrize("width", [64, 128, 256])
@pytest.mark.parametrize("name", ["burgers", "navier_stokes", "kdv"])
def test_as_accurate_as_float32(name, width):
    pde = PDES[name]
    net = mlp(len(pde.coordinates), [width] * 4, len(pde.fields), nn.Tanh)
    for n in (1, 70, 5000, 20000):
        points = (torch.rand(n, len(pde.coordinates), dtype=torch.float64) * 2 - 0.5).cuda().float()
        eager = errors(pde, net, points, "autograd")
        for key, error in errors(pde, net, points, "triton").items():
            assert error <= max(3e-6, 10 * eager[key]), (n, key)


@pytest.mark.gpu
@pytest.mark.parametrize("width", [64, 128])
def test_point_weights_and_residuals(width):
    pde = PDES["navier_stokes"]
    net = mlp(3, [width] * 4, 3, nn.Tanh).cuda()
    points = torch.rand(3000, 3, device="cuda")
    weights = torch.rand(3000, 3, device="cuda", requires_grad=True)
    found = []
    for backend, dtype in (("triton", torch.float32), ("torch", torch.float64)):
        other, w = copy.deepcopy(net).to(dtype), weights.detach().to(dtype).requires_grad_()
        loss = pinnfuse.FusedResidualLoss(pde, backend=backend).cuda().to(dtype)(other, points.to(dtype), w)
        loss.backward()
        found.append([loss.detach(), w.grad, *(p.grad for p in other.parameters())])
    for mine, exact in zip(*found, strict=True):
        assert (mine.double() - exact).norm() <= 1e-5 * exact.norm()
