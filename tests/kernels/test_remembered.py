"""Engines are remembered without their operands: what a later call changes must count."""

import gc
import weakref

import pytest
import torch
from torch import nn

import pinnfuse
from pinnfuse.kernels import jets
from pinnfuse.kernels.jets.totals import totals_kernel

from .cases import PDES, mlp, relative  # noqa: TID251 - this folder, not the library's


def gradients(net, points, backend):
    """Loss and gradients of what is trained."""
    loss_fn = pinnfuse.FusedResidualLoss(PDES["burgers"], backend=backend).to(points.device)
    net.zero_grad(set_to_none=True)
    loss = loss_fn(net, points)
    loss.backward()
    return [loss.detach(), *(p.grad for p in net.parameters() if p.requires_grad)]


def check(net, points, least=2e-6):
    found, truth = (gradients(net, points, backend) for backend in ("triton", "torch"))
    for a, b in zip(found, truth, strict=True):
        assert relative(a, b) < least


def changed_in_place(net):
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(1.1).add_(0.01)


def through_data(net):
    for p in net.parameters():
        p.data = p.data + 0.02


def frozen(net):
    net[0].weight.requires_grad_(False)
    net[2].bias.requires_grad_(False)


def tied(net):
    net[4].weight = net[2].weight


def views(net):
    flat = torch.cat([p.detach().reshape(-1) for p in net.parameters()])
    for p, part in zip(
        net.parameters(), flat.split([p.numel() for p in net.parameters()]), strict=True
    ):  # as flat optimisers do
        p.data = part.view(p.shape)


def turned(net):
    net[2].weight = nn.Parameter(net[2].weight.detach().t().contiguous().t())


CHANGES = [changed_in_place, through_data, frozen, tied, views, turned]


@pytest.mark.gpu
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_counts_in_the_one_kernel(change, scaled, where):
    net, points = Scaled(width=64).to(where), torch.rand(1000, 2, device=where)
    used = net if scaled else net.net
    check(used, points, 1e-5)
    change(net.net)
    check(used, points, 1e-5)
    check(used, torch.rand(77, 2, device=where), 1e-5)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_between_calls_counts(change, where):
    net, points = mlp(2, [8, 8, 8], 1, nn.Tanh).to(where), torch.rand(20, 2, device=where)
    check(net, points)
    assert len(jets._known) == 1
    change(net)
    check(net, points)
    check(net, torch.rand(7, 2, device=where))  # another number of points


class Scaled(nn.Module):
    """Inputs that are shifted and scaled before the first layer, by buffers, numbers, or trained."""

    def __init__(self, trained=False, bias=True, one=False, width=8):
        super().__init__()
        shape = (1,) if one else (2,)
        shift, scale = torch.rand(shape), 0.5 + torch.rand(shape)
        if trained:
            self.shift, self.scale = nn.Parameter(shift), nn.Parameter(scale)
        else:
            self.register_buffer("shift", shift)
            self.register_buffer("scale", scale)
        self.net = mlp(2, [width] * (2 if width == 8 else 3), 1, nn.Tanh)
        if not bias:
            self.net[0] = nn.Linear(2, 8, bias=False)

    def forward(self, x):
        return self.net(2 * ((x - self.shift) * self.scale) - 0.5)


@pytest.mark.parametrize("given", [{}, {"trained": True}, {"bias": False}, {"one": True}])
def test_scaled_inputs(given, where):
    net, points = Scaled(**given).to(where), torch.rand(20, 2, device=where)
    check(net, points)
    with torch.no_grad():
        net.scale.mul_(1.5)  # counts in the next call
    check(net, points)
    net.net[0].weight.requires_grad_(False)
    check(net, points)
    check(net.double(), points.double(), 1e-12)


def test_another_dtype_has_an_engine_of_its_own(where):
    net, points = mlp(2, [8, 8], 1, nn.Tanh).to(where), torch.rand(20, 2, device=where)
    check(net, points)
    check(net.double(), points.double(), 1e-12)
    check(net.float(), points)
    assert len(jets._known) == 2


def test_networks_of_one_structure_share_an_engine_that_keeps_neither(where):
    points = torch.rand(20, 2, device=where)
    one, two = (mlp(2, [8, 8], 1, nn.Tanh).to(where) for _ in range(2))
    check(one, points)
    check(two, points)
    assert len(jets._known) == 1
    gone = weakref.ref(one[0].weight)
    del one
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("permuted", [False, True])
def test_totals(permuted, where):
    programs, first, inputs, head, d, layers, points = 5, 64, 160, 352, 3, 2, 77
    columns = head + layers * 4096
    x, weights = torch.randn(programs, columns, device=where), torch.rand(2, device=where)
    out, means, loss = x.new_full((columns,), torch.nan), x.new_full((2,), torch.nan), x.new_full((), torch.nan)
    numbers = (programs, columns, first, inputs, head, points)
    constants = {"EQUATIONS": 2, "D": d, "PERMUTED": permuted, "COLUMNS": 32, "ROWS": 64}
    totals_kernel[(-(-columns // 32) + 1,)](x, weights, out, means, loss, *numbers, **constants)
    total = x.sum(0)
    unit = [p // 32 * 32 + (p % 8) // 2 * 8 + (p % 32) // 8 * 2 + p % 2 for p in range(64)]
    order = [unit[unit[p]] for p in range(64)] if permuted else list(range(64))
    truth = total.clone()
    truth[inputs : inputs + 64 * d] = total[inputs : inputs + 64 * d].view(d, 64).t().reshape(-1)
    hidden = total[head:].view(layers, 64, 64)
    expected = torch.empty_like(hidden)
    expected[..., order] = hidden
    truth[head:] = expected.reshape(-1)
    torch.testing.assert_close(out, truth)
    torch.testing.assert_close(means, total[first : first + 2] / points)
    torch.testing.assert_close(loss, (means * weights).sum())
