"""Boundary and initial conditions and observations: each one is a small PDE on a set of points."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from pinnfuse.domains import Box, Face, PointSet, Region
from pinnfuse.errors import nearest
from pinnfuse.pde import PDE, Jet, parse_jet
from pinnfuse.problems.weighting import Weighting

Value: TypeAlias = "str | float | Callable[[Tensor], Tensor]"
"""A prescribed value: text in the coordinates and parameters, a number, or a function of the [n, d] points -> [n]."""


@dataclass
class Condition:
    """One loss term: the residual of `pde` on points of `region`.

    A periodic condition is a two-point term: with R the residual of `pde` (the jets themselves), the loss is that of
    R(points + shift) - R(points).
    """

    name: str
    """Name of the loss term"""
    pde: PDE
    """What is to vanish; its fields, coordinates and their order are those of the problem"""
    region: Region
    """Where"""
    kind: str = "dirichlet"
    """"dirichlet", "neumann", "robin", "initial", "periodic" or "observations\""""
    weight: float = 1.0
    """Weight of the mean squared residual in the loss"""
    targets: Callable[[Tensor], dict[str, Tensor]] | None = None
    """[n, d] points -> {data column of `pde`: [n]}; None where `pde` has no data columns or `observed` holds them"""
    shift: tuple[float, ...] | None = None
    """Translation from the low to the high face, periodic conditions only"""
    weighting: Weighting | None = None
    """Weight of a point in the mean squared residual: text in the coordinates, or a function"""
    observed: dict[str, Tensor] | None = None
    """{data column: [N]} beside the rows of a `PointSet` region, observations only"""

    def __post_init__(self) -> None:
        if not self.weight >= 0:
            raise ValueError(f"Condition {self.name!r}: `weight` must be >= 0; got {self.weight!r}.")

    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        method: str = "sobol",
    ) -> tuple[Tensor, dict[str, Tensor] | None]:
        """Points [n, d] of the region and the data columns there, ready for `FusedResidualLoss(self.pde)`."""
        if self.observed is not None and isinstance(self.region, PointSet):
            index = self.region.indices(n, generator, device)
            data = {name: column.to(index.device, dtype)[index] for name, column in self.observed.items()}
            return self.region.at(index, dtype), data
        points = self.region.sample(n, generator, device, dtype, method)
        return points, None if self.targets is None else self.targets(points)


def dirichlet(
    name: str, pde: PDE, region: Region, values: Mapping[str, Value], weight: float = 1.0, kind: str = "dirichlet"
) -> Condition:
    """Fields, or any of their derivatives, take given values: `dirichlet("lid", pde, top, {"u": 1, "v": 0})`.

    Args:
        name: of the loss term.
        pde: the problem's PDE: gives fields, coordinates and parameters.
        region: where it holds.
        values: {"u" or "u_t" ...: value}; a value is text, a number, or a function of the points.

    Raises:
        ValueError: unknown field or derivative, or a value that does not parse.
    """
    equations, functions = {}, {}
    for jet, value in values.items():
        text, function = _term(value, jet)
        equations[_equation_name(jet, pde)] = f"{_jet_text(jet, pde, name)} - ({text})"
        if function is not None:
            functions[text] = function
    return _condition(name, kind, pde, region, equations, functions, weight)


def initial(name: str, pde: PDE, region: Region, values: Mapping[str, Value], weight: float = 1.0) -> Condition:
    """Values at the start: `initial("initial", pde, box.initial(), {"u": "sin(pi*x)", "u_t": 0})`."""
    return dirichlet(name, pde, region, values, weight, kind="initial")


def neumann(name: str, pde: PDE, face: Region, values: Mapping[str, Value], weight: float = 1.0) -> Condition:
    """The outward normal derivative du/dn of fields on one face of a box takes given values."""
    return _normal("neumann", name, pde, face, {field: (0.0, 1.0, value) for field, value in values.items()}, weight)


def robin(
    name: str, pde: PDE, face: Region, values: Mapping[str, tuple[float, float, Value]], weight: float = 1.0
) -> Condition:
    """a u + b du/dn = g on one face of a box, given as {field: (a, b, g)}; n points outward."""
    return _normal("robin", name, pde, face, values, weight)


