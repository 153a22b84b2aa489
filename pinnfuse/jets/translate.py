"""From the graph of a traced network to a `Program`: one rule for each function, method or module that has jets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn

from pinnfuse.jets.program import Add, Affine, Concatenate, Multiply, Operation, Program, Scale, Select, Shift, Unary
from pinnfuse.jets.recognised import Recognised, run_node
from pinnfuse.jets.tracing import MODULE_UNARY, NotRecognised, function_name, hooked, hooks_everywhere, trace

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
        "erf",
        "erfc",
        "silu",
        "gelu",
        "softplus",
    )
}
_IDENTITIES = {"contiguous", "clone"}
_IN_PLACE = {"iadd", "isub", "imul", "itruediv", "ipow"}
_VIEWS = {"getitem", "__getitem__", "unbind", "split", "chunk", "squeeze", "unsqueeze", "contiguous"}
_POSITIONAL = ("input", "other", "exponent")  # keyword forms that mean the same in every function with a rule
_OPTIONS: dict[str, set[str]] = {
    "linear": {"weight", "bias"},
    "cat": {"tensors", "dim"},
    "stack": {"tensors", "dim"},
    "unsqueeze": {"dim"},
    "squeeze": {"dim"},
    "unbind": {"dim"},
    "split": {"split_size_or_sections", "split_size", "dim"},
    "chunk": {"chunks", "dim"},
}
_ALIASES = {
    "mul": "multiply",
    "true_divide": "div",
    "truediv": "div",
    "divide": "div",
    "subtract": "sub",
    "concat": "cat",
    "concatenate": "cat",
    "negative": "neg",
    "iadd": "add",
    "isub": "sub",
    "imul": "multiply",
    "itruediv": "div",
    "ipow": "pow",
    "__getitem__": "getitem",
    "hstack": "cat",
    "swish": "silu",
}
HAVE_CLOSED_FORM = (
    f"Linear, {', '.join(sorted(module.__name__ for module in MODULE_UNARY))}; Identity, Dropout in eval(); of torch "
    f"{', '.join(sorted(_FUNCTION_UNARY))}; +, -, *, /, **, @ with constants; cat, stack, split, indexing of columns"
)
"""What a network may be made of, for whoever reads why one was not recognised."""


class Translator:
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
        names = [name or "the network" for name, m in self.net.named_modules() if hooked(m.__dict__)]
        names += ["torch"] * any(hooks_everywhere())
        if names:
            raise NotRecognised(f"{names[0]} has hooks on modules, which a closed-form pass would not run")
        graph, placeholders, self.reads = trace(self.net, self.widths[0])
        extra = [node for node in placeholders[1:] if not node.args]
        if not placeholders or extra:
            raise NotRecognised("its forward does not take exactly one tensor")
        self.value[placeholders[0]] = 0
        optional = set(placeholders[1:])  # traced with their defaults; only fx's own assertions read them
        for node in graph.nodes:
            if node.op == "placeholder":
                continue
            if node.op == "output":
                return self._finish(graph, node)
            if not optional.isdisjoint(node.all_input_nodes):
                optional.add(node)
                continue
            depends = any(n in self.value or n in self.columns for n in node.all_input_nodes)
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
        name = _ALIASES.get(function_name(node), function_name(node))
        rule: Callable[[fx.Node], None] | None = getattr(self, f"_rule_{name}", None)
        if function_name(node) in _IN_PLACE:
            self._check_in_place(node)
        named = [node.kwargs[k] for k in _POSITIONAL if k in node.kwargs]
        node.args, node.kwargs = (*node.args, *named), {k: v for k, v in node.kwargs.items() if k not in _POSITIONAL}
        if name in _FUNCTION_UNARY:
            self._unary(node, _FUNCTION_UNARY[name])
        elif rule is None and name not in _IDENTITIES:
            raise NotRecognised(f"`{name}` (node {node.name}) has no closed-form jet rule")
        elif not set(node.kwargs) <= _OPTIONS.get(name, set()):
            raise NotRecognised(f"`{name}` with {', '.join(node.kwargs)} has no closed-form jet rule")
        elif rule is None:
            self._alias(node, self._input(node.args[0]), vector=node.args[0] in self.vectors)
        else:
            try:
                rule(node)
            except (AssertionError, IndexError, KeyError, TypeError, ValueError):  # a form of call that no rule reads
                raise NotRecognised(f"`{name}` (node {node.name}) is called in a form without a jet rule") from None

    def _check_in_place(self, node: fx.Node) -> None:
        """In place is the same as out of place if the target is a tensor of its own that nobody reads afterwards."""
        target = node.args[0]
        assert isinstance(target, fx.Node)
        order = {n: i for i, n in enumerate(node.graph.nodes)}
        others = [n for n in target.users if n is not node]
        later = any(order[n] > order[node] for n in others)
        views = any(self._may_alias(n) for n in (target, *others))
        if later or views or not self._depends(target):
            raise NotRecognised(f"{node.name} changes in place a tensor that is read elsewhere")

    def _may_alias(self, node: fx.Node) -> bool:
        """Could the result share memory with an input?"""
        if node.op == "call_module":
            module = self.net.get_submodule(str(node.target))
            return not isinstance(module, nn.Linear) and type(module) not in MODULE_UNARY
        return node.op == "placeholder" or function_name(node) in _VIEWS

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
        elif type(module) in MODULE_UNARY:
            if isinstance(module, nn.GELU) and module.approximate != "none":
                raise NotRecognised("GELU with the tanh approximation has no closed-form jet rule")
            if isinstance(module, nn.Softplus) and (module.beta, module.threshold) != (1, 20):
                raise NotRecognised("Softplus with its own beta or threshold has no closed-form jet rule")
            if getattr(module, "inplace", False):
                self._check_in_place(node)
            self._append(node, Unary((x,), MODULE_UNARY[type(module)]), self.widths[x])
        else:
            raise NotRecognised(f"module {node.target} ({type(module).__name__}) has no closed-form jet rule")

    def _unary(self, node: fx.Node, name: str, exponent: float | None = None) -> None:
        if len(node.args) != 1 or {k: v for k, v in node.kwargs.items() if k != "inplace"}:
            raise NotRecognised(f"`{name}` with options has no closed-form jet rule")
        if node.kwargs.get("inplace"):
            self._check_in_place(node)
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
            width = self._broadcast_width(x, amount, node, vector)
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
            width = self._broadcast_width(x, factor, node, vector)
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
        if not isinstance(exponent, int | float) or exponent == 0:
            raise NotRecognised(f"{node.name}: only constant exponents other than 0 have a closed-form jet rule")
        x = self._input(base)
        self._append(node, Unary((x,), "power", float(exponent)), self.widths[x], base in self.vectors)

    def _rule_square(self, node: fx.Node) -> None:
        x = self._input(node.args[0])
        self._append(node, Unary((x,), "power", 2.0), self.widths[x], node.args[0] in self.vectors)

    def _rule_cat(self, node: fx.Node) -> None:
        parts = node.args[0] if node.args else node.kwargs["tensors"]
        dim = (
            node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 1 if function_name(node) == "hstack" else 0)
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
            if type(column) is int:
                self._append(node, Select((x,), (available[column],)), 1, vector=True)
            elif isinstance(column, slice):
                picked = tuple(available[column])
                if not picked:
                    raise IndexError("no column selected")
                self._append(node, Select((x,), picked), len(picked))
            elif isinstance(column, list) and all(type(c) is int for c in column):
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
        if self._depends(source):
            raise NotRecognised(f"{source} depends on the points where a weight is expected")
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
            what = f"module {node.target}" if node.op == "call_module" else node.name
            raise NotRecognised(f"{what} expects {width} columns and gets {self.widths[x]}")

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
                    values[node] = run_node(node, values, self.net)
                if node is source:
                    break
        result = values.get(source)
        if not isinstance(result, Tensor) or result.is_complex():
            raise NotRecognised(f"{source.name} is not a real tensor")
        return tuple(result.shape)

    def _broadcast_width(self, x: int, operand: fx.Node, node: fx.Node, vector: bool) -> int:
        shape = self._shape_of(operand)
        if vector and shape not in ((), (1,)):
            raise NotRecognised(f"{node.name} combines a column [N] with a tensor of shape {shape}")
        while len(shape) > 0 and len(shape) < 2:
            shape = (1, *shape)
        if shape and (len(shape) > 2 or shape[0] != 1):
            raise NotRecognised(f"{node.name} combines the points with a tensor of shape {shape}")
        width = shape[1] if shape else 1
        if width not in (1, self.widths[x]) and self.widths[x] != 1:
            raise NotRecognised(f"{node.name} combines {self.widths[x]} columns with {width}")
        return max(width, self.widths[x])


def _sections(width: int, size: Any) -> list[int]:
    if isinstance(size, int):
        return [min(size, width - start) for start in range(0, width, size)]
    if isinstance(size, list | tuple) and all(isinstance(s, int) for s in size):
        return list(size)
    raise NotRecognised(f"cannot split {width} columns into {size!r}")
