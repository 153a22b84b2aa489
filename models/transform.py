"""Hard constraints: transforms of output and input that meet conditions exactly, whatever the network does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sympy
import torch
from torch import Tensor, nn

from pinnfuse.errors import nearest
from pinnfuse.pde import parse_expression, torch_function


class OutputTransform(nn.Module):
    r"""A network followed by $u = g(x, \hat u)$, for example $u = -\sin \pi x + t (1 - x^2) \hat u$.

    Args:
        net: [N, d] -> [N, m], the raw fields.
        expressions: {field: text}, in which coordinates are the inputs and field names the raw outputs;
            a field without an entry passes unchanged.
        fields, coordinates: names of the columns of the output and of the input.
        constants: values of further names in the texts, those of the PDE; `set_parameter` changes them.

    Raises:
        ValueError: an entry names an unknown field, or does not depend on any raw output.
    """

    def __init__(
        self,
        net: nn.Module,
        expressions: Mapping[str, str],
        fields: Sequence[str],
        coordinates: Sequence[str],
        constants: Mapping[str, float] | None = None,
    ):
        super().__init__()
        for name in expressions:
            if name not in fields:
                raise ValueError(f"OutputTransform: no field {name!r}. {nearest(name, fields)}")
        raw = {name: sympy.Symbol(name) for name in fields}
        inputs = {name: sympy.Symbol(name) for name in coordinates} | raw
        symbols = inputs | {name: sympy.Symbol(name) for name in constants or {}}
        parsed = [parse_expression(expressions.get(name, name), symbols) for name in fields]
        for name, expression in zip(fields, parsed, strict=True):
            if not expression.free_symbols & set(raw.values()):
                raise ValueError(f"OutputTransform: {name} = {expression} does not contain the network's output")
        self.net = net
        self.expressions = dict(expressions)
        self.columns, self.width = len(coordinates), len(fields)
        used = {symbol.name for expression in parsed for symbol in expression.free_symbols}
        self.constants = {name: float(value) for name, value in (constants or {}).items() if name in used}
        self._parsed, self._inputs = parsed, list(inputs.values())
        self._build()

    def set_parameter(self, name: str, value: float) -> None:
        """Change a constant that the texts name; others are none of its business. The graph is read anew."""
        if name in self.constants:
            self.constants[name] = float(value)
            self._build()

    def _build(self) -> None:
        values = {sympy.Symbol(name): value for name, value in self.constants.items()}
        self.transform = torch_function([expression.subs(values) for expression in self._parsed], self._inputs)

    def forward(self, x: Tensor) -> Tensor:
        raw = self.net(x)
        inputs = [x[:, c : c + 1] for c in range(self.columns)]
        outputs = [raw[:, c : c + 1] for c in range(self.width)]
        return torch.cat(self.transform(*inputs, *outputs), dim=1)

    def extra_repr(self) -> str:
        return ", ".join(f"{name} = {text}" for name, text in self.expressions.items())


def set_constants(net: nn.Module, constants: Mapping[str, float]) -> None:
    """Give all output transforms in a network these values of the PDE's constants."""
    for module in net.modules():
        if isinstance(module, OutputTransform):
            for name, value in constants.items():
                module.set_parameter(name, value)


class InputTransform(nn.Module):
    """A network of transformed coordinates, for example of x' = (1 - cos(pi x)) / 2, which is flat at both walls.

    Args:
        net: [N, d] -> [N, m].
        expressions: {coordinate: text in the coordinates}; a coordinate without an entry passes unchanged.
        coordinates: names of the columns of the input.

    Raises:
        ValueError: an entry for an unknown coordinate, or one that depends on none.
    """

    def __init__(self, net: nn.Module, expressions: Mapping[str, str], coordinates: Sequence[str]):
        super().__init__()
        for name in expressions:
            if name not in coordinates:
                raise ValueError(f"InputTransform: no coordinate {name!r}. {nearest(name, coordinates)}")
        symbols = {name: sympy.Symbol(name) for name in coordinates}
        parsed = [parse_expression(expressions.get(name, name), symbols) for name in coordinates]
        for name, expression in zip(coordinates, parsed, strict=True):
            if not expression.free_symbols:
                raise ValueError(f"InputTransform: {name} = {expression} depends on no coordinate")
        self.net = net
        self.expressions = dict(expressions)
        self.columns = len(coordinates)
        self.transform = torch_function(parsed, list(symbols.values()))

    def forward(self, x: Tensor) -> Tensor:
        inputs = [x[:, c : c + 1] for c in range(self.columns)]
        return self.net(torch.cat(self.transform(*inputs), dim=1))

    def extra_repr(self) -> str:
        return ", ".join(f"{name} = {text}" for name, text in self.expressions.items())
