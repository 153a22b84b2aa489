"""Closed-form jets of a recognised network in plain torch, and their adjoint, for one chunk of points at a time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from pinnfuse.jets.composition import Composition, Saved, term_weight
from pinnfuse.jets.gradients import Gradients
from pinnfuse.jets.program import Add, Affine, Concatenate, Multiply, Operation, Program, Scale, Select, Shift, Unary
from pinnfuse.jets.space import ChannelSpace
from pinnfuse.jets.values import AffineJet, DenseJet, JetValue
from pinnfuse.jets.workspace import Workspace


class ClosedForm:
    """Forward and adjoint of one program in one channel space, for one chunk of points at a time."""

    def __init__(self, program: Program, space: ChannelSpace, coefficients: Sequence[float]):
        self.program = program
        self.channels = len(space)
        self._composition = Composition(space, coefficients)
        self._products = [
            [(t.factors[0], t.factors[1], term_weight(t, coefficients)) for t in terms] for terms in space.product
        ]
        self._passive = _passive(program)
        self._activity: tuple[tuple[bool, ...], list[bool]] | None = None
        self._kept: OrderedDict[Any, tuple[Tensor, Tensor, dict[int, JetValue]]] = OrderedDict()
        self._lock = Lock()
        self._rows: dict[tuple[torch.dtype, torch.device], Tensor] = {}
        self._seeds = [
            [(coordinate, 1.0 if slot is None else coefficients[slot]) for coordinate, slot in seed]
            for seed in space.seeds
        ]

    def forward(
        self, points: Tensor, operands: Sequence[Tensor], memory: Workspace | None = None
    ) -> tuple[DenseJet, list[JetValue], dict[int, Saved]]:
        """Jet of the output, and what the adjoint needs; all of it until `memory` is started again."""
        memory = memory or Workspace()
        saved: dict[int, Saved] = {}
        values: list[JetValue] = [self.coordinates(points)]
        known = self._passive_values(points, values[0])
        for i, op in enumerate(self.program.operations):
            if self._passive[i + 1]:
                values.append(known.get(i + 1, values[0]))  # never read where it is not known
            else:
                values.append(self.apply(i, op, [values[j] for j in op.inputs], operands, saved, memory))
        return values[-1].dense(), values, saved

    def adjoint(
        self,
        output_gradient: Tensor,
        values: list[JetValue],
        saved: dict[int, Saved],
        operands: Sequence[Tensor],
        gradients: Gradients,
        memory: Workspace | None = None,
    ) -> None:
        """Add to `gradients` the derivative of `<output_gradient, output jet>`; `output_gradient` is [K, n, out]."""
        memory = memory or Workspace()
        pending = {len(values) - 1: DenseJet(output_gradient)}
        active = self._active(tuple(gradients.wanted))
        for i in reversed(range(len(self.program.operations))):
            op = self.program.operations[i]
            grad = pending.pop(i + 1, None)
            if grad is None or not active[i + 1]:
                continue
            inputs = [values[j] for j in op.inputs]
            need = [active[j] for j in op.inputs]
            for j, g in self._pull_back(i, op, grad, inputs, need, operands, saved, gradients, memory):
                pending[j] = g if j not in pending else DenseJet(pending[j].data + g.data)
            memory.give_back(grad.data, unless=pending.values())

    def _passive_values(self, points: Tensor, coordinates: JetValue) -> dict[int, JetValue]:
        """Jets that depend on nothing but the points (a hard-constraint transform, say), kept while the points stay.

        Only those that other operations read are kept. NumPy or `.data` can write to a tensor without changing its
        version, so points on a CPU are compared too; on a GPU that would synchronise. A CUDA graph may change the
        points behind a tensor's version, so nothing is kept while one is captured.
        """
        if not any(self._passive[1:]):
            return {}
        keep = not (points.is_inference() or (points.is_cuda and torch.cuda.is_current_stream_capturing()))
        version = points._version if keep else None
        key = (points.data_ptr(), version, points.shape, points.stride(), points.dtype, points.device)
        if keep and (found := self._kept.get(key)) and _unchanged(points, found[1]):
            return found[2]
        values: dict[int, JetValue] = {0: coordinates}
        for i, op in enumerate(self.program.operations):
            if self._passive[i + 1]:
                values[i + 1] = self.apply(i, op, [values[j] for j in op.inputs], (), {})
        read = {j for i, op in enumerate(self.program.operations) if not self._passive[i + 1] for j in op.inputs}
        read.add(len(self.program.operations))
        result = {j: value for j, value in values.items() if j in read}
        if keep:
            with self._lock:
                # the points too: their address cannot be given to others meanwhile
                self._kept[key] = (points, points if points.is_cuda else points.clone(), result)
                while sum(_bytes(v) for *_, jets in self._kept.values() for v in jets.values()) > KEPT_BYTES:
                    self._kept.popitem(last=False)
        return result

    def _active(self, wanted: tuple[bool, ...]) -> list[bool]:
        """Which values depend on an operand whose gradient is wanted; the last answer is kept."""
        if (known := self._activity) is not None and known[0] == wanted:
            return known[1]
        active = [False]
        for op in self.program.operations:
            active.append(any(active[j] for j in op.inputs) or any(wanted[o] for o in op.operands))
        self._activity = wanted, active
        return active

    def coordinates(self, points: Tensor) -> AffineJet:
        key = (points.dtype, points.device)
        if key not in self._rows:  # copied to a device once: a CUDA graph cannot hold a copy from the host
            rows = torch.zeros(self.channels - 1, points.shape[1], dtype=torch.float64)
            for k, seed in enumerate(self._seeds):
                for coordinate, coefficient in seed:
                    rows[k, coordinate] = coefficient
            with torch.inference_mode(False):
                self._rows[key] = rows.to(points.device, points.dtype, copy=True)
        return AffineJet(points, self._rows[key])

    # -- forward -------------------------------------------------------------------------------------------------

    def apply(
        self,
        i: int,
        op: Operation,
        x: list[JetValue],
        operands: Sequence[Tensor],
        saved: dict[int, Saved],
        memory: Workspace | None = None,
    ) -> JetValue:
        """The value of one operation; its derivatives are put into `saved`."""
        memory = memory or Workspace()
        match op:
            case Affine():
                weight = operands[op.operands[0]]
                bias = operands[op.operands[1]] if len(op.operands) > 1 else None
                return _affine(x[0], weight, bias, memory)
            case Scale():
                factor = operands[op.operands[0]] if op.operands else op.factor
                return _linear_map(x[0], lambda t: t * factor)
            case Shift():
                amount = operands[op.operands[0]] if op.operands else op.amount
                return _shift(x[0], amount, self.program.widths[i + 1])
            case Select():
                return _linear_map(x[0], lambda t: _select(t, op.columns))
            case Concatenate():
                return _combine(x, lambda parts: torch.cat(parts, -1))
            case Add():
                return _combine(x, lambda parts: torch.add(parts[0], parts[1], alpha=op.sign))
            case Unary():
                result, saved[i] = self._composition.forward(op, x[0], memory)
                return result
            case Multiply():
                return self._multiply_forward(x[0], x[1], memory)

    def _multiply_forward(self, x: JetValue, y: JetValue, memory: Workspace) -> DenseJet:
        a, b = x.channels, y.channels
        jet = memory.jet(a[0], self.channels, *torch.broadcast_shapes(a[0].shape, b[0].shape))
        torch.mul(a[0], b[0], out=jet.channels[0])
        for k, out in enumerate(jet.channels[1:], 1):
            torch.mul(a[0], b[k], out=out).addcmul_(a[k], b[0])
            for i, j, weight in self._products[k]:
                out.addcmul_(a[i], b[j], value=weight)
        return jet

    # -- adjoint -------------------------------------------------------------------------------------------------

    def pull_back(
        self,
        i: int,
        op: Operation,
        grad: Tensor,
        x: list[JetValue],
        need: list[bool],
        operands: Sequence[Tensor],
        saved: dict[int, Saved],
        gradients: Gradients,
    ) -> list[tuple[int, Tensor]]:
        """(value, its gradient [K, n, width]) for the inputs of one operation; operands are added to `gradients`."""
        found = self._pull_back(i, op, DenseJet(grad), x, need, operands, saved, gradients, Workspace())
        return [(j, jet.data) for j, jet in found]

    def _pull_back(
        self,
        i: int,
        op: Operation,
        grad: DenseJet,
        x: list[JetValue],
        need: list[bool],
        operands: Sequence[Tensor],
        saved: dict[int, Saved],
        gradients: Gradients,
        memory: Workspace,
    ) -> list[tuple[int, DenseJet]]:
        match op:
            case Affine():
                weight = operands[op.operands[0]]
                if gradients.wanted[op.operands[0]]:
                    gradients.add_weight(op.operands[0], grad, x[0])
                if len(op.operands) > 1 and gradients.wanted[op.operands[1]]:
                    gradients.add_points(op.operands[1], grad.channels[0], operands[op.operands[1]])
                return [(op.inputs[0], _times(grad, weight, memory))] if need[0] else []
            case Scale():
                factor = operands[op.operands[0]] if op.operands else op.factor
                if op.operands and gradients.wanted[op.operands[0]]:
                    total = sum(g * c for g, c in zip(grad.channels, x[0].channels, strict=True))
                    assert isinstance(total, Tensor) and isinstance(factor, Tensor)
                    gradients.add_points(op.operands[0], total, factor)
                return [(op.inputs[0], _fit_width(DenseJet(grad.data * factor), x[0].width))] if need[0] else []
            case Shift():
                if op.operands and gradients.wanted[op.operands[0]]:
                    gradients.add_points(op.operands[0], grad.channels[0], operands[op.operands[0]])
                return [(op.inputs[0], _fit_width(grad, x[0].width))] if need[0] else []
            case Select():
                if not need[0]:
                    return []
                back = grad.data.new_zeros(*grad.data.shape[:-1], x[0].width)
                index = _index(op.columns, back.device)
                return [(op.inputs[0], DenseJet(back.index_add_(-1, index, grad.data)))]
            case Concatenate():
                parts = grad.data.split([v.width for v in x], -1)
                return [(j, DenseJet(g)) for j, g, n in zip(op.inputs, parts, need, strict=True) if n]
            case Add():
                signs = (1, op.sign)
                return [
                    (j, _fit_width(grad if sign == 1 else DenseJet(-grad.data), v.width))
                    for j, v, sign, n in zip(op.inputs, x, signs, need, strict=True)
                    if n
                ]
            case Unary():
                return [(op.inputs[0], self._composition.adjoint(grad, x[0], saved[i], memory))] if need[0] else []
            case Multiply():
                return self._multiply_adjoint(op, grad, x, need, memory)

    def _multiply_adjoint(
        self, op: Multiply, grad: DenseJet, x: list[JetValue], need: list[bool], memory: Workspace
    ) -> list[tuple[int, DenseJet]]:
        results: list[tuple[int, DenseJet]] = []
        for mine, other in ((0, 1), (1, 0)):
            if not need[mine]:
                continue
            b = x[other].channels
            out = memory.jet(grad.data, *grad.data.shape)
            torch.mul(grad.data, b[0], out=out.data)
            for k, g in enumerate(grad.channels[1:], 1):
                out.channels[0].addcmul_(g, b[k])
                for i, j, weight in self._products[k]:
                    pair = (i, j)
                    out.channels[pair[mine]].addcmul_(g, b[pair[other]], value=weight)
            results.append((op.inputs[mine], _fit_width(out, x[mine].width)))
        return results


def _passive(program: Program) -> list[bool]:
    """Which values depend on the points alone."""
    passive = [True]
    for op in program.operations:
        passive.append(not op.operands and all(passive[j] for j in op.inputs))
    return passive


def _unchanged(points: Tensor, copy: Tensor) -> bool:
    return points is copy or points.is_cuda or torch.equal(points, copy)


KEPT_BYTES = 64 * 2**20
"""Memory for passive jets of one program: those of the point sets that a training loop goes round."""


def _bytes(x: JetValue) -> int:
    return x.data.nbytes if isinstance(x, DenseJet) else x.value.nbytes + x.rows.nbytes


@lru_cache(maxsize=64)
def closed_form(program: Program, space: ChannelSpace, coefficients: tuple[float, ...]) -> ClosedForm:
    """The propagation rules of a program, compiled once."""
    return ClosedForm(program, space, coefficients)


def _affine(x: JetValue, weight: Tensor, bias: Tensor | None, memory: Workspace) -> JetValue:
    if isinstance(x, AffineJet):
        value = x.value @ weight.t() if bias is None else torch.addmm(bias, x.value, weight.t())
        return AffineJet(value, x.rows @ weight.t())
    out = _times(x, weight.t(), memory)
    if bias is not None:
        out.channels[0].add_(bias)
    return out


def _times(x: DenseJet, matrix: Tensor, memory: Workspace) -> DenseJet:
    """All rows in one product with [in, out]."""
    k, n, _ = x.data.shape
    out = memory.jet(x.data, k, n, matrix.shape[1])
    torch.mm(x.flat, matrix, out=out.flat)
    return out


def _linear_map(x: JetValue, f) -> JetValue:
    return AffineJet(f(x.value), f(x.rows)) if isinstance(x, AffineJet) else DenseJet(f(x.data))


def _shift(x: JetValue, amount: Tensor | float, width: int) -> JetValue:
    if isinstance(x, AffineJet):
        return AffineJet(x.value + amount, x.rows.expand(-1, width))
    data = x.data.expand(-1, -1, width).clone()
    data[0] += amount
    return DenseJet(data)


def _combine(x: Sequence[JetValue], f) -> JetValue:
    if all(isinstance(v, AffineJet) for v in x):
        return AffineJet(f([v.value for v in x]), f([v.rows for v in x]))  # type: ignore[union-attr]
    return DenseJet(f([dense(v) for v in x]))


def dense(x: JetValue) -> Tensor:
    """[K, n, width]."""
    return x.dense().data


def _select(t: Tensor, columns: tuple[int, ...]) -> Tensor:
    start, stop = columns[0], columns[-1] + 1
    if columns == tuple(range(start, stop)):
        return t[..., start:stop]
    return t.index_select(-1, _index(columns, t.device))


@lru_cache(maxsize=256)
def _index(columns: tuple[int, ...], device: torch.device) -> Tensor:
    """Copied to a device once: a CUDA graph cannot hold a copy from the host."""
    return torch.tensor(columns, device=device)


def _fit_width(gradient: DenseJet, width: int) -> DenseJet:
    return gradient if gradient.width == width else DenseJet(gradient.data.sum(-1, keepdim=True))
