"""The loss of a problem: the residual in its interior and one term for each condition."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from pinnfuse import parallel
from pinnfuse.balancing import PointWeights
from pinnfuse.domains.box import constant
from pinnfuse.errors import nearest
from pinnfuse.problems import Condition, Problem
from pinnfuse.residual import Evaluation, FusedResidualLoss

INTERIOR = "interior"


class Points(Protocol):
    """Points of one term, as `CollocationDataModule` draws them."""

    @property
    def points(self) -> Tensor: ...

    @property
    def data(self) -> dict[str, Tensor] | None: ...

    @property
    def weights(self) -> Tensor | None: ...


class ProblemLoss(nn.Module):
    r"""$L = \sum_e w_e L_e + \sum_c w_c L_c$ over equations e and conditions c, each a mean of squared residuals.

    Args:
        problem: whose PDE holds in the interior.
        conditions: those that are loss terms; None takes all of the problem.
        weights: {equation or condition: weight}; a condition's own weight otherwise, 1 for an equation.
        backend, precision: as in `FusedResidualLoss`.

    Raises:
        ValueError: `weights` names neither an equation nor a condition.
    """

    def __init__(
        self,
        problem: Problem,
        conditions: Sequence[Condition] | None = None,
        weights: Mapping[str, float] | None = None,
        backend: str = "auto",
        precision: str | None = None,
    ):
        super().__init__()
        conditions = problem.conditions if conditions is None else tuple(conditions)
        weights = dict(weights or {})
        known = [*problem.pde.equations, *(c.name for c in problem.conditions)]
        for name in weights:
            if name not in known:
                raise ValueError(f"loss_weights: no equation or condition {name!r}. {nearest(name, known)}")
            if not (math.isfinite(weights[name]) and weights[name] >= 0):
                raise ValueError(
                    f"loss_weights: the weight of {name!r} must be finite and >= 0; got {weights[name]!r}."
                )
        equations = {name: weights[name] for name in problem.pde.equations if name in weights}
        self.interior = FusedResidualLoss(problem.pde, backend, precision, equation_weights=equations)
        self.conditions = nn.ModuleList(FusedResidualLoss(c.pde, backend, precision) for c in conditions)
        for term in self.losses()[1:]:  # a trained parameter that also occurs in a condition is one parameter
            for name in term.trained:
                if name in self.interior.trained:
                    term.trained[name] = self.interior.trained[name]
        self.names = [c.name for c in conditions]
        own = [float(weights.get(c.name, c.weight)) for c in conditions]
        self.weights: Tensor  # of the conditions; like the equations' weights, they may be changed in place
        self.register_buffer("weights", torch.tensor(own, dtype=torch.float64))
        self.shifts = [c.shift for c in conditions]
        self._own = {
            **dict.fromkeys(problem.pde.equations, 1.0),
            **equations,
            **dict(zip(self.names, own, strict=True)),
        }
        self.point_weights = nn.ModuleDict()
        """Term -> its `PointWeights`; see `weigh_points`."""
        self._seen: dict[str, tuple[Tensor, Tensor]] = {}

    def forward(self, net: nn.Module, batch: Mapping[str, Points]) -> tuple[Tensor, dict[str, Tensor]]:
        """The weighted total, differentiable, and every term without its weight, detached.

        Args:
            net: [N, coordinates] -> [N, fields].
            batch: {"interior" or condition: its points and data columns}.
        """
        interior = batch[INTERIOR]
        inside = self._evaluate(INTERIOR, self.interior, net, interior)
        total, terms = inside.loss, dict(inside.per_equation)
        weights = self.weights.to(interior.points).unbind(0)
        for name, weight, loss in zip(self.names, weights, self._condition_losses(net, batch), strict=True):
            terms[name] = loss.detach()
            total = total + weight * loss
        return total, terms

    def separate(self, net: nn.Module, batch: Mapping[str, Points]) -> dict[str, Tensor]:
        """Every term without its weight, differentiable: one pass for each equation."""
        terms = {}
        interior, kept = batch[INTERIOR], self.interior.equation_weights.clone()
        try:
            for k, name in enumerate(self.interior.pde.equations):
                self.interior.equation_weights.zero_()[k] = 1.0
                terms[name] = self._evaluate(INTERIOR, self.interior, net, interior).loss
        finally:
            self.interior.equation_weights.copy_(kept)
        return terms | dict(zip(self.names, self._condition_losses(net, batch), strict=True))

    def kernels(
        self, net: nn.Module, batch: Mapping[str, Points], parameters: Sequence[Tensor], points: int = 256
    ) -> dict[str, Tensor]:
        """Mean over the first `points` of each term of |d r / d parameters|^2: the trace of its NTK over its size.

        In a data-parallel run those of every rank, with a factor that makes the mean over ranks that over points.
        """
        found: dict[str, Tensor] = {}
        names = [INTERIOR, *self.names]
        counts = [min(points, len(batch[name].points)) for name in names]
        shares = parallel.shares(counts, batch[INTERIOR].points.device)
        for name, share, term in zip(names, shares, self.losses(), strict=True):
            drawn = batch[name]
            chosen = drawn.points[:points]
            data = None if drawn.data is None else {key: column[:points] for key, column in drawn.data.items()}
            rows = torch.cat([j.square().sum(1) for _, j in term.linearise(net, chosen, parameters, None, data)])
            scale = term.equation_weights.to(rows) / len(chosen)  # of the rows, which are weighted
            traces = (rows.view(len(chosen), -1) / scale.clamp_min(torch.finfo(rows.dtype).tiny)).mean(0) * share.to(
                rows
            )
            found |= dict(zip(term.pde.equations, traces, strict=True)) if name == INTERIOR else {name: traces.sum()}
        return found

    def set_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Multiply the weights that the loss was made with; in place, so that a captured step sees it."""
        for k, name in enumerate(self.interior.pde.equations):
            self.interior.equation_weights[k] = weights[name] * self._own[name]
        for k, name in enumerate(self.names):
            self.weights[k] = weights[name] * self._own[name]

    def weigh_points(self, term: str, weights: PointWeights) -> None:
        """Weights of the points of a term ("interior" or a condition), updated by `update_point_weights`."""
        if term not in (INTERIOR, *self.names):
            raise ValueError(f"weigh_points: no term {term!r}. {nearest(term, [INTERIOR, *self.names])}")
        self.point_weights[term] = weights

    def update_point_weights(self) -> None:
        """Once a step: learn from the residuals of the last evaluation."""
        for name, (points, residuals) in self._seen.items():
            self.point_weights[name].update(points, residuals)  # type: ignore[operator]
        self._seen = {}

    def _condition_losses(self, net: nn.Module, batch: Mapping[str, Points]) -> Iterator[Tensor]:
        for name, shift, term in zip(self.names, self.shifts, self.losses()[1:], strict=True):
            drawn = batch[name]
            if shift is not None:
                yield _two_point(term, net, drawn, shift)
            elif name in self.point_weights:
                yield self._evaluate(name, term, net, drawn).loss
            else:
                yield term(net, drawn.points, drawn.weights, drawn.data)

    def _evaluate(self, name: str, term: FusedResidualLoss, net: nn.Module, drawn: Points) -> Evaluation:
        result = term.evaluate(net, drawn.points, self._weights(name, drawn), drawn.data)
        if name in self.point_weights and torch.is_grad_enabled():
            self._seen[name] = (drawn.points, result.residuals)
        return result

    def _weights(self, name: str, drawn: Points) -> Tensor | None:
        if name not in self.point_weights:
            return drawn.weights
        weights = self.point_weights[name](drawn.points)
        return weights if drawn.weights is None else weights * drawn.weights

    def linearise(
        self, net: nn.Module, batch: Mapping[str, Points], parameters: Sequence[Tensor]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Residuals and Jacobian of all terms, see `FusedResidualLoss.linearise`; their squares add up to the loss."""
        for name, root, term in self._weighted(batch):
            drawn = batch[name]
            for r, jacobian in term.linearise(net, drawn.points, parameters, self._weights(name, drawn), drawn.data):
                yield (r, jacobian) if root is None else (r * root, jacobian.mul_(root))

    @torch.no_grad()
    def residuals(self, net: nn.Module, batch: Mapping[str, Points]) -> tuple[Tensor, dict[str, Tensor]]:
        """The residuals [M] of `linearise` without their Jacobian, and every term without its weight."""
        vectors: list[Tensor] = []
        terms: dict[str, Tensor] = {}
        for name, root, term in self._weighted(batch):
            drawn = batch[name]
            r, means = term.weighted_residuals(net, drawn.points, self._weights(name, drawn), drawn.data)
            vectors.append(r if root is None else r * root)
            terms |= means if name == INTERIOR else {name: r.square().sum()}
        return torch.cat(vectors), terms

    def _weighted(self, batch: Mapping[str, Points]) -> Iterator[tuple[str, Tensor | None, FusedResidualLoss]]:
        """Every term with the root of its weight: a tensor, which a graph reads anew."""
        roots = [None, *self.weights.to(batch[INTERIOR].points).sqrt().unbind(0)]
        names, shifts = [INTERIOR, *self.names], [None, *self.shifts]
        for name, root, shift, term in zip(names, roots, shifts, self.losses(), strict=True):
            if shift is not None:
                raise ValueError(
                    f"the condition {name!r} compares two faces, which has no Jacobian here. Make the network periodic "
                    "(`periodic` of the problem), or use a method that needs gradients only."
                )
            yield name, root, term

    def losses(self) -> list[FusedResidualLoss]:
        """The loss of the interior, then that of each condition."""
        return [self.interior, *self.conditions]

    def set_parameter(self, name: str, value: float) -> None:
        """Change a constant parameter of the PDE wherever it occurs; see `FusedResidualLoss.set_parameter`."""
        self.interior.set_parameter(name, value)
        for term in self.losses()[1:]:
            if name in term.constants:
                term.set_parameter(name, value)

    def set_backend(self, backend: str) -> None:
        """Compute every term with another backend from now on."""
        for term in self.losses():
            term.backend = backend

    def check_finite(self, check: bool) -> None:
        """Look for NaN and Inf in the points of every term from now on, or stop doing so."""
        for term in self.losses():
            term.check_finite = check


def _two_point(term: FusedResidualLoss, net: nn.Module, drawn: Points, shift: Sequence[float]) -> Tensor:
    """sum_e mean_n w_n (R_e(x + shift) - R_e(x))^2, which compares two faces of a periodic domain."""
    points = drawn.points
    there = points + constant(tuple(shift), points.dtype, points.device)
    r = term.residuals(net, torch.cat([points, there]))
    squares = (r[len(points) :] - r[: len(points)]).square().sum(1)
    return squares.mean() if drawn.weights is None else (drawn.weights * squares).mean()
