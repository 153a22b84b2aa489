"""Convection and diffusion through the generated kernels, as an autograd function."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from pinnfuse.first_order import USE_TORCH, first_order_only
from pinnfuse.grid.ghosts import Wall, table
from pinnfuse.grid.transport_reference import Transport


def fused(f: Tensor, c: Tensor, transport: Transport) -> Tensor:
    """The operator; `f` `[..., *space]`, `c` `[..., components, *space]`."""
    if torch.is_grad_enabled() and (f.requires_grad or c.requires_grad):
        return _Flow.apply(f, c, transport)
    return _launch(f, c, transport)


def _launch(f: Tensor, c: Tensor, transport: Transport) -> Tensor:
    from pinnfuse.kernels.grid.run_flow import forward

    out = torch.empty(f.shape, dtype=f.dtype, device=f.device)
    if out.numel():
        forward(transport.flow, _numbers(transport, f), *_flat(transport, f, c), _flat_scalar(transport, out))
    return out


class _Flow(torch.autograd.Function):
    """The kernels."""

    @staticmethod
    def forward(ctx, f: Tensor, c: Tensor, transport: Transport) -> Tensor:
        ctx.transport = transport
        ctx.save_for_backward(f, c)
        return _launch(f, c, transport)

    @staticmethod
    @first_order_only("convection, diffusion", USE_TORCH)
    def backward(ctx, gradient: Tensor):
        from pinnfuse.kernels.grid.run_flow import backward

        transport: Transport = ctx.transport
        f, c = ctx.saved_tensors
        need_f, need_c = ctx.needs_input_grad[:2]
        grad_f = torch.empty(f.shape, dtype=f.dtype, device=f.device) if need_f else None
        grad_c = torch.empty(c.shape, dtype=c.dtype, device=c.device) if need_c else None
        if f.numel() and (need_f or need_c):
            flat_f, flat_c = _flat(transport, f, c)
            backward(
                transport.flow,
                _numbers(transport, f),
                _flat_scalar(transport, gradient),
                flat_f,
                flat_c,
                None if grad_f is None else _flat_scalar(transport, grad_f),
                None if grad_c is None else _flat_vector(transport, grad_c),
            )
        return grad_f, grad_c, None


def _flat(transport: Transport, f: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    return _flat_scalar(transport, f), _flat_vector(transport, c)


def _flat_scalar(transport: Transport, f: Tensor) -> Tensor:
    return f.reshape(-1, 1, *f.shape[-transport.grid.dimension :])


def _flat_vector(transport: Transport, c: Tensor) -> Tensor:
    d = transport.grid.dimension
    return c if c.dim() == d + 2 else c.reshape(-1, *c.shape[-d - 1 :])


def _numbers(transport: Transport, like: Tensor) -> Tensor:
    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    return _on_device(transport, dtype, like.device)


@lru_cache(maxsize=256)
def _on_device(transport: Transport, dtype: torch.dtype, device: torch.device) -> Tensor:
    """1/h per axis, then the tables of ghost points, in the order of `Flow.table`."""
    flow = transport.flow
    found = [1.0 / h for h in reversed(transport.grid.spacing)]
    for k in reversed(range(flow.dimension)):
        found += table(transport.ghosts_f[k], flow.count_f, flow.depth)
        if flow.limited:
            for wall in transport.walls[k] or (Wall(), Wall()):
                found += [float(wall.extrapolated), wall.factor]
        else:
            found += table(transport.ghosts_c[k], flow.count_c, flow.depth)
    return torch.tensor(found, dtype=torch.float64).to(device=device, dtype=dtype)
