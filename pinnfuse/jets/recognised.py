"""What was recognised in a network: its program, and the part of its graph that gives the operands."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx, nn

from pinnfuse.jets.program import Program


@dataclass(frozen=True)
class Recognised:
    """A network's program and how to compute its operands from the module's parameters."""

    program: Program
    graph: fx.Graph
    operand_nodes: tuple[fx.Node | tuple[fx.Node, str], ...]

    def operands(self, net: nn.Module, dtype: torch.dtype | None = None) -> list[Tensor]:
        """Operand tensors of this call in that precision, connected to the parameters by ordinary autograd."""
        values: dict[fx.Node, Any] = {}
        for node in self._constants:
            values[node] = run_node(node, values, net)
        found = []
        for source in self._sources:
            if isinstance(source, fx.Node):
                found.append(values[source])
                continue
            path, attribute = source
            module = net
            for name in path:
                module = module._modules[name]  # type: ignore[assignment]
            parameter = module._parameters.get(attribute)  # `getattr` is slow; a computed weight needs it
            found.append(getattr(module, attribute) if parameter is None else parameter)
        return found if dtype is None else [t if t.dtype == dtype else t.to(dtype) for t in found]

    @cached_property
    def _constants(self) -> list[fx.Node]:
        """What runs at every call, in order."""
        return [node for node in self.graph.nodes if node.meta.get("pinnfuse_constant")]

    @cached_property
    def _sources(self) -> list[fx.Node | tuple[list[str], str]]:
        """Per operand, the node that gives it, or the path of a module and one of its attributes."""
        return [
            (str(source[0].target).split("."), source[1]) if isinstance(source, tuple) else source
            for source in self.operand_nodes
        ]


def run_node(node: fx.Node, values: dict[fx.Node, Any], net: nn.Module) -> Any:
    """The value of one node that does not depend on the points, from those of the nodes before it."""
    if node.op == "get_attr":
        if "pinnfuse_tensor" in node.meta:
            return node.meta["pinnfuse_tensor"]
        value: Any = net
        for part in str(node.target).split("."):
            value = getattr(value, part)
        return value
    args = fx.node.map_arg(node.args, lambda n: values[n])
    kwargs = fx.node.map_arg(node.kwargs, lambda n: values[n])
    if node.op == "call_function":
        assert callable(node.target)
        return node.target(*args, **kwargs)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    return net.get_submodule(str(node.target))(*args, **kwargs)
