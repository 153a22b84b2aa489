"""Launches that trade speed for memory, or the kernels of a stack for those of a schedule."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from pinnfuse.kernels.jets import ScheduledEngine, TritonEngine, choices, config
from pinnfuse.kernels.jets.buffers import Buffers

from .cases import PDES, errors, mlp  # noqa: TID251 - this folder, not the library's


@pytest.mark.parametrize("changes", [{"thrifty": True}, {"scheduled": True}], ids=str)
def test_as_accurate_as_float32(changes, where, monkeypatch):
    pde, engines, buffers = PDES["kdv"], set(), []

    def seen(kind):
        old = kind.loss

        def loss(self, *args):
            engines.add(kind)
            return old(self, *args)

        monkeypatch.setattr(kind, "loss", loss)

    seen(TritonEngine)
    seen(ScheduledEngine)
    monkeypatch.setattr(choices, "known", lambda name: replace(config.launch(32, 4, "float32"), **changes))
    monkeypatch.setattr("pinnfuse.kernels.jets.buffers.SCRATCH_BYTES", 1)  # one tile at a time
    of = Buffers.of
    monkeypatch.setattr(Buffers, "of", lambda *args: buffers.append(of(*args)) or buffers[-1])
    net = mlp(2, [17, 20, 9, 30], 1, nn.SiLU)
    points = torch.rand(70, 2, device=where)
    eager = errors(pde, net, points, "autograd")
    for key, error in errors(pde, net, points, "triton").items():
        assert error <= max(3e-6, 10 * eager[key]), key
    assert engines == {ScheduledEngine if "scheduled" in changes else TritonEngine}
    assert all(len(b.z) == 2 and len(b.a) == 4 for b in buffers)
    assert bool(buffers) == ("thrifty" in changes)
