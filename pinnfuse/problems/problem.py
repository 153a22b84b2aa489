"""A problem: PDE, domain, conditions, reference solution, and how to train it by default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pinnfuse.domains import Box
from pinnfuse.errors import nearest
from pinnfuse.pde import PDE
from pinnfuse.problems.condition import Condition
from pinnfuse.problems.spec import ModelSpec, TrainingSpec
from pinnfuse.problems.weighting import Weighting
from pinnfuse.reference import Reference
from pinnfuse.reference.base import Array


@dataclass
class Problem:
    """Everything a PINN needs to know of one case. Build your own, or take one from `pinnfuse.problems.get`.

    Raises:
        ValueError: parts that do not fit together (coordinates, names of fields and conditions).
    """

    name: str
    """Name among the problems of one PDE, e.g. "taylor_green\""""
    pde_name: str
    """Name of the PDE, e.g. "navier_stokes\""""
    title: str
    """One line for people"""
    pde: PDE
    """The equations of the interior"""
    domain: Box
    """Where they hold"""
    conditions: tuple[Condition, ...]
    """Boundary and initial conditions, observations"""
    reference: Reference
    """The solution to compare with"""
    hard: dict[str, str] | None = None
    """Output transform {field: text} that makes `hard_conditions` exact; on the right, a field is the raw output, and
    constants of the PDE have their present value"""
    hard_conditions: tuple[str, ...] = ()
    """Names of conditions that need no loss term under `hard` and `inputs`"""
    inputs: dict[str, str] = field(default_factory=dict)
    """Input transform {coordinate: text} that helps to make `hard_conditions` exact, see `pinnfuse.problems.hard`"""
    periodic: dict[str, float] = field(default_factory=dict)
    """{coordinate: period} for an exactly periodic embedding; conditions of kind "periodic" then need no loss term"""
    weighting: Weighting | None = None
    """Weight of a point of the interior in the mean squared residuals: text in the coordinates, or a function"""
    metrics: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """{name: fields} whose relative L2 error is reported; by default one per field"""
    up_to_constant: tuple[str, ...] = ()
    """Fields that are determined up to an additive constant; where there is time, up to one at each time"""
    true_parameters: dict[str, float] = field(default_factory=dict)
    """Values that trained parameters should find, inverse problems only"""
    model: ModelSpec = field(default_factory=ModelSpec)
    """The default network"""
    training: TrainingSpec = field(default_factory=TrainingSpec)
    """The default schedule"""

    def __post_init__(self) -> None:
        self.conditions = tuple(self.conditions)
        if self.domain.coordinates != self.pde.coordinates:
            raise ValueError(
                f"Problem {self.name!r}: `domain` has coordinates {self.domain.coordinates}, the PDE "
                f"{self.pde.coordinates}. They must agree, in the same order."
            )
        if not isinstance(self.reference, Reference):
            raise ValueError(
                f"Problem {self.name!r}: `reference` must be of `pinnfuse.reference`, e.g. ClosedForm; got "
                f"{type(self.reference).__name__}. Where no solution is known, take Unknown."
            )
        names = [condition.name for condition in self.conditions]
        if len(set(names)) < len(names) or set(names) & set(self.pde.equations):
            raise ValueError(f"Problem {self.name!r}: names of conditions and equations must differ; got {names}.")
        self.metrics = dict(self.metrics) or {name: (name,) for name in self.pde.fields}
        groups: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
            "hard": (tuple(self.hard or ()), self.pde.fields),
            "inputs": (tuple(self.inputs), self.pde.coordinates),
            "hard_conditions": (self.hard_conditions, tuple(names)),
            "periodic": (tuple(self.periodic), self.pde.coordinates),
            "metrics": (tuple(f for fields in self.metrics.values() for f in fields), self.pde.fields),
            "up_to_constant": (self.up_to_constant, self.pde.fields),
        }
        for argument, (given, known) in groups.items():
            for name in given:
                if name not in known:
                    raise ValueError(f"Problem {self.name!r}: `{argument}` names {name!r}. {nearest(name, known)}")

    @property
    def headline(self) -> tuple[str, ...]:
        """The metrics to show where there is little room: those of several fields (the velocity), else all."""
        return tuple(name for name, fields in self.metrics.items() if len(fields) > 1) or tuple(self.metrics)

    def soft_conditions(self, hard: bool = True, periodic: bool = True) -> tuple[Condition, ...]:
        """The conditions that remain loss terms when the output transform and the periodic embedding are (not) used."""
        return tuple(
            c
            for c in self.conditions
            if not (hard and (self.hard or self.inputs) and c.name in self.hard_conditions)
            and not (periodic and self.periodic and c.kind == "periodic")
        )

    def free(self, fields: Sequence[str]) -> bool:
        """Whether all of them are determined up to a constant only."""
        return set(fields) <= set(self.up_to_constant)

    @cached_property
    def times(self) -> Array:
        """The times [T] of the points of `evaluation_points`, where each has points enough to know a constant from.

        One time that stands for all otherwise (no time, or scattered points of many times).
        """
        if "t" not in self.domain.bounds:
            return np.zeros(1)
        points = self.reference.evaluation()[0]
        times = np.unique(points[:, self.domain.axis("t")])
        return times if len(points) >= 10 * len(times) else times[:1]

    def time_of(self, points: Tensor) -> Tensor:
        """Index [N] in `times` of the nearest time of each point [N, d]."""
        t = points[:, self.domain.axis("t")].contiguous()
        times = torch.as_tensor(self.times).to(t)
        return torch.bucketize(t, (times[1:] + times[:-1]) / 2)

    def evaluation_points(self) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Points [N, d], reference values [N, m] and the mask [N, m] of those that count (not NaN).

        The points are the reference's grid, or its scattered points where it has those.
        """
        points, values = self.reference.evaluation()
        return points, values, np.isfinite(values)
