"""A head that is an affine map of the points, as one layer: its weights are its jets at the origin.

Inputs that are shifted and scaled coordinate by coordinate, x_j -> a_j x_j + s_j, before an affine layer (W, b) have
kernels: the layer is W_hj a_j and b_h + sum_j W_hj s_j, the gradient of W is G_hj a_j + g_h s_j. Others run in torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import lru_cache
from types import ModuleType
from typing import Any

import torch
import triton
from torch import Tensor
from torch.nn import functional

from pinnfuse.jets.closed_form import ClosedForm, closed_form
from pinnfuse.jets.gradients import Gradients
from pinnfuse.jets.program import Affine, Program, Scale, Shift
from pinnfuse.jets.space import ChannelSpace
from pinnfuse.kernels.jets import cache
from pinnfuse.kernels.launching import launch


class Folded:
    """W [width, d] and b [width] of a program of affine operations, padded with zeros, and the way back."""

    def __init__(self, program: Program, operands: Sequence[Tensor], width: int):
        self.program, self.units, d = program, program.output_width, program.widths[0]
        self._operands = [t.detach() for t in operands]
        sizes = tuple(operands[i].numel() for op in program.operations[:-1] for i in op.operands)
        self._small = _small(program, sizes)
        if self._small:
            like = operands[0]
            self.weight, self.bias = like.new_empty(width, d), like.new_empty(width)
            self._launch("fold", width, self._layer(), self.weight, self.bias)
        else:
            padded = functional.pad(self._forward()[0].data[:, 0], (0, width - self.units))
            self.weight, self.bias = padded[1:].t().contiguous(), padded[0]

    def adjoint(self, weight: Tensor, bias: Tensor, gradients: Gradients) -> None:
        """Add to `gradients`, from those of the layer: weight [d, width], bias [width]."""
        last, before = self.program.operations[-1], self.program.operations[:-1]
        if self._small and not any(gradients.wanted[i] for op in before for i in op.operands):
            if gradients.wanted[last.operands[0]]:
                out = torch.empty_like(self._operands[last.operands[0]], memory_format=torch.contiguous_format)
                self._launch("unfold", len(bias), (weight, bias), out, out, *weight.stride())
                gradients.add(last.operands[0], out)
            if len(last.operands) > 1 and gradients.wanted[last.operands[1]]:
                gradients.add(last.operands[1], bias[: self.units])
            return
        rows = torch.cat([bias[None], weight])[:, None, : self.units]
        jets, (_, values, saved) = self._jets, self._forward()
        jets.adjoint(rows, values, saved, self._operands, gradients)

    @property
    def _jets(self) -> ClosedForm:
        return closed_form(self.program, _first_order(self.program.widths[0]), ())

    def _forward(self) -> tuple[Any, Any, Any]:
        like = self._operands[0]
        return self._jets.forward(_origin(self.program.widths[0], like.dtype, like.device), self._operands)

    def _layer(self) -> tuple[Tensor, Tensor]:
        own = [self._operands[i].contiguous() for i in self.program.operations[-1].operands]
        return own[0], own[-1]  # a layer without bias does not read it

    def _launch(self, name: str, width: int, given: Sequence[Tensor], out: Tensor, bias: Tensor, *strides: int) -> None:
        d, before = self.program.widths[0], [i for op in self.program.operations[:-1] for i in op.operands]
        args = (*given, *(self._operands[i].contiguous() for i in before), out, bias, self.units, width)
        kernel = getattr(_module(self._small), f"{name}_kernel")
        with torch.cuda.device(out.device) if out.is_cuda else nullcontext():
            launch(kernel, (triton.cdiv(width, 64),), (*args, *(strides or (1, 1))), {"D": d}, num_warps=2)


@lru_cache(maxsize=64)
def _module(source: str) -> ModuleType:
    return cache.load(source, "folding")


@lru_cache(maxsize=64)
def _small(program: Program, sizes: tuple[int, ...]) -> str:
    """The two kernels, "" for a program that they cannot run. `sizes`: of the operands before the layer."""
    *before, last = program.operations
    d, sizes_left, lines = program.widths[0], list(sizes), ["a = one", "s = one - one"]
    pointers: list[str] = []
    if not isinstance(last, Affine) or last.inputs != (len(before),):
        return ""
    for i, op in enumerate(before):
        if not isinstance(op, Shift | Scale) or op.inputs != (i,):
            return ""
        amount = repr(float(op.amount if isinstance(op, Shift) else op.factor))
        if op.operands:
            size, name = sizes_left.pop(0), f"o{len(pointers)}_ptr"
            if size not in (1, d):
                return ""
            pointers.append(name)
            amount = f"tl.load({name} + j)" if size == d else f"tl.load({name})"
        lines += [f"s += {amount}"] if isinstance(op, Shift) else [f"f = one * {amount}", "a *= f", "s *= f"]
    body = "\n        ".join(lines)
    return _SOURCE.format(
        pointers="".join(f"{p}, " for p in pointers),
        affine=body,
        bias="tl.load(b_ptr + h, mask=live, other=0.0)" if len(last.operands) > 1 else "tl.zeros([64], dtype)",
    )


_SOURCE = '''"""Generated by pinnfuse.kernels.jets; do not edit."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["units", "width", "per_input", "per_unit"])
def fold_kernel(w_ptr, b_ptr, {pointers}weight_ptr, bias_ptr, units, width, per_input, per_unit, D: tl.constexpr):
    """weight [width, D], bias [width] of the layer [units, D] behind x_j -> a x_j + s, zeros behind its units."""
    dtype: tl.constexpr = weight_ptr.dtype.element_ty
    h = tl.program_id(0) * 64 + tl.arange(0, 64)
    live = h < units
    bias = {bias}
    one = tl.full([], 1.0, dtype)
    for j in range(D):
        {affine}
        w = tl.load(w_ptr + h * D + j, mask=live, other=0.0)
        tl.store(weight_ptr + h * D + j, w * a, mask=h < width)
        bias += w * s
    tl.store(bias_ptr + h, bias, mask=h < width)


@triton.jit(do_not_specialize=["units", "width", "per_input", "per_unit"])
def unfold_kernel(g_ptr, b_ptr, {pointers}out_ptr, same_ptr, units, width, per_input, per_unit, D: tl.constexpr):
    """The gradient [units, D] of the layer's weights from those of weight (strides per_input, per_unit) and bias."""
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    h = tl.program_id(0) * 64 + tl.arange(0, 64)
    live = h < units
    bias = tl.load(b_ptr + h, mask=live, other=0.0)
    one = tl.full([], 1.0, dtype)
    for j in range(D):
        {affine}
        g = tl.load(g_ptr + j * per_input + h * per_unit, mask=live, other=0.0)
        tl.store(out_ptr + h * D + j, g * a + bias * s, mask=live)
'''


@lru_cache(maxsize=32)
def _first_order(d: int) -> ChannelSpace:
    return ChannelSpace.spanning(d, [tuple(int(i == j) for i in range(d)) for j in range(d)])


@lru_cache(maxsize=32)
def _origin(d: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """One tensor for all calls: what depends on the points alone is kept by the address of the points."""
    return torch.zeros(1, d, dtype=dtype, device=device)
