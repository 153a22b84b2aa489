"""Recognise a network: trace it with `torch.fx` and translate the graph to a `Program`.

The graph is split in two. What does not depend on the points (weights, normalised or generated weights, scales) is
run as ordinary torch code under autograd at every call and gives the operands. What depends on the points must be one
of the operations that have a jet rule; the first node that has none ends recognition, with the reason.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, fx, nn

from pinnfuse.checks import modules_of
from pinnfuse.jets.program import Add, Affine, Concatenate, Multiply, Operation, Program, Scale, Select, Shift, Unary


class NotRecognised(Exception):
    """The network has no closed-form program; the message is the reason."""


@dataclass(frozen=True)
class Recognised:
    """A network's program and how to compute its operands from the module's parameters."""

    program: Program
    graph: fx.Graph
    operand_nodes: tuple[fx.Node | tuple[fx.Node, str], ...]

    def operands(self, net: nn.Module) -> list[Tensor]:
        """Operand tensors of this call, connected to the parameters by ordinary autograd."""
        values: dict[fx.Node, Any] = {}
        for node in self._constants:
            values[node] = _run_node(node, values, net)
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
        return found

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


def recognise(net: nn.Module, in_width: int) -> Recognised:
    """The program of `net`, cached until the module's structure changes.

    Raises:
        NotRecognised: with the reason.
    """
    key = (_fingerprint(net), in_width)
    cached = _cache.get(net)
    if cached is None or cached[0] != key:
        try:
            result: Recognised | NotRecognised = _Translator(net, in_width).translate()
        except NotRecognised as reason:
            result = reason
        cached = (key, result)
        _cache[net] = cached
    if isinstance(cached[1], NotRecognised):
        raise cached[1]
    return cached[1]


_cache: WeakKeyDictionary[nn.Module, tuple[Any, Recognised | NotRecognised]] = WeakKeyDictionary()


def _fingerprint(net: nn.Module) -> tuple[Any, ...]:
    """Changes whenever tracing could give another graph: modules, modes, plain attributes, shapes, hooks."""
    parts: list[Any] = []
    for module in modules_of(net):
        own = module.__dict__
        parts += (id(module), type(module), *own["_modules"])
        parts += [(k, v) for k, v in own.items() if k[0] != "_" and isinstance(v, _PLAIN)]
        parts += [(k, None if p is None else p.shape) for k, p in own["_parameters"].items()]
        parts.append(bool(own["_forward_hooks"] or own["_forward_pre_hooks"]))
    return tuple(parts)


_PLAIN = (bool, int, float, str, tuple, type(None))


def _run_node(node: fx.Node, values: dict[fx.Node, Any], net: nn.Module) -> Any:
    if node.op == "get_attr":
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


class _Tracer(fx.Tracer):
    """Keeps the modules we know as leaves (their parametrised weights are read as attributes), traces the rest."""

    def __init__(self, in_width: int):
        super().__init__()
        self.in_width = in_width

    def iter(self, obj: fx.Proxy) -> Iterator[Any]:
        """Loops over the columns of the points: `for c in points.unbind(1)`."""
        node = obj.node
        source = node.args[0] if node.args else None
        named = _function_name(node) == "unbind" and isinstance(source, fx.Node) and source.op == "placeholder"
        if named and (node.args[1:] or (node.kwargs.get("dim", 0),))[0] in (1, -1):
            return iter([operator.getitem(obj, i) for i in range(self.in_width)])
        return super().iter(obj)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return (
            isinstance(m, nn.Linear | nn.Identity)
            or type(m) in _MODULE_UNARY
            or super().is_leaf_module(m, module_qualified_name)
        )


_MODULE_UNARY: dict[type[nn.Module], str] = {
    nn.Tanh: "tanh",
    nn.Sigmoid: "sigmoid",
    nn.SiLU: "silu",
    nn.GELU: "gelu",
    nn.Softplus: "softplus",
}
_FUNCTION_UNARY: dict[str, str] = {
    name: name
    for name in (
        "tanh",
        "sigmoid",
        "sin",
        "cos",
        "exp",
        "log",
        "sqrt",
        "reciprocal",
        "atan",
        "silu",
        "gelu",
        "softplus",
    )
}
_IDENTITIES = {"contiguous", "clone"}
_ALIASES = {
    "mul": "multiply",
    "true_divide": "div",
    "truediv": "div",
    "divide": "div",
    "subtract": "sub",
    "concat": "cat",
    "concatenate": "cat",
    "negative": "neg",
    "__getitem__": "getitem",
    "hstack": "cat",
    "swish": "silu",
}


class _Translator:
    """One pass over the graph. `value[node]` is the position of a point-dependent node in the program."""

    def __init__(self, net: nn.Module, in_width: int):
        self.net = net
        self.operations: list[Operation] = []
        self.widths: list[int] = [in_width]
        self.value: dict[fx.Node, int] = {}
        self.columns: dict[fx.Node, tuple[int, ...]] = {}  # nodes that are tuples of columns: unbind, split, chunk
        self.vectors: set[fx.Node] = set()  # nodes of shape [N]: one column without its axis
        self.operand_nodes: list[fx.Node | tuple[fx.Node, str]] = []

    def translate(self) -> Recognised:
        hooked = [
            name or "the network" for name, m in self.net.named_modules() if m._forward_hooks or m._forward_pre_hooks
        ]
        if hooked:
            raise NotRecognised(f"{hooked[0]} has forward hooks, which a closed-form pass would not run")
        try:
            graph = _Tracer(self.widths[0]).trace(self.net)
        except Exception as error:  # fx raises many types: control flow on values, unsupported calls, user errors
            first = str(error).split(". ")[0].splitlines() or [""]
            raise NotRecognised(f"torch.fx cannot trace it ({type(error).__name__}: {first[0]})") from None
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        extra = [node for node in placeholders[1:] if not node.args]
        if not placeholders or extra:
            raise NotRecognised("its forward does not take exactly one tensor")
        self.value[placeholders[0]] = 0
        for node in graph.nodes:
            if node.op == "placeholder":
                if node is not placeholders[0]:
                    node.meta["pinnfuse_constant"] = False
                continue
            if node.op == "output":
                return self._finish(graph, node)
            depends = any(n in self.value or n in self.columns for n in node.all_input_nodes)
            unknown = any(n.op == "placeholder" and n is not placeholders[0] for n in node.all_input_nodes)
            if unknown:
                raise NotRecognised("its forward uses an optional argument")
            node.meta["pinnfuse_constant"] = not depends
            if depends:
                self._translate(node)
        raise NotRecognised("its graph has no output")

    def _finish(self, graph: fx.Graph, node: fx.Node) -> Recognised:
        result = node.args[0]
        if not isinstance(result, fx.Node) or result not in self.value:
            raise NotRecognised("its output is not one tensor that depends on the points")
        if result in self.vectors:
            raise NotRecognised("its output is [N]; return [N, fields]")
        if self.value[result] != len(self.operations):  # the output must be the last operation
            self._append(result, Scale((self.value[result],)), self.widths[self.value[result]])
        return Recognised(Program(tuple(self.operations), tuple(self.widths)), graph, tuple(self.operand_nodes))

    # -- one node ------------------------------------------------------------------------------------------------

    def _translate(self, node: fx.Node) -> None:
        if node.op == "call_module":
            self._module(node)
            return
        name = _ALIASES.get(_function_name(node), _function_name(node))
        rule: Callable[[fx.Node], None] | None = getattr(self, f"_rule_{name}", None)
        if name in _FUNCTION_UNARY:
            self._unary(node, _FUNCTION_UNARY[name])
        elif name in _IDENTITIES:
            self._alias(node, self._input(node.args[0]))
        elif rule is not None:
            rule(node)
        else:
            raise NotRecognised(f"`{name}` (node {node.name}) has no closed-form jet rule")

    def _module(self, node: fx.Node) -> None:
        module = self.net.get_submodule(str(node.target))
        if len(node.args) != 1 or node.kwargs:
            raise NotRecognised(f"module {node.target} is called with more than one argument")
        x = self._input(node.args[0])
        if isinstance(module, nn.Linear):
            operands = [self._operand((node, "weight"))]
            if module.bias is not None:
                operands.append(self._operand((node, "bias")))
            self._need_width(x, module.in_features, node)
            self._append(node, Affine((x,), tuple(operands)), module.out_features)
        elif isinstance(module, nn.Identity) or (isinstance(module, nn.Dropout) and not module.training):
            self._alias(node, x)
        elif type(module) in _MODULE_UNARY:
            if isinstance(module, nn.GELU) and module.approximate != "none":
                raise NotRecognised("GELU with the tanh approximation has no closed-form jet rule")
            if isinstance(module, nn.Softplus) and module.beta != 1:
                raise NotRecognised("Softplus with beta != 1 has no closed-form jet rule")
            self._append(node, Unary((x,), _MODULE_UNARY[type(module)]), self.widths[x])
        else:
            raise NotRecognised(f"module {node.target} ({type(module).__name__}) has no closed-form jet rule")

    def _unary(self, node: fx.Node, name: str, exponent: float | None = None) -> None:
        if len(node.args) != 1 or {k: v for k, v in node.kwargs.items() if k != "inplace"}:
            raise NotRecognised(f"`{name}` with options has no closed-form jet rule")
        x = self._input(node.args[0])
        self._append(node, Unary((x,), name, exponent), self.widths[x], vector=node.args[0] in self.vectors)

    # -- rules by name of the function or method -----------------------------------------------------------------

    def _rule_linear(self, node: fx.Node) -> None:
        arguments = [*node.args, *(node.kwargs[k] for k in ("weight", "bias") if k in node.kwargs)]
        x = self._input(arguments[0])
        operands = [self._operand(a) for a in arguments[1:] if a is not None]
        self._affine(node, x, tuple(operands), transpose=False)

    def _rule_matmul(self, node: fx.Node) -> None:
        if self._depends(node.args[1]):
            raise NotRecognised("a matrix product of two point-dependent tensors has no closed-form jet rule")
        weight = node.args[1]
        assert isinstance(weight, fx.Node)
        with node.graph.inserting_before(node):  # W^T, so that one convention serves
            transposed = node.graph.call_method("t", (weight,))
        transposed.meta["pinnfuse_constant"] = True
        self._affine(node, self._input(node.args[0]), (self._operand(transposed),), transpose=False)

    _rule_mm = _rule_matmul

    def _affine(self, node: fx.Node, x: int, operands: tuple[int, ...], transpose: bool) -> None:
        weight = self._shape_of(self.operand_nodes[operands[0]])
        if len(weight) != 2:
            raise NotRecognised(f"the weight of {node.name} is not a matrix")
        self._need_width(x, weight[1], node)
        self._append(node, Affine((x,), operands), weight[0])

    def _rule_add(self, node: fx.Node) -> None:
        self._sum(node, node.args[0], node.args[1], 1)

    def _rule_sub(self, node: fx.Node) -> None:
        self._sum(node, node.args[0], node.args[1], -1)

    def _rule_rsub(self, node: fx.Node) -> None:
        self._sum(node, node.args[1], node.args[0], -1)

    def _sum(self, node: fx.Node, a: Any, b: Any, sign: int) -> None:
        if set(node.kwargs) - {"out"}:
            raise NotRecognised(f"{node.name}: `alpha` has no closed-form jet rule")
        vector = a in self.vectors or b in self.vectors
        if self._depends(a) and self._depends(b):
            x, y = self._input(a), self._input(b)
            self._same_kind(node, a, b)
            self._append(node, Add((x, y), sign), self._joint_width(x, y, node), vector)
        elif self._depends(a):
            self._shift(node, self._input(a), b, sign, vector)
        else:
            x = self._input(b)
            if sign < 0:
                x = self._push(Scale((x,), factor=-1.0), self.widths[x])
            self._shift(node, x, a, 1, vector)

    def _shift(self, node: fx.Node, x: int, amount: Any, sign: int, vector: bool) -> None:
        if isinstance(amount, fx.Node):
            if sign < 0:
                with node.graph.inserting_before(node):
                    amount = node.graph.call_function(torch.neg, (amount,))
                amount.meta["pinnfuse_constant"] = True
            width = self._broadcast_width(x, amount, node)
            self._append(node, Shift((x,), (self._operand(amount),)), width, vector)
        else:
            self._append(node, Shift((x,), amount=sign * float(amount)), self.widths[x], vector)

    def _rule_neg(self, node: fx.Node) -> None:
        x = self._input(node.args[0])
        self._append(node, Scale((x,), factor=-1.0), self.widths[x], node.args[0] in self.vectors)

    def _rule_multiply(self, node: fx.Node) -> None:
        a, b = node.args
        if not self._depends(a):
            a, b = b, a
        vector = a in self.vectors or b in self.vectors
        if self._depends(b):
            x, y = self._input(a), self._input(b)
            self._same_kind(node, a, b)
            self._append(node, Multiply((x, y)), self._joint_width(x, y, node), vector)
        else:
            self._scale(node, self._input(a), b, vector)

    def _scale(self, node: fx.Node, x: int, factor: Any, vector: bool) -> None:
        if isinstance(factor, fx.Node):
            width = self._broadcast_width(x, factor, node)
            self._append(node, Scale((x,), (self._operand(factor),)), width, vector)
        else:
            self._append(node, Scale((x,), factor=float(factor)), self.widths[x], vector)

    def _rule_div(self, node: fx.Node) -> None:
        a, b = node.args
        vector = a in self.vectors or b in self.vectors
        if self._depends(b):
            self._same_kind(node, a, b)
            y = self._input(b)
            inverse = self._push(Unary((y,), "reciprocal"), self.widths[y])
            if self._depends(a):
                x = self._input(a)
                self._append(node, Multiply((x, inverse)), self._joint_width(x, inverse, node), vector)
            else:
                self._scale(node, inverse, a, vector)
        elif isinstance(b, fx.Node):
            with node.graph.inserting_before(node):
                inverse_node = node.graph.call_function(torch.reciprocal, (b,))
            inverse_node.meta["pinnfuse_constant"] = True
            self._scale(node, self._input(a), inverse_node, vector)
        else:
            assert isinstance(b, int | float)
            self._scale(node, self._input(a), 1.0 / b, vector)

    def _rule_pow(self, node: fx.Node) -> None:
        base, exponent = node.args
        if not isinstance(exponent, int | float):
            raise NotRecognised(f"{node.name}: only constant exponents have a closed-form jet rule")
        x = self._input(base)
        self._append(node, Unary((x,), "power", float(exponent)), self.widths[x], base in self.vectors)

    def _rule_square(self, node: fx.Node) -> None:
        x = self._input(node.args[0])
        self._append(node, Unary((x,), "power", 2.0), self.widths[x], node.args[0] in self.vectors)

    def _rule_cat(self, node: fx.Node) -> None:
        parts = node.args[0] if node.args else node.kwargs["tensors"]
        dim = (
            node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 1 if _function_name(node) == "hstack" else 0)
        )
        if dim not in (1, -1) or not isinstance(parts, list | tuple) or any(p in self.vectors for p in parts):
            raise NotRecognised(f"{node.name}: only joining columns (dim 1) has a closed-form jet rule")
        if not all(self._depends(p) for p in parts):
            raise NotRecognised(
                f"{node.name}: joining point-dependent columns with constants has no closed-form jet rule"
            )
        inputs = tuple(self._input(p) for p in parts)
        self._append(node, Concatenate(inputs), sum(self.widths[i] for i in inputs))

    def _rule_stack(self, node: fx.Node) -> None:
        parts = node.args[0] if node.args else node.kwargs["tensors"]
        dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
        if dim not in (1, -1) or not isinstance(parts, list | tuple) or not all(p in self.vectors for p in parts):
            raise NotRecognised(f"{node.name}: only stacking [N] columns along dim 1 has a closed-form jet rule")
        inputs = tuple(self._input(p) for p in parts)
        self._append(node, Concatenate(inputs), len(inputs))

    def _rule_unsqueeze(self, node: fx.Node) -> None:
        dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        if node.args[0] not in self.vectors or dim not in (1, -1):
            raise NotRecognised(f"{node.name}: only [N] -> [N, 1] has a closed-form jet rule")
        self._alias(node, self._input(node.args[0]))

    def _rule_squeeze(self, node: fx.Node) -> None:
        x = self._input(node.args[0])
        dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        if self.widths[x] != 1 or dim not in (1, -1):
            raise NotRecognised(f"{node.name}: only [N, 1] -> [N] has a closed-form jet rule")
        self._alias(node, x, vector=True)

    def _rule_unbind(self, node: fx.Node) -> None:
        dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
        x = self._input(node.args[0])
        if dim not in (1, -1):
            raise NotRecognised(f"{node.name}: only unbinding columns has a closed-form jet rule")
        self.columns[node] = tuple(self._push(Select((x,), (j,)), 1) for j in range(self.widths[x]))
        node.meta["pinnfuse_vectors"] = True

    def _rule_split(self, node: fx.Node) -> None:
        x = self._input(node.args[0])
        size = (
            node.args[1]
            if len(node.args) > 1
            else node.kwargs.get("split_size_or_sections", node.kwargs.get("split_size"))
        )
        dim = node.args[2] if len(node.args) > 2 else node.kwargs.get("dim", 0)
        self._pieces(node, x, dim, _sections(self.widths[x], size))

    def _rule_chunk(self, node: fx.Node) -> None:
        x = self._input(node.args[0])
        count = node.args[1] if len(node.args) > 1 else node.kwargs["chunks"]
        dim = node.args[2] if len(node.args) > 2 else node.kwargs.get("dim", 0)
        assert isinstance(count, int)
        self._pieces(node, x, dim, _sections(self.widths[x], -(-self.widths[x] // count)))

    def _pieces(self, node: fx.Node, x: int, dim: Any, sizes: list[int]) -> None:
        if dim not in (1, -1) or sum(sizes) != self.widths[x]:
            raise NotRecognised(f"{node.name}: only splitting columns has a closed-form jet rule")
        starts = [sum(sizes[:i]) for i in range(len(sizes))]
        self.columns[node] = tuple(
            self._push(Select((x,), tuple(range(a, a + n))), n) for a, n in zip(starts, sizes, strict=True)
        )

    def _rule_getitem(self, node: fx.Node) -> None:
        source, key = node.args
        assert isinstance(source, fx.Node)
        if source in self.columns:
            if not isinstance(key, int):
                raise NotRecognised(f"{node.name}: unsupported index {key!r}")
            self._alias(node, self.columns[source][key], vector=bool(source.meta.get("pinnfuse_vectors")))
            return
        if source in self.vectors:
            if key in ((slice(None), None), (Ellipsis, None)):
                self._alias(node, self._input(source))
                return
            raise NotRecognised(f"{node.name}: unsupported index {key!r}")
        x = self._input(source)
        rows, column = key if isinstance(key, tuple) and len(key) == 2 else (None, None)
        if rows not in (slice(None), Ellipsis) or isinstance(column, fx.Node):
            raise NotRecognised(f"{node.name}: only columns of the points can be selected, not {key!r}")
        available = range(self.widths[x])
        try:
            if isinstance(column, int):
                self._append(node, Select((x,), (available[column],)), 1, vector=True)
            elif isinstance(column, slice):
                picked = tuple(available[column])
                if not picked:
                    raise IndexError("no column selected")
                self._append(node, Select((x,), picked), len(picked))
            elif isinstance(column, list) and all(isinstance(c, int) for c in column):
                self._append(node, Select((x,), tuple(available[c] for c in column)), len(column))
            else:
                raise NotRecognised(f"{node.name}: unsupported index {key!r}")
        except IndexError as error:
            raise NotRecognised(f"{node.name}: {error} (width {self.widths[x]})") from None

    # -- helpers -------------------------------------------------------------------------------------------------

    def _depends(self, argument: Any) -> bool:
        return isinstance(argument, fx.Node) and (argument in self.value or argument in self.columns)

    def _input(self, argument: Any) -> int:
        if not isinstance(argument, fx.Node) or argument not in self.value:
            raise NotRecognised(f"{argument} is not a tensor with one row per point")
        return self.value[argument]

    def _operand(self, source: Any) -> int:
        if not isinstance(source, fx.Node | tuple):
            raise NotRecognised(f"{source!r} is not a tensor")
        if source not in self.operand_nodes:
            self.operand_nodes.append(source)
        return self.operand_nodes.index(source)

    def _push(self, operation: Operation, width: int) -> int:
        self.operations.append(operation)
        self.widths.append(width)
        return len(self.operations)

    def _append(self, node: fx.Node, operation: Operation, width: int, vector: bool = False) -> None:
        self._alias(node, self._push(operation, width), vector)

    def _alias(self, node: fx.Node, value: int, vector: bool = False) -> None:
        self.value[node] = value
        if vector:
            self.vectors.add(node)

    def _need_width(self, x: int, width: int, node: fx.Node) -> None:
        if self.widths[x] != width:
            raise NotRecognised(f"{node.name} expects {width} columns and gets {self.widths[x]}")

    def _joint_width(self, x: int, y: int, node: fx.Node) -> int:
        a, b = self.widths[x], self.widths[y]
        if a != b and 1 not in (a, b):
            raise NotRecognised(f"{node.name} combines {a} and {b} columns")
        return max(a, b)

    def _same_kind(self, node: fx.Node, a: Any, b: Any) -> None:
        if (a in self.vectors) != (b in self.vectors):
            raise NotRecognised(f"{node.name} combines [N] with [N, width], which broadcasts over points")

    def _shape_of(self, source: fx.Node | tuple[fx.Node, str]) -> tuple[int, ...]:
        """Shape of an operand, by running the constant part of the graph once."""
        if isinstance(source, tuple):
            return tuple(getattr(self.net.get_submodule(str(source[0].target)), source[1]).shape)
        values: dict[fx.Node, Any] = {}
        with torch.no_grad():
            for node in source.graph.nodes:
                if node.meta.get("pinnfuse_constant"):
                    values[node] = _run_node(node, values, self.net)
                if node is source:
                    break
        result = values.get(source)
        if not isinstance(result, Tensor):
            raise NotRecognised(f"{source.name} is not a tensor")
        return tuple(result.shape)

    def _broadcast_width(self, x: int, operand: fx.Node, node: fx.Node) -> int:
        shape = self._shape_of(operand)
        while len(shape) > 0 and len(shape) < 2:
            shape = (1, *shape)
        if shape and (len(shape) > 2 or shape[0] != 1):
            raise NotRecognised(f"{node.name} combines the points with a tensor of shape {shape}")
        width = shape[1] if shape else 1
        if width not in (1, self.widths[x]) and self.widths[x] != 1:
            raise NotRecognised(f"{node.name} combines {self.widths[x]} columns with {width}")
        return max(width, self.widths[x])


def _function_name(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))


def _sections(width: int, size: Any) -> list[int]:
    if isinstance(size, int):
        return [min(size, width - start) for start in range(0, width, size)]
    if isinstance(size, list | tuple) and all(isinstance(s, int) for s in size):
        return list(size)
    raise NotRecognised(f"cannot split {width} columns into {size!r}")
