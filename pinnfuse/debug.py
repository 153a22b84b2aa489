"""Find where an operator differs from a reference: in which precision, from which size on, at which point.

    from pinnfuse.debug import compare
    print(compare(lambda u: grid.laplacian(u, plane), lambda u: grid.laplacian(u, plane, backend="torch"), u, h=0.01))

The reference runs in float64 on the same rounded inputs, so what remains is the operator's own error. It is counted in
units in the last place (ulp) of the largest result, and for derivatives of order p as the constant c of
c eps (max|u| / h^p + max|result|), the rounding that no way of computing them avoids.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

Operator = Callable[..., Tensor]
DTYPES = (torch.float64, torch.float32)


@dataclass(frozen=True)
class Difference:
    """Of one precision and shape. `finite`: NaN or infinities in the results, "" if there are none."""

    dtype: str
    shape: tuple[int, ...]
    error: float
    ulp: float
    constant: float
    where: tuple[int, ...]
    finite: str
    ok: bool

    def __str__(self) -> str:
        verdict = "ok" if self.ok else "DIFFERS"
        text = f"{verdict:8}{self.dtype:9}{list(self.shape)}: error {self.error:.3g}, {self.ulp:.3g} ulp, "
        text += f"c = {self.constant:.3g}" + (f", largest at {list(self.where)}" if self.error else "")
        return text + (f"; {self.finite}" if self.finite else "")


@dataclass(frozen=True)
class Report:
    """All precisions at the given size, and for the first that differs the smallest size that does."""

    rows: list[Difference]
    smallest: Difference | None = None
    ranges: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return all(row.ok for row in self.rows)

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        lines = [*self.ranges, *map(str, self.rows)]
        if self.smallest is not None:
            lines.append(f"smallest size found that differs:\n{self.smallest}")
        return "\n".join(lines)


def compare(
    op: Operator,
    ref: Operator,
    inputs: Tensor | Sequence[Tensor],
    *,
    h: float = 1.0,
    derivative: int = 2,
    space: int = 2,
    allowed: float = 32.0,
    dtypes: Sequence[torch.dtype] = DTYPES,
) -> Report:
    """Compare in every precision; where one differs, look for the smallest piece of the inputs that does.

    Args:
        op, ref: functions of the inputs.
        inputs: one tensor or several.
        h, derivative: least spacing and order p of the derivative; 1 and 0 for operations without any.
        space: how many trailing dimensions are cut to find the smallest size.
        allowed: largest constant c; about the number of operations of a point.

    Raises:
        ValueError: results of two shapes; numbers that make no sense.
    """
    given = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    if not given or not h > 0 or not allowed > 0 or not 0 <= space <= min(x.dim() for x in given):
        raise ValueError(
            f"compare: needs inputs of at least `space` dimensions, `h` > 0 and `allowed` > 0; got {len(given)} "
            f"inputs, space={space}, h={h}, allowed={allowed}."
        )
    scale = h**-derivative

    def differ(tensors: Sequence[Tensor], dtype: torch.dtype) -> Difference:
        return _difference(op, ref, tensors, dtype, scale, allowed)

    rows = [differ(given, dtype) for dtype in dtypes]
    spans = [(list(x.shape), float(x.detach().min()), float(x.detach().max())) for x in given]
    ranges = [f"input {k}: {shape} from {low:.3g} to {high:.3g}" for k, (shape, low, high) in enumerate(spans)]
    bad = next((k for k, row in enumerate(rows) if not row.ok), None)
    if bad is None:
        return Report(rows, None, ranges)
    return Report(rows, _smallest(lambda t: differ(t, dtypes[bad]), given, rows[bad], space), ranges)


def _difference(
    op: Operator, ref: Operator, given: Sequence[Tensor], dtype: torch.dtype, scale: float, allowed: float
) -> Difference:
    rounded = [x.detach().to(dtype) if x.is_floating_point() else x for x in given]
    truth = ref(*(x.double() if x.is_floating_point() else x for x in rounded)).detach().double()
    found = op(*rounded).detach()
    if found.shape != truth.shape:
        raise ValueError(f"compare: `op` returns {list(found.shape)} and `ref` {list(truth.shape)}; they must agree.")
    gap = (found.double() - truth).abs()
    both = torch.isfinite(found) & torch.isfinite(truth)
    finite = "; ".join(filter(None, (_not_finite("op", found), _not_finite("ref", truth))))
    gap = torch.where(both, gap, torch.where(torch.isfinite(truth), math.inf, 0.0))
    eps = torch.finfo(dtype).eps
    largest = float(truth[torch.isfinite(truth)].abs().max()) if bool(torch.isfinite(truth).any()) else 0.0
    size = max((float(x.double().abs().max()) for x in rounded if x.is_floating_point() and x.numel()), default=0.0)
    error = float(gap.max()) if gap.numel() else 0.0
    unit = eps * size * scale + eps * largest
    constant = error / unit if unit else math.inf if error else 0.0
    return Difference(
        dtype=str(dtype).removeprefix("torch."),
        shape=tuple(given[0].shape),
        error=error,
        ulp=error / (eps * largest) if largest else math.inf if error else 0.0,
        constant=constant,
        where=tuple(int(i) for i in torch.unravel_index(gap.argmax(), gap.shape)) if gap.numel() else (),
        finite=finite,
        ok=constant <= allowed,
    )


def _not_finite(name: str, x: Tensor) -> str:
    bad = (~torch.isfinite(x)).nonzero()
    return f"{name} has {len(bad)} NaN or Inf, the first at {bad[0].tolist()}" if len(bad) else ""


def _smallest(
    differ: Callable[[Sequence[Tensor]], Difference], given: Sequence[Tensor], worst: Difference, space: int
) -> Difference:
    """Bisection of each trailing dimension in turn. Faults that come and go with the size may have smaller ones."""
    kept = list(given)
    for dim in range(-space, 0):
        low, high = 0, kept[0].shape[dim]  # `low` is known to agree (or not to run), `high` differs
        while high - low > 1:
            middle = (low + high) // 2
            cut = [x.narrow(dim, 0, min(middle, x.shape[dim])) for x in kept]
            try:
                row = differ(cut)
            except (ValueError, RuntimeError, IndexError):  # too small for the operator
                low = middle
                continue
            if row.ok:
                low = middle
            else:
                high, worst = middle, row
        kept = [x.narrow(dim, 0, min(high, x.shape[dim])) for x in kept]
    return worst
