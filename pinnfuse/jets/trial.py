"""Try forward mode on a few points before it is trusted: it must agree with nested autograd, gradients included.

It disagrees where one loss calls the network several times and gets several networks (dropout, noise, a forward that
updates buffers), where a row of the output depends on other rows (batch statistics: the two modes then sum different
terms), and where torch's own forward derivative is wrong or cannot be differentiated again. Once per network and
structure.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from pinnfuse.jets.forward_mode import forward_mode_outputs
from pinnfuse.jets.nested import call, nested_outputs
from pinnfuse.jets.space import MultiIndex
from pinnfuse.jets.tracing import fingerprint
from pinnfuse.precision import no_autocast


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


POINTS = 32  # torch.cdist takes another kernel from 26 rows on


_tried: WeakKeyDictionary[nn.Module, dict] = WeakKeyDictionary()


def _compare(net: nn.Module, points: Tensor, indices: tuple[MultiIndex, ...]) -> str:
    with torch.inference_mode(False), no_autocast(points.device.type):
        few = points.detach()[:POINTS].clone()
        if len(few) == 1:
            few = torch.cat([few, few * 1.01 + 0.01])
        return _compare_on(net, few, indices)


def _compare_on(net: nn.Module, few: Tensor, indices: tuple[MultiIndex, ...]) -> str:
    buffers = [(b, b.clone()) for b in net.buffers()]
    devices = [few.device] if few.is_cuda else []
    with torch.random.fork_rng(devices):
        try:
            with torch.no_grad():
                width = call(net, few).shape[1]
            requests = [(alpha, column) for alpha in indices for column in range(width)]
            truth, true_gradient = _with_gradient(nested_outputs(net, few, requests, _any), net)
        except ValueError as error:
            if isinstance(error.__cause__, RuntimeError):  # of `call`
                raise
            return ""
        except Exception:  # what the caller gets wrong shows, and is told, in the call itself
            return ""
        finally:
            _put_back(buffers)
        try:
            with torch.enable_grad():
                got, gradient = _with_gradient(forward_mode_outputs(net, few, requests, _any), net)
        except Exception as error:
            changing = any(m.training and next(m.buffers(recurse=False), None) is not None for m in net.modules())
            hint = "; net.eval() may help, if batch norm is the reason" if changing else ""
            what = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
            return f"torch's forward mode cannot run it ({what}){hint}"
        finally:
            _put_back(buffers)
    wrong = _differ(got, truth)
    if bool(wrong.any()):
        return (
            f"forward mode and autograd give different derivatives {requests[int(wrong.nonzero()[0])][0]}: the network "
            "is random, or changes its state, or mixes rows (dropout or batch norm in training mode?). net.eval() may "
            "help"
        )
    if len(gradient) and bool(_differ(gradient, true_gradient).any()):
        return "forward mode and autograd give different gradients of its parameters"
    return ""


def _differ(got: Tensor, truth: Tensor) -> Tensor:
    """Which rows differ by more than 2 % of their largest entry."""
    finite = truth[torch.isfinite(truth)].abs()
    least = 1e-3 * float(finite.max()) if len(finite) else 0.0
    size = truth.abs().amax(1, keepdim=True).clamp(min=least)
    return ((got - truth).abs() > 0.02 * size).any(1)


def _with_gradient(outputs: Tensor, net: nn.Module) -> tuple[Tensor, Tensor]:
    """The outputs, and the parameter gradient [1, P] of a sum that weighs them unevenly."""
    parameters = [p for p in net.parameters() if p.requires_grad]
    if not parameters or not outputs.requires_grad:
        return outputs.detach(), outputs.new_zeros(0, 1)
    weights = torch.linspace(1, 2, outputs.numel(), dtype=outputs.dtype, device=outputs.device).view_as(outputs)
    found = torch.autograd.grad((outputs * weights).sum(), parameters, materialize_grads=True)
    return outputs.detach(), torch.cat([g.flatten() for g in found]).unsqueeze(0)


def _any(value: Tensor, count: int) -> None:
    """Shapes are checked in the call itself."""


@torch.no_grad()
def _put_back(buffers: list[tuple[Tensor, Tensor]]) -> None:
    for buffer, copy in buffers:
        if not torch.equal(buffer, copy):
            buffer.copy_(copy)
