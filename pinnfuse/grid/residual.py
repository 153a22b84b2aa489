r"""Residual losses of fields on grids: fields and a PDE in, the loss and the gradient of every field value out.

    L = sum_e W_e mean( w_e r_e^2 ),     r_e = discrete residual of equation e, mean over batch, times and points

One kernel forms all residuals and reduces the loss, one gathers the gradient through the transposed stencils. Those
kernels have no derivative of their own: `create_graph=True` through them raises; backend="torch" is differentiable
again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from pinnfuse.errors import nearest
from pinnfuse.grid import choice, dispatch, inputs, reference
from pinnfuse.grid.grid import Grid
from pinnfuse.grid.inputs import Inputs
from pinnfuse.grid.schemes import SCHEMES, TimeScheme
from pinnfuse.parameters import ResidualModule, number
from pinnfuse.pde import PDE
from pinnfuse.precision import no_autocast
from pinnfuse.residual import Evaluation

CALLER = "FusedGridResidualLoss"


@dataclass(frozen=True, repr=False)
class GridExplanation:
    """Which path a call takes, what it computes and what it costs. `str()` is the report."""

    backend: str
    reason: str
    equations: dict[str, str]
    stencils: tuple[str, ...]
    scheme: str
    precision: str
    residuals: int
    launches: int | None
    bytes_least: int

    def __str__(self) -> str:
        launches = "many" if self.launches is None else f"{self.launches} (loss and gradient)"
        return "\n".join(
            (
                f"backend    {self.backend}",
                f"why        {self.reason}",
                *(f"equation   {name}: {text}" for name, text in self.equations.items()),
                *(f"stencil    {text}" for text in self.stencils),
                f"in time    {self.scheme}",
                f"precision  {self.precision}",
                f"residuals  {self.residuals:,}",
                f"launches   {launches}",
                f"traffic    at least {self.bytes_least / 1e6:.1f} MB: fields read twice, gradient written once",
            )
        )

    __repr__ = __str__  # a notebook shows the report


class FusedGridResidualLoss(ResidualModule):
    r"""Weighted mean squared residual of a PDE for fields on a grid, $\sum_e W_e \frac1N \sum_i w_{ei} r_{ei}^2$.

    Args:
        pde: the equations, the same object as for networks. Its trained parameters become `nn.Parameter`s of this
            module (a positive one is stored as its logarithm).
        grid: one `Grid` for all fields, or `{field: Grid}` where they differ in their boundaries. The grid's axes are
            the space coordinates; one more coordinate of the PDE is time.
        time_step: dt > 0, for a PDE with time.
        time_scheme: "forward_euler", "backward_euler", "crank_nicolson", "midpoint", "central" or "bdf2" (see
            `pinnfuse.grid.schemes` for the formulas and at which level each forms the residual).
        backend: "auto", "torch" or "triton". An explicit choice never falls back.
        equation_weights: one number per equation, by name or in order; 1 by default. A buffer.
        time_start: time of the first level, for equations that contain time itself.
        recompute: the kernels form the residuals once more for the gradient, and nothing is kept but the fields; by
            default they keep the residuals, one array per equation.

    D(g, x) around an expression is discretised as written (`pinnfuse.grid.discretise` says how).

    Example:
        >>> pde = PDE("u", "t x y", {"nu": 0.1}, {"heat": "u_t - nu*(u_xx + u_yy)"})
        >>> grid = Grid("x y", 0.01, boundary={"x": "periodic", "y": "dirichlet"})
        >>> loss_fn = FusedGridResidualLoss(pde, grid, time_step=1e-3, time_scheme="crank_nicolson")
        >>> loss = loss_fn(fields)  # fields [B, T, 1, nx, ny]
        >>> loss.backward()
    """

    def __init__(
        self,
        pde: PDE,
        grid: Grid | Mapping[str, Grid],
        time_step: float | None = None,
        time_scheme: str | None = None,
        backend: str = "auto",
        equation_weights: Mapping[str, float] | Sequence[float] | Tensor | None = None,
        time_start: float = 0.0,
        recompute: bool = False,
    ):
        super().__init__(pde, equation_weights)
        dispatch.check_name(backend, CALLER)
        self.backend, self.recompute = backend, recompute
        grids = inputs.per_field(grid, pde.fields)
        scheme, step = _time(time_step, time_scheme)
        self.scheme = reference.build(pde, grids, scheme, step or 0.0, float(time_start))
        self._coordinates: dict[tuple[object, ...], list[Tensor]] = {}

    # -- the four public ways in ---------------------------------------------------------------------------------

    @torch._disable_dynamo  # torch.compiler.disable, without importing the compiler (and Triton) at import
    def forward(
        self,
        fields: Tensor,
        point_weights: Tensor | None = None,
        data: Mapping[str, Tensor] | None = None,
        parameters: Mapping[str, Tensor | float] | None = None,
    ) -> Tensor:
        """The loss, a scalar; float32 for half-precision fields.

        Args:
            fields: [B, C, *space], or [B, T, C, *space] for a PDE with time, C in the order of the PDE's fields; any
                strides; float16, bfloat16, float32 or float64.
            point_weights: >= 0, broadcast to the residuals' [B, E, *space] or [B, T', E, *space] (T' = T minus the
                levels of the scheme plus 1); differentiable.
            data: one tensor per data column of the PDE, broadcast to [B, *space] or [B, T', *space]; differentiable.
            parameters: values that replace those of the PDE in this call: numbers, scalars, or one per sample [B];
                differentiable.

        Raises:
            ValueError: shapes, dtypes or devices disagree; the message names expected, got and the remedy.
            BackendUnavailable: an explicit backend cannot run here.
        """
        return self._loss(fields, point_weights, data, parameters, keep=False)[0]

    @torch._disable_dynamo
    def evaluate(
        self,
        fields: Tensor,
        point_weights: Tensor | None = None,
        data: Mapping[str, Tensor] | None = None,
        parameters: Mapping[str, Tensor | float] | None = None,
    ) -> Evaluation:
        """The loss with residuals (laid out as `residuals`) and per-equation means; arguments as in `forward`."""
        loss, per_equation, residuals = self._loss(fields, point_weights, data, parameters, keep=True)
        assert residuals is not None
        return Evaluation(loss, residuals, dict(zip(self.pde.equations, per_equation.unbind(0), strict=True)))

    @torch._disable_dynamo
    def residuals(
        self,
        fields: Tensor,
        data: Mapping[str, Tensor] | None = None,
        parameters: Mapping[str, Tensor | float] | None = None,
    ) -> Tensor:
        """Residuals [B, E, *space] or [B, T', E, *space], differentiable to fields, parameters and data."""
        given = self._checked(fields, None, data, parameters, f"{CALLER}.residuals")
        chosen, _ = choice.choose(self.backend, self.scheme, given.fields, given.tensors())
        with no_autocast(fields.device.type):
            found = chosen.run(
                lambda u: _fused().residuals(self.scheme, given.of(u)),
                lambda u: self._torch_residuals(given.of(u)),
                given.fields,
            )
        return found if self.scheme.form.time else found.squeeze(1)

    def explain(self, fields: Tensor) -> GridExplanation:
        """Which backend these fields take and why, the discrete equations, launches and least traffic."""
        inputs.check_fields(fields, self.scheme, f"{CALLER}.explain")
        chosen, reason = choice.choose(
            self.backend, self.scheme, fields if self.scheme.form.time else fields.unsqueeze(1)
        )
        form = self.scheme.form
        names = {part.symbol: part.symbol.func(part.name) for part in form.parts}
        texts = {name: str(r.xreplace(names)) for name, r in zip(self.pde.equations, form.residuals, strict=True)}
        shape = inputs.residual_shape(fields, self.scheme)
        return GridExplanation(
            chosen.backend,
            reason,
            texts,
            self.scheme.describe(),
            form.scheme.name,
            str(inputs.compute_dtype(fields.dtype)).removeprefix("torch."),
            math.prod(shape),
            2 if chosen.backend == "triton" else None,
            3 * fields.numel() * fields.element_size(),
        )

    def extra_repr(self) -> str:
        return f"{self.pde!r}, scheme={self.scheme.form.scheme.name!r}, backend={self.backend!r}"

    # -- inside --------------------------------------------------------------------------------------------------

    def _checked(
        self,
        fields: Tensor,
        point_weights: Tensor | None,
        data: Mapping[str, Tensor] | None,
        parameters: Mapping[str, Tensor | float] | None,
        caller: str,
    ) -> Inputs:
        shape = inputs.check_fields(fields, self.scheme, caller)
        values: dict[str, Tensor | float] = {**self.constants, **self.parameter_values(), **(parameters or {})}
        time = self.scheme.form.time
        return Inputs(
            fields if time else fields.unsqueeze(1),
            inputs.check_parameters(values, self.pde, fields, caller),
            inputs.check_data(data, self.pde, shape, fields, time is not None, caller),
            inputs.check_weights(point_weights, shape, fields, time is not None, caller),
            self.equation_weights.to(fields.device, inputs.compute_dtype(fields.dtype)).contiguous(),
            shape,
        )

    def _torch_residuals(self, given: Inputs) -> Tensor:
        fields = given.fields.to(given.dtype)
        return reference.residuals(self.scheme, fields, self._points(given), given.parameter_tensors(), given.data)

    def _torch_loss(self, given: Inputs) -> tuple[Tensor, Tensor, Tensor | None]:
        r = self._torch_residuals(given)
        squares = r.square() if given.weights is None else given.weights * r.square()
        per_equation = squares.mean(dim=[k for k in range(r.dim()) if k != 2])
        return (per_equation * given.equation_weights).sum(), per_equation, r

    def _points(self, given: Inputs) -> list[Tensor]:
        space = tuple(given.fields.shape[3:])
        key = (space, given.fields.device, given.dtype)
        if key not in self._coordinates:
            self._coordinates.clear()
            found = self.scheme.grid.coordinates(space, given.fields.device, given.dtype)
            self._coordinates[key] = [found[axis] for axis in self.scheme.grid.axes]
        return self._coordinates[key]

    def _loss(
        self,
        fields: Tensor,
        point_weights: Tensor | None,
        data: Mapping[str, Tensor] | None,
        parameters: Mapping[str, Tensor | float] | None,
        keep: bool,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        given = self._checked(fields, point_weights, data, parameters, CALLER)
        chosen, _ = choice.choose(self.backend, self.scheme, given.fields, given.tensors())
        with no_autocast(fields.device.type):
            loss, per_equation, r = chosen.run(
                lambda u: _fused().loss(self.scheme, given.of(u), keep, self.recompute),
                lambda u: self._torch_loss(given.of(u)),
                given.fields,
            )
        if r is not None:
            r = r.detach() if self.scheme.form.time else r.detach().squeeze(1)
        return loss, per_equation.detach(), r


@cache
def _fused() -> Any:
    """The kernels' side, which imports Triton."""
    from pinnfuse.grid import fused

    return fused


def _time(step: float | None, name: str | None) -> tuple[TimeScheme | None, float | None]:
    if name is None and step is None:
        return None, None
    if name is None:
        raise ValueError(f"{CALLER}: `time_step` needs a `time_scheme`, one of {', '.join(map(repr, SCHEMES))}.")
    if name not in SCHEMES:
        raise ValueError(f"{CALLER}: unknown `time_scheme`; got {name!r}. {nearest(name, SCHEMES)}")
    value = number(math.nan if step is None else step, f"{CALLER}: `time_step`")
    if value <= 0:
        raise ValueError(f"{CALLER}: `time_step` must be > 0; got {value:g}. Time levels must be in rising order.")
    return SCHEMES[name], value


__all__ = ["FusedGridResidualLoss", "GridExplanation"]
