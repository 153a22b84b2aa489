"""Linear operators: sums of products of formulas along axes, and their transposes.

    out_o = sum_t k_t D_t1 D_t2 ... u_c(t) + walls

The factors of a term act on different axes, so their order does not matter but for the walls' numbers, which enter
through the last factor; those before it see a perturbation and take homogeneous walls.

Adjoint. <out, g> = sum_t k_t <D_t1 D_t2 u_c, g_o> = sum_t k_t <u_c, D_t1^T D_t2^T g_o>: an operator of the same kind
whose formulas are the transposed ones, rows at walls included, and whose inputs and outputs are exchanged. So the
backward is a gather by the same kernel, nothing is saved, and it has a backward of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pinnfuse.grid.dispatch import choose
from pinnfuse.grid.stencils import AxisStencil, Row, apply, check_points
from pinnfuse.kernels.grid.hashing import hash_once
from pinnfuse.kernels.grid.layout import Layout, Line
from pinnfuse.kernels.grid.layout import Term as LaidTerm
from pinnfuse.remembered import Remembered

Factors = tuple[tuple[int, AxisStencil], ...]


@dataclass(frozen=True)
class Term:
    """coefficient x product of (axis, formula), applied to one component of the input."""

    coefficient: float
    component: int
    factors: Factors


@hash_once
@dataclass(frozen=True)
class LinearOperator:
    """`inputs` components to `len(outputs)` components on a grid of `dimension` axes; axes count from the first."""

    name: str
    dimension: int
    inputs: int
    outputs: tuple[tuple[Term, ...], ...]

    @cached_property
    def variant(self) -> str:
        """What plain torch's time goes by: stencils of one name may be of any size."""
        sizes = [[len(stencil.offsets) for _, stencil in term.factors] for terms in self.outputs for term in terms]
        return f"{self.dimension}D, {sum(map(math.prod, sizes))} points read"

    def __call__(
        self, u: Tensor, axes: tuple[str, ...], backend: str = "auto", scalar: tuple[bool, bool] = (False, False)
    ) -> Tensor:
        """`[..., inputs, *space]` to `[..., outputs, *space]`, in u's dtype; sums in float32 at least.

        `scalar`: whether the argument and the result are without their dimension of components (of size 1).
        """
        _check(self, tuple(u.shape[-self.dimension :]), axes)
        chosen = choose(backend, self.name, u, variant=self.variant)
        if chosen.backend == "torch":
            return self._plain(u, scalar)
        return chosen.run(lambda u: _run(u, self, True, scalar), lambda u: self._plain(u, scalar), u)

    def _plain(self, u: Tensor, scalar: tuple[bool, bool]) -> Tensor:
        place = -self.dimension - 1
        out = self.torch(u.unsqueeze(place) if scalar[0] else u)
        return out.squeeze(place) if scalar[1] else out

    def torch(self, u: Tensor, affine: bool = True) -> Tensor:
        """Plain torch, differentiable any number of times."""
        dtype = u.dtype
        u = u.float() if dtype in (torch.float16, torch.bfloat16) else u
        where = u.dim() - self.dimension
        results = []
        for terms in self.outputs:
            total = torch.zeros((), dtype=u.dtype, device=u.device)
            for term in terms:
                part = u.select(where - 1, term.component)
                for k, (axis, stencil) in enumerate(reversed(term.factors)):
                    formula = stencil if affine and k == 0 else stencil.linear()
                    part = apply(formula, part, part.dim() - self.dimension + axis)
                total = total + term.coefficient * part
            results.append(total)
        return torch.stack(results, dim=where - 1).to(dtype)

    @lru_cache(maxsize=512)  # noqa: B019 - operators are few values, made once per grid
    def transposed(self, space: tuple[int, ...]) -> LinearOperator:
        """The adjoint (of the linear part) for fields of this shape."""
        outputs: list[list[Term]] = [[] for _ in range(self.inputs)]
        for o, terms in enumerate(self.outputs):
            for term in terms:
                factors = tuple((axis, transposed(stencil, space[axis])) for axis, stencil in term.factors)
                outputs[term.component].append(Term(term.coefficient, o, factors))
        return LinearOperator(self.name, self.dimension, len(self.outputs), tuple(map(tuple, outputs)))


