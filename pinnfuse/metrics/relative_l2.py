"""Relative L2 error against a reference."""

from __future__ import annotations

import torch
from torch import Tensor
from torchmetrics import Metric


class RelativeL2(Metric):
    r"""$\sqrt{\sum_n |p_n - r_n|^2 / \sum_n |r_n|^2}$ over points and, for a vector field, its components.

    Points whose reference is NaN are masked and do not count. Sums are kept in float64, so the result does not depend
    on how points are split into batches or over processes.

    Args:
        up_to_constant: compare $p - \bar p$ with $r - \bar r$ (a pressure that is fixed up to a constant).
            Use one component only.
        groups: so many groups of points, each of which has a constant of its own (one for each time).
    """

    is_differentiable = False
    higher_is_better = False
    full_state_update = False

    count: Tensor
    error: Tensor
    error_square: Tensor
    reference: Tensor
    reference_square: Tensor

    def __init__(self, up_to_constant: bool = False, groups: int = 1, **kwargs):
        super().__init__(**kwargs)
        self.up_to_constant, self.groups = up_to_constant, groups
        for name in ("count", "error", "error_square", "reference", "reference_square"):
            self.add_state(name, default=torch.zeros(groups, dtype=torch.float64), dist_reduce_fx="sum")
        self.set_dtype(torch.float64)

    def update(self, prediction: Tensor, reference: Tensor, group: Tensor | None = None) -> None:
        """Add points: [N] or [N, components], both of the same shape; `group`: the group [N] of each, 0, 1, ..."""
        if prediction.shape != reference.shape:
            raise ValueError(
                f"RelativeL2: `prediction` must match `reference`, {tuple(reference.shape)}; "
                f"got {tuple(prediction.shape)}"
            )
        if self.up_to_constant and prediction.ndim > 1 and prediction.shape[1] > 1:
            raise ValueError(
                f"RelativeL2: `up_to_constant` takes one component; got {prediction.shape[1]}. Use one metric for each."
            )
        r = reference.double()
        known = ~r.isnan()
        d = torch.where(known, prediction.double() - r, 0.0)
        r = torch.where(known, r, 0.0)
        if group is None:
            group = torch.zeros(len(r), dtype=torch.long, device=r.device)
        parts = {"count": known.double(), "error": d, "error_square": d.square(), "reference": r}
        for name, part in (parts | {"reference_square": r.square()}).items():
            sums = getattr(self, name).double()  # `to(float32)` of a module with metrics takes their sums along
            setattr(self, name, sums.index_add(0, group, part.unsqueeze(-1).flatten(1).sum(1)))

    def compute(self) -> Tensor:
        """The relative error; NaN without a point, infinite if the reference vanishes and the prediction does not."""
        if not self.up_to_constant:
            return (self.error_square.sum() / self.reference_square.sum()).sqrt()
        count = torch.where(self.count > 0, self.count, 1.0)  # less than 1 in a mean over processes
        error = (self.error_square - self.error.square() / count).clamp_min(0)
        return (error.sum() / (self.reference_square - self.reference.square() / count).sum()).sqrt()
