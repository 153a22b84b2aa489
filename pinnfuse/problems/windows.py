"""A problem cut into windows of time, each of which starts where the one before ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from pinnfuse.domains import Box, Face, PointSet, Region, Slice, Union
from pinnfuse.problems.condition import Condition, dirichlet, periodic
from pinnfuse.problems.problem import Problem
from pinnfuse.reference import Reference
from pinnfuse.reference.base import Array

State = Callable[[Tensor, str], Tensor]
"""(points [N, d], "u" or "u_t") -> its values [N] there."""


def edges(problem: Problem, count: int) -> list[float]:
    """The count + 1 ends of equal windows; ValueError if the problem has no time or no initial condition."""
    if count < 1:
        raise ValueError(f"windows: the number of windows must be at least 1; got {count!r}.")
    if "t" not in problem.domain.bounds or not any(c.kind == "initial" for c in problem.conditions):
        raise ValueError(f"windows: {problem.name!r} has no time with an initial condition; train it as a whole.")
    return list(np.linspace(*problem.domain.bounds["t"], count + 1))


def window(problem: Problem, start: float, end: float, state: State | None = None) -> Problem:
    """The problem on start <= t <= end.

    Args:
        problem: with coordinate t.
        start, end: of the window, within the problem's time.
        state: values at `start`, which replace the problem's initial conditions; None keeps those (first window). An
            output transform that holds the initial condition is then dropped, with what else it held: those conditions
            become loss terms.
    """
    box = Box({**problem.domain.bounds, "t": (start, end)})
    held = {c.name: c.kind for c in problem.conditions if c.name in problem.hard_conditions}
    keeps_hard = state is None or "initial" not in held.values()
    return dataclasses.replace(
        problem,
        domain=box,
        conditions=tuple(_on_window(c, problem, box, state) for c in problem.conditions),
        reference=_Part(problem.reference, start, end),
        hard=problem.hard if keeps_hard else None,
        hard_conditions=problem.hard_conditions if keeps_hard else (),
    )


def _on_window(condition: Condition, problem: Problem, box: Box, state: State | None) -> Condition:
    if condition.kind == "initial" and state is not None:
        values = {jet: _at(state, jet) for jet in _prescribed(condition)}
        return dirichlet(condition.name, problem.pde, box.initial(), values, condition.weight, kind="initial")
    if condition.kind == "periodic":
        name = next(c for c, s in zip(box.coordinates, condition.shift or (), strict=True) if s)
        order = max(jet.order for jet in condition.pde.derivatives)
        fields = list(dict.fromkeys(jet.field for jet in condition.pde.derivatives))
        return periodic(condition.name, problem.pde, box, name, fields, order, condition.weight)
    observed = condition.observed
    if observed is not None and isinstance(condition.region, PointSet):
        kept = _inside(condition.region, box)
        observed = {name: column[kept.to(column.device)] for name, column in observed.items()}
    return dataclasses.replace(condition, region=_on_box(condition.region, box), observed=observed)


def _prescribed(condition: Condition) -> list[str]:
    """The jets whose values an initial condition gives."""
    return [str(jet) for jet in condition.pde.derivatives]


def _at(state: State, jet: str) -> Callable[[Tensor], Tensor]:
    return lambda points: state(points, jet)


def _on_box(region: Region, box: Box) -> Region:
    """The same part of another box."""
    match region:
        case Union():
            return Union(*(_on_box(part, box) for part in region.regions))
        case Face():
            return Face(box, region.coordinate, region.side)
        case Slice():
            return Slice(box, region.values)
        case Box():
            return box
        case PointSet():
            return PointSet(region.points[_inside(region, box)], region.coordinates)
    raise ValueError(f"windows: a condition on {type(region).__name__} cannot be cut in time.")


def _inside(region: PointSet, box: Box) -> Tensor:
    low, high = box.bounds["t"]
    t = region.points[:, box.axis("t")]
    return (t >= low) & (t <= high)


class _Part(Reference):
    """A reference within a window."""

    def __init__(self, whole: Reference, start: float, end: float):
        self.whole, self.start, self.end = whole, start, end
        self.fields, self.coordinates = whole.fields, whole.coordinates

    def solution(self, points: ArrayLike) -> Array:
        return self.whole.solution(points)

    def grid(self) -> dict[str, Array]:
        axes = self.whole.grid()
        kept = axes["t"][self._inside(axes["t"])]
        return axes | {"t": kept if len(kept) else np.array([self.end])}

    def evaluation(self) -> tuple[Array, Array]:
        points, values = self.whole.evaluation()
        kept = self._inside(points[:, self.coordinates.index("t")])
        return points[kept], values[kept]

    def _inside(self, t: Array) -> NDArray[np.bool_]:
        slack = 1e-9 * (self.end - self.start)
        return (t >= self.start - slack) & (t <= self.end + slack)


class Windowed(torch.nn.Module):
    """Networks of successive windows as one: [N, d] -> [N, m], each point by the network of its window."""

    def __init__(self, nets: Sequence[torch.nn.Module], ends: Sequence[float], column: int):
        super().__init__()
        self.nets = torch.nn.ModuleList(nets)
        self.ends, self.column = list(ends), column

    def forward(self, points: Tensor) -> Tensor:
        inner = torch.tensor(self.ends[1 : len(self.nets)], dtype=points.dtype, device=points.device)
        index = torch.searchsorted(inner, points[:, self.column].contiguous())
        parts = [net(points[index == k]) for k, net in enumerate(self.nets)]
        out = points.new_empty(len(points), parts[0].shape[1])
        for k, part in enumerate(parts):
            out[index == k] = part
        return out