def periodic(
    name: str,
    pde: PDE,
    box: Box,
    coordinate: str,
    fields: Sequence[str] | None = None,
    order: int = 1,
    weight: float = 1.0,
) -> Condition:
    """Fields and their normal derivatives up to `order` agree on the two faces of a coordinate.

    An equation of order m in the coordinate needs m - 1 derivatives. The pde of the condition holds the jets to
    compare, its region is the low face, its shift leads to the high one.
    """
    axis = box.axis(coordinate)
    low, high = box.bounds[coordinate]
    equations = {}
    for field in pde.fields if fields is None else fields:
        for k in range(order + 1):
            index = tuple(k if i == axis else 0 for i in range(len(pde.coordinates)))
            jet = Jet(field, index, pde.coordinates)
            equations[_equation_name(str(jet), pde)] = _jet_text(str(jet), pde, name)
    condition = _condition(name, "periodic", pde, box.face(coordinate, "low"), equations, {}, weight)
    condition.shift = tuple(high - low if i == axis else 0.0 for i in range(len(pde.coordinates)))
    return condition


def observations(name: str, pde: PDE, points: Tensor, values: Mapping[str, Tensor], weight: float = 1.0) -> Condition:
    """Measured values of fields (or derivatives) at scattered points.

    Args:
        points: [N, d] in the order of the coordinates.
        values: {field: [N]}.

    Raises:
        ValueError: lengths differ, a value is not finite, or an unknown field.
    """
    region = PointSet(points, pde.coordinates)
    equations, observed = {}, {}
    for jet, column in values.items():
        column = torch.as_tensor(column).detach().to("cpu", torch.float64)
        if column.shape != (len(region),):
            raise ValueError(
                f"observations: `values[{jet!r}]` must be [{len(region)}], one per point; got {tuple(column.shape)}."
            )
        if not bool(column.isfinite().all()):
            raise ValueError(f"observations: `values[{jet!r}]` must be finite; drop the rows that hold NaN or Inf.")
        equations[_equation_name(jet, pde)] = f"{_jet_text(jet, pde, name)} - observed_{jet}"
        observed[f"observed_{jet}"] = column
    small = _small_pde(name, pde, equations, tuple(observed))
    return Condition(name, small, region, "observations", weight, observed=observed)


def _normal(
    kind: str, name: str, pde: PDE, face: Region, values: Mapping[str, tuple[float, float, Value]], weight: float
) -> Condition:
    if not isinstance(face, Face):
        raise ValueError(
            f"{kind}: condition {name!r} needs one face of a box, whose normal is known; got {face!r}. "
            "Make one condition for each side, with box.face(coordinate, 'low') and 'high'."
        )
    equations, functions = {}, {}
    for field, (a, b, value) in values.items():
        text, function = _term(value, field)
        derivative = f"D({_jet_text(field, pde, name)}, {face.coordinate})"
        value_part = f"{a!r}*{field} + " if a else ""
        equations[field] = f"{value_part}{b * face.normal!r}*{derivative} - ({text})"
        if function is not None:
            functions[text] = function
    return _condition(name, kind, pde, face, equations, functions, weight)


def _term(value: Value, jet: str) -> tuple[str, Callable[[Tensor], Tensor] | None]:
    """The text of a value; a function becomes a data column."""
    if callable(value):
        return f"given_{jet}", value
    return (value, None) if isinstance(value, str) else (repr(float(value)), None)


def _jet_text(jet: str, pde: PDE, name: str) -> str:
    parse_jet(jet, pde.fields, pde.coordinates, f"condition {name!r}: each name")
    return jet


def _equation_name(jet: str, pde: PDE) -> str:
    return re.sub(r"\W+", "_", jet).strip("_")


def _small_pde(name: str, pde: PDE, equations: Mapping[str, str], data: Sequence[str]) -> PDE:
    """A PDE with the fields and coordinates of `pde`, and those of its parameters that the equations use."""
    used = set(re.findall(r"[A-Za-z_]\w*", " ".join(equations.values())))
    parameters = [parameter for key, parameter in pde.parameters.items() if key in used]
    return PDE(
        fields=pde.fields,
        coordinates=pde.coordinates,
        parameters=parameters,
        equations=dict(equations),
        data=tuple(data),
        name=name,
    )


def _condition(
    name: str,
    kind: str,
    pde: PDE,
    region: Region,
    equations: Mapping[str, str],
    functions: Mapping[str, Callable[[Tensor], Tensor]],
    weight: float,
) -> Condition:
    if region.coordinates != pde.coordinates:
        raise ValueError(
            f"{kind}: region of condition {name!r} has coordinates {region.coordinates}, the PDE {pde.coordinates}. "
            "They must agree, in the same order."
        )
    small = _small_pde(name, pde, equations, tuple(functions))
    targets = (lambda points: {key: f(points) for key, f in functions.items()}) if functions else None
    return Condition(name, small, region, kind, weight, targets)


def named(conditions: Sequence[Condition], name: str) -> Condition:
    """The condition of that name; a wrong name raises ValueError with the nearest."""
    for condition in conditions:
        if condition.name == name:
            return condition
    raise ValueError(f"no condition {name!r}. {nearest(name, [c.name for c in conditions])}")