def transposed(stencil: AxisStencil, n: int) -> AxisStencil:
    """The formula whose matrix for n points is the transposed one (and whose walls' numbers are zero)."""
    turned = sorted((-o, w) for o, w in zip(stencil.offsets, stencil.weights, strict=True))
    offsets, weights = tuple(o for o, _ in turned), tuple(w for _, w in turned)
    if stencil.periodic:
        return AxisStencil(offsets, weights, True, (), (), stencil.minimum)
    low, high = (_reach(stencil, end) for end in (0, 1))
    if n < low + high:  # rows of both ends mix: every row by itself
        return _transposed_rows(stencil, offsets, weights, n, n, 0, n)
    return _transposed_rows(stencil, offsets, weights, low + high, low, high, low + high)


def _reach(stencil: AxisStencil, end: int) -> int:
    """How many columns at an end differ from an interior one: those that wall rows or missing rows touch."""
    rows = stencil.high if end else stencil.low
    touched = max((1 + o for row in rows for o in row.offsets_from_that_end), default=0)
    interior = max([0, *(stencil.offsets if not end else (-o for o in stencil.offsets))])
    return max(touched, len(rows) + interior)


@lru_cache(maxsize=1024)
def _transposed_rows(
    stencil: AxisStencil,
    offsets: tuple[int, ...],
    weights: tuple[float, ...],
    n: int,
    low: int,
    high: int,
    minimum: int,
) -> AxisStencil:
    dense = stencil.matrix(n)[0].T

    def row(entries: Tensor) -> Row:
        kept = entries.nonzero().flatten().tolist()
        return Row(tuple(kept), tuple(entries[kept].tolist()))

    lows = tuple(row(dense[j]) for j in range(low))
    highs = tuple(row(dense[n - 1 - j].flip(0)) for j in range(high))
    return AxisStencil(offsets, weights, False, lows, highs, minimum)


def lay_out(operator: LinearOperator, space: tuple[int, ...], affine: bool) -> tuple[Layout, Tensor]:
    """The kernel's layout and its weights (float64)."""
    return _lay_out(operator, tuple(space), affine)


@lru_cache(maxsize=512)
def _lay_out(operator: LinearOperator, space: tuple[int, ...], affine: bool) -> tuple[Layout, Tensor]:
    d = operator.dimension
    places: dict[tuple[int, AxisStencil], int] = {}
    outputs = []
    for terms in operator.outputs:
        laid = []
        for term in terms:
            keys = [(axis, stencil) for axis, stencil in term.factors]
            laid.append(LaidTerm(term.component, tuple(places.setdefault(key, len(places)) for key in keys)))
        outputs.append(tuple(laid))
    numbers = [_line(d - 1 - axis, stencil, space[axis]) for axis, stencil in places]
    constants = affine and any(row.constant for _, s in places for row in (*s.low, *s.high))
    layout = Layout(d, operator.inputs, tuple(line for line, _ in numbers), tuple(outputs), constants)
    stencils = [stencil for _, stencil in places]

    found: list[float] = []
    for o, terms in enumerate(operator.outputs):
        totals = dict.fromkeys(layout.points(o), 0.0)
        for term, laid_term in zip(terms, outputs[o], strict=True):
            entries = (zip(s.offsets, s.weights, strict=True) for s in (stencils[k] for k in laid_term.lines))
            for combination in product(*entries):
                weight = term.coefficient
                for _, w in combination:
                    weight *= w
                totals[term.component, layout.shift(laid_term, tuple(o for o, _ in combination))] += weight
        found += totals.values()
    found += [term.coefficient for terms in operator.outputs for term in terms]
    for _, table in numbers:
        width = table.shape[1] - 2
        found += table[:, :width].flatten().tolist()
        if constants:
            found += table[:, width:].T.flatten().tolist()
    return layout, torch.tensor(found, dtype=torch.float64)


