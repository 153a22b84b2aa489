r"""Closed-form jets of a recognised network in plain torch, and their adjoint.

A dense jet is one tensor [K, n, width]: K channels, n points. Until the first nonlinearity every channel but the
value is the same for all points, so it is carried as one row [K - 1, width] (`AffineJet`): the first layer of a
network costs one product.

Adjoint of `a_k = s' z_k + sum_t c_t s^(q_t) prod z` (bar = derivative of the loss), with P_kq the sum of the products
of q factors in channel k:

    zbar_j  = s' abar_j + sum_k abar_k sum_q s^(q) dP_kq/dz_j
    zbar_0 += s' abar_0 + sum_k abar_k (s'' z_k + sum_q s^(q+1) P_kq)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from pinnfuse.jets.program import Add, Affine, Concatenate, Multiply, Operation, Program, Scale, Select, Shift, Unary
from pinnfuse.jets.space import ChannelSpace, Term
from pinnfuse.jets.unary import Derivatives, unary


@dataclass
class AffineJet:
    """A jet whose derivatives do not depend on the point: value [n, width], rows [K - 1, width]."""

    value: Tensor
    rows: Tensor

    def channels(self) -> list[Tensor]:
        return [self.value, *self.rows.unsqueeze(1).unbind(0)]

    def derivatives(self) -> Tensor:
        """All channels but the value, [K - 1, 1, width]."""
        return self.rows.unsqueeze(1)

    @property
    def width(self) -> int:
        return self.value.shape[-1]


@dataclass
class DenseJet:
    """A jet with every channel at every point: data [K, n, width]."""

    data: Tensor

    def channels(self) -> list[Tensor]:
        return list(self.data.unbind(0))

    def derivatives(self) -> Tensor:
        """All channels but the value, [K - 1, n, width]."""
        return self.data[1:]

    @property
    def width(self) -> int:
        return self.data.shape[-1]


JetValue = AffineJet | DenseJet


@dataclass
class Gradients:
    """Accumulated gradients of the operands; None where none is wanted."""

    wanted: Sequence[bool]
    operands: list[Tensor | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.operands = [None] * len(self.wanted)

    def add(self, position: int, gradient: Tensor) -> None:
        current = self.operands[position]
        self.operands[position] = gradient if current is None else current.add_(gradient)

    def add_weight(self, position: int, grad: Tensor, x: JetValue) -> None:
        """Of `y = x W^T`, for the gradient [K, n, out] of y."""
        self.add(position, _weight_gradient(grad, x))

    def add_points(self, position: int, gradient: Tensor, operand: Tensor) -> None:
        """A gradient [n, width] for each point, of an operand that was broadcast over the points."""
        self.add(position, fit(gradient.sum(0), operand))


class PointGradients(Gradients):
    """Gradients that are not summed over the points: [n, *shape of the operand]."""

    def add_weight(self, position: int, grad: Tensor, x: JetValue) -> None:
        if isinstance(x, DenseJet):
            self.add(position, grad.permute(1, 2, 0) @ x.data.transpose(0, 1))
        else:
            value = grad[0].unsqueeze(2) * x.value.unsqueeze(1)
            self.add(position, value + grad[1:].permute(1, 2, 0) @ x.rows)

    def add_points(self, position: int, gradient: Tensor, operand: Tensor) -> None:
        n = len(gradient)
        self.add(position, gradient.sum_to_size(n, operand.numel()).reshape(n, *operand.shape))


@dataclass(frozen=True)
class _Power:
    """`scale` times a sum of products of q factors, part of one channel.

    `runs` are squares of neighbouring channels (start, stop, weight), `others` (factors, weight).
    """

    channel: int
    q: int
    scale: float
    runs: tuple[tuple[int, int, float], ...]
    others: tuple[tuple[tuple[int, ...], float], ...]


class ClosedForm:
    """Forward and adjoint of one program in one channel space, for one chunk of points at a time."""

    def __init__(self, program: Program, space: ChannelSpace, coefficients: Sequence[float]):
        self.program = program
        self.channels = len(space)
        self.order = space.order

        def weight(term: Term) -> float:
            return term.count * (1.0 if term.coefficient is None else coefficients[term.coefficient])

        self._powers = [
            _power(k, q, [(t.factors, weight(t)) for t in terms if len(t.factors) == q])
            for k, terms in enumerate(space.composition)
            for q in sorted({len(t.factors) for t in terms})
        ]
        self._products = [[(t.factors[0], t.factors[1], weight(t)) for t in terms] for terms in space.product]
        self._passive = _passive(program)
        self._kept: OrderedDict[Any, tuple[Tensor, Tensor, dict[int, JetValue]]] = OrderedDict()
        self._rows: dict[tuple[torch.dtype, torch.device], Tensor] = {}
        self._seeds = [
            [(coordinate, 1.0 if slot is None else coefficients[slot]) for coordinate, slot in seed]
            for seed in space.seeds
        ]

    def forward(self, points: Tensor, operands: Sequence[Tensor]) -> tuple[DenseJet, list[JetValue], dict[int, _Saved]]:
        """Jet of the output, and what the adjoint needs."""
        saved: dict[int, _Saved] = {}
        values: list[JetValue] = [self.coordinates(points)]
        known = self._passive_values(points, values[0])
        for i, op in enumerate(self.program.operations):
            if self._passive[i + 1]:
                values.append(known.get(i + 1, values[0]))  # never read where it is not known
            else:
                values.append(self.apply(i, op, [values[j] for j in op.inputs], operands, saved))
        last = values[-1]
        if isinstance(last, AffineJet):
            last = DenseJet(torch.stack([c.expand_as(last.value) for c in last.channels()]))
        return last, values, saved

    def adjoint(
        self,
        output_gradient: Tensor,
        values: list[JetValue],
        saved: dict[int, _Saved],
        operands: Sequence[Tensor],
        gradients: Gradients,
    ) -> None:
        """Add to `gradients` the derivative of `<output_gradient, output jet>`; `output_gradient` is [K, n, out]."""
        pending: dict[int, Tensor] = {len(values) - 1: output_gradient}
        active = self._active(gradients.wanted)
        for i in reversed(range(len(self.program.operations))):
            op = self.program.operations[i]
            grad = pending.pop(i + 1, None)
            if grad is None or not active[i + 1]:
                continue
            inputs = [values[j] for j in op.inputs]
            need = [active[j] for j in op.inputs]
            for j, g in self.pull_back(i, op, grad, inputs, need, operands, saved, gradients):
                pending[j] = g if j not in pending else pending[j] + g

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
        if keep and key in self._kept and _unchanged(points, self._kept[key][1]):
            return self._kept[key][2]
        values: dict[int, JetValue] = {0: coordinates}
        for i, op in enumerate(self.program.operations):
            if self._passive[i + 1]:
                values[i + 1] = self.apply(i, op, [values[j] for j in op.inputs], (), {})
        read = {j for i, op in enumerate(self.program.operations) if not self._passive[i + 1] for j in op.inputs}
        read.add(len(self.program.operations))
        result = {j: value for j, value in values.items() if j in read}
        if keep:
            # the points too: their address cannot be given to others meanwhile
            self._kept[key] = (points, points if points.is_cuda else points.clone(), result)
            while sum(_bytes(v) for *_, jets in self._kept.values() for v in jets.values()) > KEPT_BYTES:
                self._kept.popitem(last=False)
        return result

    def _active(self, wanted: Sequence[bool]) -> list[bool]:
        """Which values depend on an operand whose gradient is wanted."""
        active = [False]
        for op in self.program.operations:
            active.append(any(active[j] for j in op.inputs) or any(wanted[o] for o in op.operands))
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
        self, i: int, op: Operation, x: list[JetValue], operands: Sequence[Tensor], saved: dict[int, _Saved]
    ) -> JetValue:
        match op:
            case Affine():
                weight = operands[op.operands[0]]
                bias = operands[op.operands[1]] if len(op.operands) > 1 else None
                return _affine(x[0], weight, bias)
            case Scale():
                factor = operands[op.operands[0]] if op.operands else op.factor
                return _linear_map(x[0], lambda t: t * factor)
            case Shift():
                amount = operands[op.operands[0]] if op.operands else op.amount
                return _shift(x[0], amount, self.program.widths[i + 1])
            case Select():
                return _linear_map(x[0], lambda t: _select(t, op.columns))
            case Concatenate():
                return _combine(x, lambda parts: torch.cat(parts, -1), joins_columns=True)
            case Add():
                return _combine(x, lambda parts: torch.add(parts[0], parts[1], alpha=op.sign))
            case Unary():
                result, saved[i] = self._unary_forward(op, x[0])
                return result
            case Multiply():
                return self._multiply_forward(x[0], x[1])

    def _unary_forward(self, op: Unary, x: JetValue) -> tuple[DenseJet, _Saved]:
        z = x.channels()
        s = unary(op.name, op.exponent)(z[0], self.order + 1)
        out = z[0].new_empty(self.channels, *z[0].shape)
        out[0] = _present(s[0])
        if self.channels > 1:
            torch.mul(x.derivatives(), _present(s[1]), out=out[1:])
        products: list[Tensor] = []
        for power in self._powers:
            p = _sum_of_products(power, x, z)
            products.append(p)
            derivative = s[power.q]
            if derivative is not None:
                out[power.channel].addcmul_(derivative, p, value=power.scale)
        return DenseJet(out), _Saved(s, products)

    def _multiply_forward(self, x: JetValue, y: JetValue) -> DenseJet:
        a, b = x.channels(), y.channels()
        value = a[0] * b[0]
        out = value.new_empty(self.channels, *value.shape)
        out[0] = value
        for k in range(1, self.channels):
            torch.addcmul(a[0] * b[k], a[k], b[0], out=out[k])
            for i, j, weight in self._products[k]:
                out[k].addcmul_(a[i], b[j], value=weight)
        return DenseJet(out)

    # -- adjoint -------------------------------------------------------------------------------------------------

    def pull_back(
        self,
        i: int,
        op: Operation,
        grad: Tensor,
        x: list[JetValue],
        need: list[bool],
        operands: Sequence[Tensor],
        saved: dict[int, _Saved],
        gradients: Gradients,
    ) -> list[tuple[int, Tensor]]:
        """Gradients of the inputs (always dense [K, n, width]); operands are added to `gradients`."""
        match op:
            case Affine():
                weight = operands[op.operands[0]]
                if gradients.wanted[op.operands[0]]:
                    gradients.add_weight(op.operands[0], grad, x[0])
                if len(op.operands) > 1 and gradients.wanted[op.operands[1]]:
                    gradients.add_points(op.operands[1], grad[0], operands[op.operands[1]])
                return [(op.inputs[0], grad @ weight)] if need[0] else []
            case Scale():
                factor = operands[op.operands[0]] if op.operands else op.factor
                if op.operands and gradients.wanted[op.operands[0]]:
                    total = sum(g * c for g, c in zip(grad.unbind(0), x[0].channels(), strict=True))
                    assert isinstance(total, Tensor) and isinstance(factor, Tensor)
                    gradients.add_points(op.operands[0], total, factor)
                return [(op.inputs[0], _fit_width(grad * factor, x[0].width))] if need[0] else []
            case Shift():
                if op.operands and gradients.wanted[op.operands[0]]:
                    gradients.add_points(op.operands[0], grad[0], operands[op.operands[0]])
                return [(op.inputs[0], _fit_width(grad, x[0].width))] if need[0] else []
            case Select():
                if not need[0]:
                    return []
                back = grad.new_zeros(*grad.shape[:-1], x[0].width)
                return [(op.inputs[0], back.index_add_(-1, _index(op.columns, grad.device), grad))]
            case Concatenate():
                parts = grad.split([v.width for v in x], -1)
                return [(j, g) for j, g, n in zip(op.inputs, parts, need, strict=True) if n]
            case Add():
                signs = (1, op.sign)
                return [
                    (j, _fit_width(grad if sign == 1 else -grad, v.width))
                    for j, v, sign, n in zip(op.inputs, x, signs, need, strict=True)
                    if n
                ]
            case Unary():
                return [(op.inputs[0], self._unary_adjoint(grad, x[0], saved[i]))] if need[0] else []
            case Multiply():
                return self._multiply_adjoint(op, grad, x, need)

    def _unary_adjoint(self, grad: Tensor, x: JetValue, saved: _Saved) -> Tensor:
        s, z = saved.derivatives, x.channels()
        out = grad * _present(s[1])
        value = out[0]
        if self.channels > 1 and s[2] is not None:
            inner = grad[1] * z[1]
            for g, c in zip(grad[2:].unbind(0), z[2:], strict=True):
                inner.addcmul_(g, c)
            value.addcmul_(s[2], inner)
        for power, product in zip(self._powers, saved.products, strict=True):
            g, derivative, raised = grad[power.channel], s[power.q], s[power.q + 1]
            if raised is not None:
                value.addcmul_(g * raised, product, value=power.scale)
            if derivative is None:
                continue
            scaled = g * derivative
            if power.scale != 1.0:
                scaled *= power.scale
            for start, stop, weight in power.runs:
                out[start:stop].addcmul_(_block(x, start, stop), scaled, value=2 * weight)
            for factors, weight in power.others:
                for position, j in enumerate(factors):
                    others = scaled
                    for other, m in enumerate(factors):
                        if other != position:
                            others = others * z[m]
                    out[j].add_(others, alpha=weight)
        return out

    def _multiply_adjoint(
        self, op: Multiply, grad: Tensor, x: list[JetValue], need: list[bool]
    ) -> list[tuple[int, Tensor]]:
        results: list[tuple[int, Tensor]] = []
        for mine, other in ((0, 1), (1, 0)):
            if not need[mine]:
                continue
            b = x[other].channels()
            out = grad * b[0]
            for k in range(1, self.channels):
                out[0].addcmul_(grad[k], b[k])
                for i, j, weight in self._products[k]:
                    pair = (i, j)
                    out[pair[mine]].addcmul_(grad[k], b[pair[other]], value=weight)
            results.append((op.inputs[mine], _fit_width(out, x[mine].width)))
        return results


@dataclass
class _Saved:
    """Derivatives of the activation at z_0, and the sums of products P_kq."""

    derivatives: Derivatives
    products: list[Tensor]


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


def _power(channel: int, q: int, terms: list[tuple[tuple[int, ...], float]]) -> _Power:
    """Sort terms into runs of squares (a Laplacian is one run, whatever its dimension) and others."""
    runs: list[tuple[int, int, float]] = []
    others = []
    scale = terms[0][1] or 1.0
    for factors, weight in ((f, w / scale) for f, w in terms):
        if q == 2 and factors[0] == factors[1]:
            if runs and runs[-1][1] == factors[0] and runs[-1][2] == weight:
                runs[-1] = (runs[-1][0], factors[0] + 1, weight)
            else:
                runs.append((factors[0], factors[0] + 1, weight))
        else:
            others.append((factors, weight))
    return _Power(channel, q, scale, tuple(runs), tuple(others))


def _block(x: JetValue, start: int, stop: int) -> Tensor:
    """Channels start to stop (start >= 1) as [channels, n or 1, width]."""
    return x.derivatives()[start - 1 : stop - 1]


def _sum_of_products(power: _Power, x: JetValue, z: list[Tensor]) -> Tensor:
    total: Tensor | None = None
    for start, stop, weight in power.runs:
        part = _sum_of_squares(_block(x, start, stop))
        if total is None:
            total = part if weight == 1.0 else part.mul_(weight)
        else:
            total.add_(part, alpha=weight)
    for factors, weight in power.others:
        part = z[factors[0]]
        for j in factors[1:]:
            part = part * z[j]
        total = part * weight if total is None else total.add_(part, alpha=weight)
    assert total is not None
    return total


def _sum_of_squares(block: Tensor) -> Tensor:
    """Over the channels [K, n, w]. One pass a channel while there are few, one reduction where there are many."""
    if len(block) > 8:
        return block.square().sum(0)
    first, *rest = block.unbind(0)
    total = first * first
    for z in rest:
        total.addcmul_(z, z)
    return total


def _present(derivative: Tensor | None) -> Tensor:
    assert derivative is not None
    return derivative


def _affine(x: JetValue, weight: Tensor, bias: Tensor | None) -> JetValue:
    if isinstance(x, AffineJet):
        value = x.value @ weight.t() if bias is None else torch.addmm(bias, x.value, weight.t())
        return AffineJet(value, x.rows @ weight.t())
    k, n, width = x.data.shape
    out = (x.data.reshape(k * n, width) @ weight.t()).view(k, n, -1)
    if bias is not None:
        out[0] += bias
    return DenseJet(out)


def _weight_gradient(grad: Tensor, x: JetValue) -> Tensor:
    """sum over channels and points of grad^T a, [out, in]."""
    if isinstance(x, AffineJet):
        return torch.addmm(grad[1:].sum(1).t() @ x.rows, grad[0].t(), x.value)
    # channel by channel: one product over all rows loses a digit in float32 where there are very many
    return torch.bmm(grad.transpose(1, 2), x.data).sum(0)


def _linear_map(x: JetValue, f) -> JetValue:
    return AffineJet(f(x.value), f(x.rows)) if isinstance(x, AffineJet) else DenseJet(f(x.data))


def _shift(x: JetValue, amount: Tensor | float, width: int) -> JetValue:
    if isinstance(x, AffineJet):
        return AffineJet(x.value + amount, x.rows.expand(-1, width))
    data = x.data.expand(-1, -1, width).clone()
    data[0] += amount
    return DenseJet(data)


def _combine(x: Sequence[JetValue], f, joins_columns: bool = False) -> JetValue:
    if all(isinstance(v, AffineJet) for v in x):
        return AffineJet(f([v.value for v in x]), f([v.rows for v in x]))  # type: ignore[union-attr]
    return DenseJet(f([dense(v) for v in x]))


def dense(x: JetValue) -> Tensor:
    if isinstance(x, DenseJet):
        return x.data
    return torch.cat([x.value.unsqueeze(0), x.rows.unsqueeze(1).expand(-1, *x.value.shape)])


def _select(t: Tensor, columns: tuple[int, ...]) -> Tensor:
    start, stop = columns[0], columns[-1] + 1
    if columns == tuple(range(start, stop)):
        return t[..., start:stop]
    return t.index_select(-1, _index(columns, t.device))


@lru_cache(maxsize=256)
def _index(columns: tuple[int, ...], device: torch.device) -> Tensor:
    """Copied to a device once: a CUDA graph cannot hold a copy from the host."""
    return torch.tensor(columns, device=device)


def fit(gradient: Tensor, operand: Tensor) -> Tensor:
    """Sum a gradient [width] to the shape of the operand that was broadcast."""
    return (
        gradient.sum_to_size(operand.shape) if operand.dim() <= 1 else gradient.unsqueeze(0).sum_to_size(operand.shape)
    )


def _fit_width(gradient: Tensor, width: int) -> Tensor:
    return gradient if gradient.shape[-1] == width else gradient.sum(-1, keepdim=True)
