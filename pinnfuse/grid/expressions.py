"""A user's own expression of fields and their derivatives as an operator: one kernel forward, one backward, rows at
walls, by the generator of residual losses."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import torch
from torch import Tensor

from pinnfuse.grid.grid import Grid
from pinnfuse.grid.residual import FusedGridResidualLoss
from pinnfuse.pde import PDE


class ExpressionOperator:
    """`operator(u, v, ...)`, each `[..., *space]`, to the same shape; made by `expression`."""

    def __init__(self, text: str, fields: tuple[str, ...], grid: Grid, parameters: Mapping[str, float], backend: str):
        self.text, self.fields, self.grid = text, fields, grid
        pde = PDE(fields, grid.axes, parameters=dict(parameters), equations={"value": text})
        self._residual = FusedGridResidualLoss(pde, grid, backend=backend)

    def __call__(self, *tensors: Tensor) -> Tensor:
        if len(tensors) != len(self.fields):
            raise ValueError(
                f"expression {self.text!r}: takes one tensor for each of {', '.join(self.fields)}; got {len(tensors)}."
            )
        d = self.grid.dimension
        for name, tensor in zip(self.fields, tensors, strict=True):
            self.grid.check(tensor, f"expression {self.text!r}", name)
        whole = torch.stack(torch.broadcast_tensors(*tensors), dim=-d - 1)
        flat = whole.reshape(-1, *whole.shape[-d - 1 :])
        return self._residual.to(whole.device).residuals(flat).reshape(*whole.shape[: -d - 1], *whole.shape[-d:])


@lru_cache(maxsize=64)
def _operator(
    text: str, fields: tuple[str, ...], grid: Grid, parameters: tuple[tuple[str, float], ...], backend: str
) -> ExpressionOperator:
    return ExpressionOperator(text, fields, grid, dict(parameters), backend)


def expression(
    text: str, grid: Grid, *, fields: str = "u", backend: str = "auto", **parameters: float
) -> ExpressionOperator:
    """An operator from text, pointwise or with derivatives.

        swish = expression("u / (1 + exp(-u))", grid)
        transport = expression("k*(u_xx + u_yy) - u*u_x + sin(v)", grid, fields="u v", k=0.1)
        rate = transport(u, v)

    Args:
        text: of the fields, the axes' names, `u_x`, `u_xy`, `D(u**2, x)`, functions and parameters, as in `PDE`.
        grid: gives axes and boundaries, those of every field.
        fields: their names, in the order of the arguments.
        backend: "auto", "torch" or "triton".
        parameters: numbers.

    Raises:
        ValueError: text that `PDE` does not understand; tensors that do not fit the grid.
    """
    return _operator(text, tuple(fields.replace(",", " ").split()), grid, tuple(sorted(parameters.items())), backend)
