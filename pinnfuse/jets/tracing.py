"""Read a network's graph with `torch.fx`, so that nothing which may change between calls is baked into it.

Parameters, buffers and tensors held as attributes stay names that are looked up at every call. Plain values (numbers,
texts, lists, settings) do end up in the graph; `fingerprint` changes whenever one of them does. What cannot be read off
once (random numbers, a forward that changes the module) is refused.
"""

from __future__ import annotations

import operator
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from inspect import signature
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._python_dispatch import TorchDispatchMode

from pinnfuse.checks import modules_of
from pinnfuse.jets.reads import Reads
from pinnfuse.precision import no_autocast


class NotRecognised(Exception):
    """The network has no closed-form program; the message is the reason."""


MODULE_UNARY: dict[type[nn.Module], str] = {
    nn.Tanh: "tanh",
    nn.Sigmoid: "sigmoid",
    nn.SiLU: "silu",
    nn.GELU: "gelu",
    nn.Softplus: "softplus",
}


def trace(net: nn.Module, in_width: int) -> tuple[fx.Graph, list[fx.Node], Reads]:
    """Graph of `net`, its placeholders, and what its forward read. Tensors made on the way: `meta["pinnfuse_tensor"]`.

    Raises:
        NotRecognised: with the reason.
    """
    if "forward" in net.__dict__:
        raise NotRecognised("its `forward` was replaced on the instance")
    graph, reads = _traced(net, in_width)
    again, _ = _traced(net, in_width)
    if not _same(graph, again):
        raise NotRecognised("two traces in a row differ: its forward counts, draws numbers or reads a clock")
    return graph, [node for node in graph.nodes if node.op == "placeholder"], reads


def _traced(net: nn.Module, in_width: int) -> tuple[fx.Graph, Reads]:
    before = [(m, {name: _copy(value) for name, value in m.__dict__.items()}) for m in modules_of(net)]
    state, reads, draws = torch.random.get_rng_state(), Reads(), _Draws()
    try:
        with (
            _one_at_a_time,
            warnings.catch_warnings(),
            torch.inference_mode(False),
            torch.enable_grad(),
            no_autocast("cpu"),
            no_autocast("cuda"),
            reads.watching(net),
            draws,
        ):
            warnings.filterwarnings("ignore", message="Was not able to add assertion")
            graph = Tracer(in_width, reads).trace(net, concrete_args=_defaults(net))
        for node in graph.nodes:
            if node.op == "get_attr" and str(node.target).startswith("_tensor_constant"):
                node.meta["pinnfuse_tensor"] = getattr(net, str(node.target))
    except Exception as error:  # fx raises many types: control flow on values, unsupported calls, user errors
        first = str(error).split(". ")[0].splitlines() or [""]
        raise NotRecognised(f"torch.fx cannot trace it ({type(error).__name__}: {first[0]})") from None
    finally:
        changed = _restore(before)
    if changed:
        raise NotRecognised(f"its forward changes the attribute {changed[0]!r}")
    if draws.seen:
        torch.random.set_rng_state(state)
        raise NotRecognised("its forward draws random numbers")
    if reads.problem:
        raise NotRecognised(reads.problem)
    return graph, reads


_one_at_a_time = threading.RLock()
"""fx replaces methods of `nn.Module` for all threads while it traces; of two at once, one would leave its own there."""


class _Draws(TorchDispatchMode):
    """Sees random numbers that this thread draws from torch's own generator; others may draw meanwhile."""

    seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.seen = self.seen or (torch.Tag.nondeterministic_seeded in func.tags and kwargs.get("generator") is None)
        return func(*args, **kwargs)


def _same(one: fx.Graph, other: fx.Graph) -> bool:
    if len(one.nodes) != len(other.nodes):
        return False
    for a, b in zip(one.nodes, other.nodes, strict=True):
        made, made_again = (n.meta.get("pinnfuse_tensor") for n in (a, b))
        if (a.op, str(a.target), str(a.args), str(a.kwargs)) != (b.op, str(b.target), str(b.args), str(b.kwargs)):
            return False
        if made is not made_again and not (isinstance(made_again, Tensor) and torch.equal(made, made_again)):
            return False
    return True


def fingerprint(net: nn.Module) -> tuple[Any, ...]:
    """Changes whenever tracing could give another graph: modules, modes, attributes, shapes, hooks.

    What a forward reads elsewhere (globals, closures, classes, deep inside attributes) is for `reads.Reads`.
    """
    parts: list[Any] = [any(hooks_everywhere())]
    for module in modules_of(net):
        own = module.__dict__
        if "_modules" not in own:  # a ScriptModule, which fx cannot read
            parts.append(id(module))
            continue
        parts += (id(module), type(module))
        for k in own.keys() - _MODULE_ATTRIBUTES:  # in C; as always in the same order for a module that has not changed
            v = own[k]
            parts += (k, v if isinstance(v, _PLAIN) else _frozen(v, 3))
        for k, m in own["_modules"].items():
            parts += (k, id(m))
        for tensors in (own["_parameters"], own["_buffers"]):
            for k, t in tensors.items():
                parts += (k, None if t is None else t.shape)
        parts.append(hooked(own))
    return tuple(parts)


def hooks_everywhere() -> list[Any]:
    """Hooks that torch runs for every module."""
    return [getattr(torch.nn.modules.module, f"_global_{kind}_hooks") for kind in HOOKS]


