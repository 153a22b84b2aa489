"""From a PDE to the channels that a network has to carry for it, and its residuals in terms of those channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import sympy
import torch

from pinnfuse.jets.space import ChannelSpace, MultiIndex, Operator
from pinnfuse.pde import PDE, Jet, torch_function
from pinnfuse.remembered import hashed_once


@dataclass(frozen=True)
class Output:
    """One number that leaves the network per point: channel `channel` of output column `column`."""

    column: int
    channel: int


@hashed_once
@dataclass(frozen=True)
class JetPlan:
    """What to propagate (`space`), what to read off (`outputs`), and the residuals as functions of what was read.

    Attributes:
        space: the channels.
        outputs: what the residuals read, in the order of `output_symbols`.
        residuals: per equation, an expression in `output_symbols`, coordinates, parameters and data.
        constants: names of the PDE's constant parameters, whose values are given at run time.
        trained: names of the trained parameters.
    """

    pde: PDE
    space: ChannelSpace
    outputs: tuple[Output, ...]
    output_symbols: tuple[sympy.Symbol, ...]
    residuals: tuple[sympy.Expr, ...]
    constants: tuple[str, ...] = field(default=())
    trained: tuple[str, ...] = field(default=())

    @cached_property
    def arguments(self) -> tuple[sympy.Symbol, ...]:
        """Arguments of `residual_function`: outputs, coordinates, constants, trained parameters, data columns."""
        pde = self.pde
        return (
            *self.output_symbols,
            *(pde.coordinate_symbols[name] for name in pde.coordinates),
            *(pde.parameter_symbols[name] for name in (*self.constants, *self.trained)),
            *(pde.data_symbols[name] for name in pde.data),
        )

    @cached_property
    def residual_function(self):
        """`f(*arguments) -> (r_1, ..., r_E)` in torch."""
        return torch_function(self.residuals, self.arguments)

    @cached_property
    def upstream_symbols(self) -> tuple[sympy.Symbol, ...]:
        """q_e, the derivative of the loss by residual e."""
        return tuple(sympy.Symbol(f"q{e}!", real=True) for e in range(len(self.residuals)))  # "!": in no PDE

    @cached_property
    def adjoint(self) -> tuple[sympy.Expr, ...]:
        """`sum_e q_e dr_e/ds` for every output s, then for every trained parameter; a jump has no slope."""
        targets = (*self.output_symbols, *(self.pde.parameter_symbols[name] for name in self.trained))
        pairs = tuple(zip(self.upstream_symbols, self.residuals, strict=True))
        slopes = (sympy.Add(*(q * sympy.diff(r, s) for q, r in pairs)) for s in targets)
        return tuple(slope.replace(sympy.DiracDelta, lambda *_: sympy.S.Zero) for slope in slopes)

    @cached_property
    def adjoint_function(self):
        """`f(*arguments, *upstream) -> adjoint` in torch."""
        return torch_function(self.adjoint, (*self.arguments, *self.upstream_symbols))

    def constant_tensors(self, constants: dict[str, float]) -> list[torch.Tensor]:
        """Values of the constant parameters for `residual_function`: 0-d on the host, so no promotion and no copy."""
        return [torch.tensor(constants[name], dtype=torch.float64) for name in self.constants]

    def channel_names(self) -> tuple[str, ...]:
        """For people: `1, x, y, D = t - nu*xx - nu*yy`."""
        names = [_derivative_name(alpha, self.pde.coordinates) for alpha in self.space.indices]
        for operator in self.space.operators:
            members = sympy.Add(
                *(c * sympy.Symbol("d_" + _derivative_name(alpha, self.pde.coordinates)) for alpha, c in operator.terms)
            )
            names.append(f"({members})")
        return tuple(names)

    def coefficients(self, constants: dict[str, float]) -> list[float]:
        """Values of `space.coefficients` for given constant parameters."""
        key = tuple(constants.items())
        if self._coefficients.get("key") != key:  # sympy at every call would outlast a small network
            values = {self.pde.parameter_symbols[name]: sympy.Float(value, 17) for name, value in key}
            self._coefficients["values"] = [_finite(c, c.xreplace(values), constants) for c in self.space.coefficients]
            self._coefficients["key"] = key
        return self._coefficients["values"]

    @cached_property
    def _coefficients(self) -> dict[str, Any]:
        """The last answer of `coefficients`: constants rarely change."""
        return {}


def _finite(expression: sympy.Expr, value: sympy.Expr, constants: dict[str, float]) -> float:
    if not value.is_finite or not value.is_real:
        raise ValueError(
            f"the coefficient {expression} of a derivative must be a finite real number; got {value} for "
            f"{', '.join(f'{s} = {constants[str(s)]:g}' for s in expression.free_symbols)}. Change that parameter."
        )
    return float(value)


def _derivative_name(alpha: MultiIndex, coordinates: Sequence[str]) -> str:
    return "".join(name * count for name, count in zip(coordinates, alpha, strict=True)) or "1"


@lru_cache(maxsize=256)
def plan(pde: PDE, collapse: bool = True) -> JetPlan:
    """Channels and residuals for a PDE; with `collapse`, derivatives that only occur linearly share operator channels.

    A derivative d^alpha is *collapsible* if in every equation and for every field its factor is a number or a constant
    parameter, and no other derivative needs it as a sub-block. Each (equation, field) then sees one vector of factors
    over the collapsible derivatives; proportional vectors share one operator channel.
    """
    constants = tuple(name for name, p in pde.parameters.items() if not p.trainable)
    trained = tuple(name for name, p in pde.parameters.items() if p.trainable)
    operators, use = _collapse(pde, constants) if collapse else ((), {})
    collapsed = {alpha for operator in operators for alpha, _ in operator.terms}
    kept = [jet.index for jet in pde.derivatives if jet.index not in collapsed]
    space = ChannelSpace.spanning(len(pde.coordinates), kept, operators)

    column = {name: i for i, name in enumerate(pde.fields)}
    replace: dict[sympy.Symbol, sympy.Expr] = {}
    outputs: dict[Output, sympy.Symbol] = {}
    for jet, symbol in pde.jet_symbols.items():
        if jet not in pde.derivatives:
            continue
        if jet.index in collapsed:
            replace[symbol] = sympy.Integer(0)
        else:
            outputs[Output(column[jet.field], space.channel_of[jet.index])] = symbol
    residuals: list[sympy.Expr] = []
    for name, expression in pde.jet_equations.items():
        rest = expression.xreplace(replace)
        for (equation, field_name), (position, scale) in use.items():
            if equation == name:
                output = Output(column[field_name], len(space.indices) + position)
                symbol = outputs.setdefault(output, sympy.Symbol(f"{field_name}_D{position + 1}"))
                rest = rest + scale * symbol
        residuals.append(rest)
    order = sorted(outputs, key=lambda o: (o.column, o.channel))
    return JetPlan(pde, space, tuple(order), tuple(outputs[o] for o in order), tuple(residuals), constants, trained)


Use = dict[tuple[str, str], tuple[int, sympy.Expr]]


def _collapse(pde: PDE, constants: tuple[str, ...]) -> tuple[tuple[Operator, ...], Use]:
    """Operators that pay, and per (equation, field) which operator it reads, times which factor."""
    allowed = {pde.parameter_symbols[name] for name in constants}
    factors: dict[tuple[str, str], dict[MultiIndex, sympy.Expr]] = {}
    candidates = {jet.index for jet in pde.derivatives if jet.order > 0}
    needed_below = set(ChannelSpace.spanning(len(pde.coordinates), candidates).indices) - candidates
    for alpha in candidates:
        lower = ChannelSpace.spanning(len(pde.coordinates), [alpha]).indices
        needed_below.update(beta for beta in lower if beta != alpha)
    candidates -= needed_below
    for name, expression in pde.jet_equations.items():
        occurring = expression.free_symbols
        for jet in pde.derivatives:
            symbol = pde.jet_symbols[jet]
            if jet.index not in candidates or symbol not in occurring:
                continue
            factor = sympy.diff(expression, symbol)
            if factor.free_symbols <= allowed:
                factors.setdefault((name, jet.field), {})[jet.index] = factor
            else:
                candidates.discard(jet.index)
    operators: list[Operator] = []
    use: Use = {}
    for key, row in factors.items():
        terms = sorted((alpha, c) for alpha, c in row.items() if alpha in candidates)
        if not terms:
            continue
        scale = _scale([c for _, c in terms])
        one = sympy.Integer(1)
        operator = Operator(tuple((alpha, one if c == scale else sympy.sympify(c / scale)) for alpha, c in terms))
        if operator not in operators:
            operators.append(operator)
        use[key] = (operators.index(operator), scale)
    return (tuple(operators), use) if len(operators) < len(candidates) else ((), {})


def _scale(factors: list[sympy.Expr]) -> sympy.Expr:
    """What a residual multiplies its operator channel by: the largest factor if all are multiples of it, else 1.

    A parameter may be zero, so nothing is divided by a factor unless the quotient is a number for every value of it.
    """
    ratios = [factor / factors[0] for factor in factors]
    if not all(ratio.is_number for ratio in ratios):
        return sympy.Integer(1)
    return factors[max(range(len(ratios)), key=lambda i: abs(ratios[i]))]


def derivative_plan(
    fields: tuple[str, ...], coordinates: tuple[str, ...], jets: Sequence[Jet]
) -> tuple[ChannelSpace, tuple[Output, ...]]:
    """Channels and outputs for a plain list of derivatives."""
    space = ChannelSpace.spanning(len(coordinates), [jet.index for jet in jets])
    column = {name: i for i, name in enumerate(fields)}
    return space, tuple(Output(column[jet.field], space.channel_of[jet.index]) for jet in jets)


def evaluate_residuals(
    plan: JetPlan,
    outputs: torch.Tensor,
    points: torch.Tensor,
    constants: dict[str, float],
    trained: dict[str, torch.Tensor],
    data: dict[str, torch.Tensor],
) -> torch.Tensor:
    """Residuals [N, E] from the outputs [R, N] that the plan asked for."""
    arguments = [
        *outputs.unbind(0),
        *points.unbind(1),
        *plan.constant_tensors(constants),
        *(trained[name] for name in plan.trained),
        *(data[name] for name in plan.pde.data),
    ]
    return torch.stack(broadcast(plan.residual_function(*arguments), points), dim=1)


def broadcast(columns: Sequence[torch.Tensor], points: torch.Tensor) -> list[torch.Tensor]:
    """Each of them [N], in the dtype and on the device of the points."""
    like = points[:, 0]
    return [c if c.shape == like.shape and c.dtype == like.dtype else c.to(points).expand(like.shape) for c in columns]
