"""CUDA graphs: what the kernels must not keep alive, and capture with replay on a card."""

import gc

import pytest
import torch
from torch import nn

import pinnfuse
from pinnfuse import models
from pinnfuse.models.transform import OutputTransform

from .cases import PDES, mlp, relative  # noqa: TID251 - this folder, not the library's


def accumulator(p: nn.Parameter):
    """The node that adds to `p.grad`; it lives as long as any graph that reaches it, and remembers its stream."""
    return p.view_as(p).grad_fn.next_functions[0][0]


def test_a_loss_that_is_gone_leaves_no_node_behind(where):
    """Else the next capture would add gradients on the stream of the loss before it."""
    net = mlp(2, [8], 1, nn.Tanh).to(where)
    p = net[0].weight
    loss = pinnfuse.FusedResidualLoss(PDES["burgers"], backend="triton").to(where)(net, torch.rand(8, 2, device=where))
    accumulator(p).metadata["mark"] = True
    loss.backward()
    assert accumulator(p).metadata.get("mark")  # the loss still holds its graph
    gc.disable()  # nobody may have to wait for the collector
    try:
        del loss
        assert not accumulator(p).metadata.get("mark")
    finally:
        gc.enable()


@pytest.mark.gpu
@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("kind", ["plain", "modified_mlp", "piratenet"])
def test_capture_and_replay_on_other_points(kind, hard, where):
    pde = PDES["burgers"]
    net = mlp(2, [64, 64, 64], 1, nn.Tanh) if kind == "plain" else models.get(kind)(2, 1, width=64, depth=2)
    if hard:
        net = OutputTransform(net, {"u": "-sin(pi*x) + t*(1 - x**2)*u"}, "u", "tx")
    net = net.to(where)
    loss_fn = pinnfuse.FusedResidualLoss(pde, backend="triton").to(where)
    points, others = torch.rand(4096, 2, device=where), torch.rand(4096, 2, device=where)

    def step() -> torch.Tensor:
        net.zero_grad(set_to_none=True)
        loss = loss_fn(net, points)
        loss.backward()
        return loss.detach()

    step()  # compiles; its graph is gone when it returns
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    captured = [p.grad for p in net.parameters()]
    points.copy_(others)
    graph.replay()
    found = [loss.clone(), *(g.clone() for g in captured)]
    truth = [step(), *(p.grad for p in net.parameters())]
    for a, b in zip(found, truth, strict=True):
        assert relative(a, b) < 1e-6


@pytest.mark.gpu
def test_memory_does_not_grow_with_the_number_of_points(where):
    pde, net = PDES["navier_stokes"], mlp(3, [64, 64, 64], 3, nn.Tanh).to(where)
    loss_fn = pinnfuse.FusedResidualLoss(pde, backend="triton").to(where)
    peaks = []
    for count in (2**20, 2**22):
        points = torch.rand(count, 3, device=where)
        loss_fn(net, points[:64]).backward()
        torch.cuda.synchronize()
        gc.collect()  # what tests before left and a collection in the step below would free
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        loss_fn(net, points).backward()
        torch.cuda.synchronize()
        peaks.append(torch.cuda.max_memory_allocated() - before)
    assert peaks[1] < 1.05 * peaks[0], peaks