def _line(axis: int, stencil: AxisStencil, n: int) -> tuple[Line, Tensor]:
    """A formula for n points as a line and its table: per row the weights, the walls' constant, the sum of weights."""
    if stencil.periodic:
        weights = torch.tensor(stencil.weights, dtype=torch.float64)
        table = torch.cat([weights, torch.zeros(1, dtype=torch.float64), weights.sum()[None]])[None]
        return Line(axis, stencil.offsets, True, width=len(stencil.offsets)), table
    reach = max([0, *(-o for o in stencil.offsets)])
    ahead = max([0, *stencil.offsets])
    widths = [1 + max(row.offsets_from_that_end, default=0) for row in (*stencil.low, *stencil.high)]
    width = min(n, max([reach + ahead + 1, *widths]))
    lo, hi = max(len(stencil.low), reach), max(len(stencil.high), width - reach - 1)
    if n < lo + hi + 1:
        lo, hi, width = n, 0, n  # every row by itself
    chosen = [*range(lo), *([] if lo == n else [lo, *range(n - hi, n)])]
    rows = stencil.rows(n)
    table = torch.zeros(lo + 1 + hi, width + 2, dtype=torch.float64)
    for k, i in enumerate(chosen):
        start = 0 if k < lo else i - reach if k == lo else n - width
        indices, weights, constant = rows[i]
        for j, w in zip(indices, weights, strict=True):
            table[k, j - start] += w
        table[k, width], table[k, width + 1] = constant, sum(weights)
    return Line(axis, stencil.offsets, False, lo, hi, reach, width), table


@lru_cache(maxsize=512)
def _on_device(
    operator: LinearOperator, space: tuple[int, ...], affine: bool, dtype: torch.dtype, device: torch.device
) -> tuple[Layout, Tensor]:
    layout, weights = lay_out(operator, space, affine)
    return layout, weights.to(device=device, dtype=torch.float64 if dtype == torch.float64 else torch.float32)


@lru_cache(maxsize=4096)
def _check(operator: LinearOperator, space: tuple[int, ...], axes: tuple[str, ...]) -> None:
    for terms in operator.outputs:
        for term in terms:
            for axis, stencil in term.factors:
                check_points(stencil, space[axis], axes[axis], operator.name)


def _run(u: Tensor, operator: LinearOperator, affine: bool, scalar: tuple[bool, bool]) -> Tensor:
    if u.requires_grad and torch.is_grad_enabled():
        return _Apply.apply(u, operator, affine, scalar)
    return _launch(u, operator, affine, scalar)


class Plan(NamedTuple):
    """A launch on fields of one shape, strides, dtype and device."""

    launch: Any  # None for an empty field
    viewed: bool
    """The kernel takes the field as it is; else a contiguous copy."""
    shape: torch.Size
    weights: Tensor


_plans: Remembered[Any, Plan] = Remembered(1024)
"""Per operator and all that a plan depends on: to find its parts again would outlast a small field."""


def _launch(u: Tensor, operator: LinearOperator, affine: bool, scalar: tuple[bool, bool]) -> Tensor:
    key = (operator, affine, scalar, u.shape, u.stride(), u.dtype, u.device)
    plan = _plans.get(key)
    if plan is None:
        plan = _plans.keep(key, _plan(u, operator, affine, scalar))
    out = u.new_empty(plan.shape)
    if plan.launch is not None:
        plan.launch((out, u if plan.viewed else u.contiguous(), plan.weights))
    return out


def _plan(u: Tensor, operator: LinearOperator, affine: bool, scalar: tuple[bool, bool]) -> Plan:
    from pinnfuse.kernels.grid.apply import kernel

    d = operator.dimension
    shape, space = u.shape, u.shape[-d:]
    layout, weights = _on_device(operator, space, affine, u.dtype, u.device)
    inputs, outputs = operator.inputs, len(operator.outputs)
    batch = shape[:-d] if scalar[0] else shape[: -d - 1]
    out = u.new_empty(batch + space if scalar[1] else (*batch, outputs, *space))
    if not out.numel():
        return Plan(None, True, out.shape, weights)
    flat = u.reshape(-1, inputs, *space)
    viewed = flat.data_ptr() == u.data_ptr()
    flat = flat if viewed else u.contiguous().view(-1, inputs, *space)
    launch = kernel(layout).prepared((out.view(-1, outputs, *space), flat), weights)
    return Plan(launch, viewed, out.shape, weights)


class _Apply(torch.autograd.Function):
    """The kernel. Its backward is itself with the transposed operator, so it can be differentiated again."""

    @staticmethod
    def forward(ctx, u: Tensor, operator: LinearOperator, affine: bool, scalar: tuple[bool, bool]) -> Tensor:
        ctx.operator, ctx.scalar = operator, scalar
        return _launch(u, operator, affine, scalar)

    @staticmethod
    def backward(ctx, gradient: Tensor):
        operator = ctx.operator.transposed(gradient.shape[-ctx.operator.dimension :])
        return _run(gradient, operator, False, ctx.scalar[::-1]), None, None, None
