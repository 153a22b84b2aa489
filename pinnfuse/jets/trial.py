"""Try forward mode on three points before it is trusted: it must agree with nested autograd.

It disagrees where one loss calls the network several times and gets several networks (dropout, noise, a forward that
updates buffers), where a row of the output depends on other rows (batch statistics: the two modes then sum different
terms), and where torch's own forward derivative is wrong. Once per network and structure.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from pinnfuse.jets.forward_mode import forward_mode_outputs
from pinnfuse.jets.nested import nested_outputs
from pinnfuse.jets.space import MultiIndex
from pinnfuse.jets.tracing import fingerprint


def forward_mode_obstacle(net: nn.Module, points: Tensor, indices: tuple[MultiIndex, ...]) -> str:
    """Why forward mode cannot be used for these derivatives of `net`, "" if it can."""
    if isinstance(net, torch.jit.ScriptModule):
        return "forward mode cannot swap the parameters of a scripted module"
    known = _tried.setdefault(net, {})
    key = fingerprint(net)
    if known.get("fingerprint") != key:
        known.clear()
        known["fingerprint"] = key
    if (indices, points.dtype) not in known:
        known[indices, points.dtype] = _compare(net, points, indices)
    return known[indices, points.dtype]


_tried: WeakKeyDictionary[nn.Module, dict] = WeakKeyDictionary()


def _compare(net: nn.Module, points: Tensor, indices: tuple[MultiIndex, ...]) -> str:
    with torch.inference_mode(False):
        few = points.detach()[:3].clone()
        if len(few) == 1:
            few = torch.cat([few, few * 1.01 + 0.01])
        return _compare_on(net, few, indices)


def _compare_on(net: nn.Module, few: Tensor, indices: tuple[MultiIndex, ...]) -> str:
    buffers = [(b, b.clone()) for b in net.buffers()]
    devices = [few.device] if few.is_cuda else []
    with torch.random.fork_rng(devices):
        try:
            with torch.no_grad():
                width = net(few).shape[1]
            requests = [(alpha, column) for alpha in indices for column in range(width)]
            truth = nested_outputs(net, few, requests, _any).detach()
        except Exception:  # what the caller gets wrong shows, and is told, in the call itself
            return ""
        finally:
            _put_back(buffers)
        try:
            with torch.enable_grad():
                got = forward_mode_outputs(net, few, requests, _any).detach()
        except Exception as error:
            return f"torch's forward mode cannot run it ({type(error).__name__}: {str(error).splitlines()[0][:200]})"
        finally:
            _put_back(buffers)
    size = truth.abs().amax(1, keepdim=True).clamp(min=1e-3 * float(truth[torch.isfinite(truth)].abs().max()))
    wrong = ((got - truth).abs() > 0.02 * size).any(1)
    if not bool(wrong.any()):
        return ""
    return (
        f"forward mode and autograd give different derivatives {requests[int(wrong.nonzero()[0])][0]}: the network "
        "is random, or changes its state, or mixes rows (dropout or batch norm in training mode?). net.eval() may help"
    )


def _any(value: Tensor, count: int) -> None:
    """Shapes are checked in the call itself."""


@torch.no_grad()
def _put_back(buffers: list[tuple[Tensor, Tensor]]) -> None:
    for buffer, copy in buffers:
        if not torch.equal(buffer, copy):
            buffer.copy_(copy)