def hooked(own: dict[str, Any]) -> bool:
    """Has the module with these attributes hooks of its own?"""
    return any(map(own.get, _HOOKS_OF_A_MODULE))


HOOKS = ("forward", "forward_pre", "backward", "backward_pre")
_HOOKS_OF_A_MODULE = tuple(f"_{kind}_hooks" for kind in HOOKS)


_PLAIN = (bool, int, float, str, type(None))
_MODULE_ATTRIBUTES = frozenset(vars(nn.Module())) - {"training"}


def _frozen(value: Any, depth: int) -> Any:
    """A hashable-by-comparison picture of an attribute; beyond `depth`, and for functions, its identity."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Tensor):
        version = None if value.is_inference() else value._version
        return (id(value), version, value.shape, value.dtype, value.device)
    if depth and isinstance(value, list | tuple):
        return (type(value), *(_frozen(v, depth - 1) for v in value))
    if depth and isinstance(value, dict):
        keys = (k if isinstance(k, _PLAIN) else id(k) for k in value)
        return (type(value), *keys, *(_frozen(v, depth - 1) for v in value.values()))
    opaque = isinstance(value, nn.Module | type | types.ModuleType | types.FunctionType)
    inside = None if opaque or not depth else getattr(value, "__dict__", None)
    return (id(value), None if inside is None else _frozen(inside, depth - 1))


def _defaults(net: nn.Module) -> dict[str, Any]:
    """Optional arguments of `forward` are traced with their defaults."""
    parameters = list(signature(type(net).forward).parameters.values())[2:]
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def _copy(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else value


def _restore(before: list[tuple[nn.Module, dict[str, Any]]]) -> list[str]:
    """Undo what tracing did to the modules' attributes; names of those that the forward changed."""
    changed = []
    for module, old in before:
        now = module.__dict__
        for name in [n for n in now if n not in old]:
            del now[name]
            if not name.startswith("_tensor_constant"):
                changed.append(name)
        for name, value in old.items():
            present = now.get(name, now)
            if isinstance(value, dict) and isinstance(present, dict):
                same = value.keys() == present.keys() and all(value[k] is present[k] for k in value)
                if not same:
                    present.clear()
                    present.update(value)
            else:
                same = present is value
                if not same:
                    now[name] = value
            if not same:
                changed.append(name)
    return changed


class _Proxy(fx.Proxy):
    """`h += y` changes h for every other name of it too; plain fx reads it as `h = h + y`."""

    def _in_place(self, function: Callable[[Any, Any], Any], other: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", function, (self, other), {})

    def __iadd__(self, other: Any) -> fx.Proxy:
        return self._in_place(operator.iadd, other)

    def __isub__(self, other: Any) -> fx.Proxy:
        return self._in_place(operator.isub, other)

    def __imul__(self, other: Any) -> fx.Proxy:
        return self._in_place(operator.imul, other)

    def __itruediv__(self, other: Any) -> fx.Proxy:
        return self._in_place(operator.itruediv, other)

    def __ipow__(self, other: Any) -> fx.Proxy:
        return self._in_place(operator.ipow, other)


class Tracer(fx.Tracer):
    """Keeps the modules we know as leaves (their parametrised weights are read as attributes), traces the rest."""

    def __init__(self, in_width: int, reads: Reads):
        super().__init__()
        self.in_width, self.reads = in_width, reads
        self.thread = threading.get_ident()

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What another thread calls meanwhile is no part of this graph."""
        if threading.get_ident() != self.thread:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        """A graph has no modes: what runs inside one would lose it."""
        if torch.is_inference_mode_enabled() or not torch.is_grad_enabled():
            self.reads.problem = "part of its forward runs without gradients (no_grad, inference_mode)"
        elif torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            self.reads.problem = "part of its forward runs under autocast"
        return super().create_node(*args, **kwargs)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """Every tensor attribute is looked up at each call; fx would compute with buffers while it traces."""
        if threading.get_ident() != self.thread:
            return attr_val
        if isinstance(attr_val, Tensor) and not isinstance(attr_val, nn.Parameter):
            name = self.tensor_attrs.get(attr_val) or next(
                (n for n, b in self.root.named_buffers() if b is attr_val), None
            )
            if name is not None:
                if name not in parameter_proxy_cache:
                    parameter_proxy_cache[name] = self.create_proxy("get_attr", str(name), (), {})
                return parameter_proxy_cache[name]
        return super().getattr(attr, attr_val, parameter_proxy_cache)

    def iter(self, obj: fx.Proxy) -> Iterator[Any]:
        """Loops over the columns of the points: `for c in points.unbind(1)`."""
        node = obj.node
        source = node.args[0] if node.args else None
        named = function_name(node) == "unbind" and isinstance(source, fx.Node) and source.op == "placeholder"
        if named and (node.args[1:] or (node.kwargs.get("dim", 0),))[0] in (1, -1):
            return iter([operator.getitem(obj, i) for i in range(self.in_width)])
        return super().iter(obj)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """A subclass or an instance with a forward of its own is traced like any other module."""
        if "forward" in m.__dict__:
            return False
        if isinstance(m, nn.Linear | nn.Identity):
            return type(m).forward in (nn.Linear.forward, nn.Identity.forward)
        return type(m) in MODULE_UNARY or super().is_leaf_module(m, module_qualified_name)


def function_name(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
