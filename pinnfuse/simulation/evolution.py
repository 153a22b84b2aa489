r"""Time-dependent PDEs on a grid by the method of lines: u_t = F(t, u) with F the discrete right-hand side.

F is the residual of a PDE without time, formed by the kernels of `FusedGridResidualLoss`: each equation of the given
PDE must hold one time derivative, first order, times a number; solved for it, the rest is F. Steps are those of the
classical Runge-Kutta scheme of fourth order. It is stable where dt |lambda| < 2.6 for the eigenvalues of dF/du (real
negative or imaginary); the largest |lambda| is found by power iteration with differences of F around the field.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

import sympy
import torch
from sympy.core.function import AppliedUndef
from torch import Tensor

from pinnfuse.grid import FusedGridResidualLoss, Grid
from pinnfuse.pde import PDE, Parameter

Data = Mapping[str, Tensor] | Callable[[Tensor], Mapping[str, Tensor]] | None
STABLE = 2.6
"""Of the Runge-Kutta scheme: 2.785 on the negative real axis, 2.828 on the imaginary one, less what the estimate of
the largest eigenvalue may miss."""
TRIES = 5
"""Of steps that the fields they lead to turn out too long for."""
REMEDY = (
    "If it should stay finite, ask for more output times, at which the stable step is found anew (every "
    "`check_every`), or give a smaller `dt`."
)


@lru_cache(maxsize=64)
def right_hand_side(pde: PDE, axes: tuple[str, ...]) -> tuple[PDE, str]:
    """(the PDE without time whose residuals are F, one equation per field and in their order; the name of time).

    Raises:
        ValueError: a PDE that is not of the form u_t = F.
    """
    times = [c for c in pde.coordinates if c not in axes]
    if len(times) != 1:
        raise ValueError(
            f"solve: `pde` must have the grid's axes {axes} and one time among its coordinates; got {pde.coordinates}."
        )
    (time,) = times
    clock = pde.coordinate_symbols[time]
    space = [pde.coordinate_symbols[c] for c in pde.coordinates if c != time]
    found: dict[str, sympy.Expr] = {}
    for name, expression in pde.equations.items():
        terms = sympy.Add.make_args(sympy.expand_mul(expression, deep=False))
        moving = [t for t in terms if _time_derivatives(t, clock)]
        inner = _time_derivatives(moving[0], clock) if len(moving) == 1 else set()
        derivative = next(iter(inner)) if len(inner) == 1 else None
        field = derivative.expr.func.__name__ if derivative is not None and _plain(derivative, clock) else None
        factor = moving[0] / derivative if field is not None else clock
        if field is None or field in found or factor.free_symbols & {clock, *space} or factor.atoms(AppliedUndef):
            raise ValueError(
                f"solve: equation {name!r} of `pde` must hold one time derivative of first order, times a number, each "
                f"field in an equation of its own; got {expression}. Flow with a pressure is FluidSimulator's."
            )
        rest = sympy.Add(*[t for t in terms if t is not moving[0]])
        still = {f: f.func(*[a for a in f.args if a != clock]) for f in rest.atoms(AppliedUndef)}
        found[field] = (-rest / factor).subs(still) if rest else sympy.Integer(0)
    missing = [f for f in pde.fields if f not in found]
    if missing:
        raise ValueError(f"solve: `pde` has no equation with the time derivative of {missing}.")
    parameters = [*pde.parameters.values(), Parameter(time, 0.0)]
    still_pde = PDE(
        pde.fields, [c for c in pde.coordinates if c != time], parameters, {f: found[f] for f in pde.fields}, pde.data
    )
    return still_pde, time


def _time_derivatives(term: sympy.Expr, clock: sympy.Symbol) -> set[sympy.Derivative]:
    return {d for d in term.atoms(sympy.Derivative) if clock in d.variables}


def _plain(derivative: sympy.Derivative, clock: sympy.Symbol) -> bool:
    return isinstance(derivative.expr, AppliedUndef) and derivative.variables == (clock,)


class Evolution:
    """u_t = F(t, u) of a PDE on a grid, ready for steps.

    Args:
        pde, grid, backend: as for `FusedGridResidualLoss`.
        parameters: values for this run: numbers, or one per sample `[B]`.
        data: the PDE's data columns, broadcast to `[B, *space]`: constant in time, or a function of the fields that
            returns them (a velocity that follows from the vorticity).
    """

    def __init__(
        self,
        pde: PDE,
        grid: Grid | Mapping[str, Grid],
        *,
        parameters: Mapping[str, Tensor | float] | None = None,
        data: Data = None,
        backend: str = "auto",
    ):
        axes = (grid if isinstance(grid, Grid) else next(iter(grid.values()))).axes
        still, self.time_name = right_hand_side(pde, axes)
        self._loss = FusedGridResidualLoss(still, grid, backend=backend)
        self._data, self._parameters = data, dict(parameters or {})

    def rate(self, u: Tensor, time: float = 0.0) -> Tensor:
        """F(t, u), the shape of u: `[B, C, *space]`."""
        self._loss.to(u.device)
        data = self._data(u) if callable(self._data) else self._data
        return self._loss.residuals(u, data, {**self._parameters, self.time_name: time})

    def step(self, u: Tensor, time: float, dt: float) -> Tensor:
        """u at time + dt."""
        k1 = self.rate(u, time)
        k2 = self.rate(u + 0.5 * dt * k1, time + 0.5 * dt)
        k3 = self.rate(u + 0.5 * dt * k2, time + 0.5 * dt)
        k4 = self.rate(u + dt * k3, time + dt)
        return u + (dt / 6) * (k1 + 2 * (k2 + k3) + k4)

    def _through(self, u: Tensor, times: Sequence[float], longest: float) -> tuple[list[Tensor], bool]:
        """The fields at all times but the first, that of u, by steps of at most `longest`, up to the first that are not
        finite; and whether all are."""
        found = []
        for start, stop in pairwise(times):
            steps = max(math.ceil((stop - start) / min(longest, stop - start) - 1e-9), 1)
            h = (stop - start) / steps
            for k in range(steps):
                u = self.step(u, start + k * h, h)
            found.append(u)
            if not bool(torch.isfinite(u.detach()).all()):
                return found, False
        return found, True

    @torch.no_grad()
    def largest_eigenvalue(self, u: Tensor, time: float = 0.0, iterations: int = 24) -> float:
        """|lambda| of dF/du at u, the largest of the batch: power iteration from an alternating and a random field."""
        u = u.double()
        dims = tuple(range(1, u.dim()))
        generator = torch.Generator().manual_seed(0)
        sign = torch.ones(())
        for n in u.shape[2:]:
            sign = sign.unsqueeze(-1) * (1.0 - 2.0 * (torch.arange(n) % 2))
        start = sign + 0.5 * torch.randn(u.shape[1:], generator=generator)
        v = start.to(u).expand_as(u)
        scale = 1e-5 * (1.0 + u.abs().amax(dims, keepdim=True))
        largest = 0.0
        for k in range(iterations):
            v = v / v.square().mean(dims, keepdim=True).sqrt().clamp_min(1e-300)
            v = (self.rate(u + scale * v, time) - self.rate(u - scale * v, time)) / (2 * scale)
            if k >= iterations // 2:
                largest = max(largest, float(v.square().mean(dims).sqrt().max()))
        return largest

    def stable_step(self, u: Tensor, time: float = 0.0) -> float:
        """The largest stable step for the field as it is; units of time."""
        rate = self.largest_eigenvalue(u, time)
        return STABLE / rate if rate > 0 else math.inf


def solve(
    pde: PDE,
    u0: Tensor,
    grid: Grid | Mapping[str, Grid],
    times: Sequence[float],
    *,
    dt: float | None = None,
    parameters: Mapping[str, Tensor | float] | None = None,
    data: Data = None,
    backend: str = "auto",
    check_every: int = 1,
    report: Callable[[float], None] | None = None,
) -> Tensor:
    r"""Integrate a PDE on a grid from u0 at `times[0]`; a whole batch at once.

    Args:
        pde: equations that each hold one time derivative, e.g. "u_t + D(u**2/2, x) - nu*u_xx".
        u0: `[B, C, *space]`, C in the order of the PDE's fields.
        times: rising; the first is that of u0.
        dt: of a step, shortened to meet `times`; 0.9 of the stable one by default, and where the next look finds a
            smaller one, the times since the last look are computed anew.
        parameters, data: as for `Evolution`.
        check_every: outputs between two looks for the stable step, which cost 48 evaluations of F each.
        report: called with the time of every output that stands.

    Returns:
        `[B, len(times), C, *space]`; differentiable to u0 and parameters (then every step is kept in memory).

    Raises:
        ValueError: a PDE, field or times that cannot be; a step that would be unstable, with the largest stable one.
        FloatingPointError: the solution is not finite, or grows so fast that no step is stable, with the time.
    """
    try:
        at = [float(t) for t in times]
    except (TypeError, ValueError):
        at = []
    if not all(map(math.isfinite, at)) or not at or any(not b > a for a, b in pairwise(at)):
        raise ValueError(f"solve: `times` must be finite and rising, the first that of `u0`; got {times!r}.")
    if dt is not None and not (math.isfinite(dt) and dt > 0):
        raise ValueError(f"solve: `dt` must be > 0; got {dt}.")
    if check_every < 1:
        raise ValueError(f"solve: `check_every` must be at least 1; got {check_every}.")
    evolution = Evolution(pde, grid, parameters=parameters, data=data, backend=backend)
    if isinstance(u0, Tensor) and not bool(torch.isfinite(u0.detach()).all()):
        raise ValueError("solve: `u0` must be finite; got NaN or Inf.")
    found = [u0]
    stable = evolution.stable_step(u0.detach(), at[0]) if len(at) > 1 else math.inf
    for first in range(0, len(at) - 1, check_every):
        block = at[first : first + check_every + 1]
        _check_step(dt, stable, block[0])
        longest = 0.9 * stable if dt is None else dt
        for _ in range(TRIES):
            levels, finite = evolution._through(found[-1], block, longest)
            stable = evolution.stable_step(levels[-1].detach(), block[-1]) if finite else 0.0
            if finite and (dt is not None or min(longest, max(b - a for a, b in pairwise(block))) <= stable):
                break
            if dt is not None:
                raise FloatingPointError(f"solve: the solution is not finite at time {block[len(levels)]:g}. {REMEDY}")
            longest = max(0.9 * stable, longest / 8)
        else:
            raise FloatingPointError(
                f"solve: the solution grows too fast up to time {block[-1]:g}, or beyond all bounds. {REMEDY}"
            )
        found += levels
        if report is not None:
            for time in block[1:]:
                report(time)
    _check_step(dt, stable, at[-1])
    return torch.stack(found, dim=1)


def _check_step(dt: float | None, stable: float, time: float) -> None:
    if dt is not None and dt > stable:
        raise ValueError(
            f"solve: `dt` = {dt:.4g} would be unstable at time {time:g}; the largest stable step is {stable:.4g}. "
            "Use a smaller one, or a coarser grid."
        )
