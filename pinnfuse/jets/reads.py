"""What a forward reads besides its tensors, so that a traced graph is dropped when any of it changes.

A graph traced by `torch.fx` holds the numbers that Python computed on the way: a global factor, a class attribute, an
entry of a dictionary. While the network is traced, a profile function notes which code runs. `Reads.state` then
pictures what that code can reach: globals, closures, defaults, classes, and the attributes whose names it mentions.
What cannot be pictured (an iterator, an object of an extension module, thousands of entries) makes the network one
without a closed form. Beyond sight: what C code keeps for itself (a file, a socket, a clock) and does not change
between two traces in a row, which must agree.
"""

from __future__ import annotations

import dis
import enum
import functools
import logging
import sys
import types
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode

from pinnfuse.checks import modules_of


class Unreadable(Exception):
    """Something read whose changes cannot be seen; the message names it."""


class Reads:
    """Code that ran in a trace, and what it reads."""

    def __init__(self) -> None:
        self.codes: dict[types.CodeType, dict[str, Any]] = {}
        self._classes: list[type] | None = None
        self._attributes: list[tuple[int, str]] = []  # (position of the module, name)
        self.eager = False  # Python computed with tensors, so their values are part of the graph
        self.problem = ""  # why the graph would not be what the forward computes

    @contextmanager
    def watching(self, net: nn.Module) -> Iterator[None]:
        """Note what runs inside, a trace of `net`. Whoever profiles this thread does not see the trace."""
        outer = sys.getprofile()
        sys.setprofile(self._note)
        try:
            with _EagerTensors(self, net):
                yield
        finally:
            sys.setprofile(outer)

    def _note(self, frame: types.FrameType, event: str, _: Any) -> None:
        if event != "call" or frame.f_code in self.codes:
            return
        if frame.f_code is _APPLY:
            self.problem = "it calls a torch.autograd.Function, whose own backward a closed form would not run"
        elif not _is_library(frame.f_globals.get("__name__")):
            self.codes[frame.f_code] = frame.f_globals

    @functools.cached_property
    def names(self) -> frozenset[str] | None:
        """Every name or text in the code; None: it looks names up in ways that the code does not show."""
        found = {name for code in self.codes for name in code.co_names}
        found.update(text for code in self.codes for text in code.co_consts if isinstance(text, str))
        return None if found & {"__dict__", "vars", "__getattribute__", "eval", "exec", "globals"} else frozenset(found)

    @functools.cached_property
    def _globals(self) -> list[tuple[dict[str, Any], str]]:
        """(namespace, name) of what the code loads from its own module, and of what it names in modules it uses."""
        found: dict[tuple[int, str], tuple[dict[str, Any], str]] = {}
        modules: list[types.ModuleType] = []

        def add(space: dict[str, Any], name: str) -> None:
            value = space.get(name)
            if (id(space), name) in found or (name not in space):
                return
            found[id(space), name] = (space, name)
            if isinstance(value, types.ModuleType):
                modules.append(value)

        for code, space in self.codes.items():
            for step in dis.get_instructions(code):
                if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                    add(space, step.argval)
                elif step.opname == "IMPORT_NAME" and step.argval in sys.modules:
                    modules.append(sys.modules[step.argval])
        for module in modules:  # grows
            if module.__name__.split(".")[0] not in _CONSTANT_MODULES:
                for name in vars(module).keys() if self.names is None else self.names & vars(module).keys():
                    add(vars(module), name)
        return list(found.values())

    def state(self, net: nn.Module) -> tuple[Any, ...]:
        """A picture of all that, to compare with a later one.

        Raises:
            Unreadable: something in it cannot be pictured.
        """
        if not self.codes:
            return ()
        modules = modules_of(net)
        if self._classes is None:
            self._look_through(modules)
        picture = _Picture(self.names, {id(m) for m in modules}, self.eager)
        return (
            *(picture.named(space.get(name, _MISSING), name) for space, name in self._globals),
            *map(picture.of, self._classes or ()),
            *(picture.named(modules[i].__dict__.get(name, _MISSING), name) for i, name in self._attributes),
        )

    def _look_through(self, modules: list[nn.Module]) -> None:
        """Classes and attributes to picture; the fingerprint tells when there are others, or other plain values."""
        kinds = dict.fromkeys(type(m) for m in modules)
        self._classes = [k for k in kinds if not all(_is_library(parent.__module__) for parent in k.__mro__)]
        self._attributes = [
            (i, name)
            for i, module in enumerate(modules)
            for name, value in module.__dict__.items()
            if name not in _MODULE_STATE and type(value) not in _PLAIN and (self.names is None or name in self.names)
        ]


class _Picture:
    """Values as nested tuples. Attributes that no code names are left out; a cycle ends at its second visit."""

    def __init__(self, names: frozenset[str] | None, modules: set[int], eager: bool):
        self._names, self._modules, self._eager = names, modules, eager
        self._seen: set[int] = set()
        self._left = 4000

    def named(self, value: Any, name: str) -> Any:
        if type(value) in _PLAIN:
            return value
        try:
            return self.of(value)
        except Unreadable as reason:
            raise Unreadable(f"its forward reads {name!r}: {reason}") from None

    def of(self, value: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise Unreadable("too many values to compare at every call")
        kind = type(value)
        if kind in _PLAIN:
            return value
        if isinstance(value, _SAME_FOREVER) or id(value) in self._modules or id(value) in self._seen:
            return id(value)
        if isinstance(value, Tensor):
            return (id(value), value.shape, value.dtype, value.device, _numbers(value) if self._eager else None)
        self._seen.add(id(value))
        if kind is types.FunctionType and not (value.__closure__ or value.__defaults__ or value.__kwdefaults__):
            return (id(value), *self._attributes(value)) if value.__dict__ else id(value)
        try:
            return (kind.__name__, *self._inside(value))
        except RecursionError:
            raise Unreadable("nested too deeply") from None

    def _inside(self, value: Any) -> Iterator[Any]:
        of = self.of
        if isinstance(value, types.FunctionType):
            yield id(value)
            for cell in value.__closure__ or ():
                try:
                    yield of(cell.cell_contents)
                except ValueError:
                    yield None  # not filled yet
            yield from map(of, value.__defaults__ or ())
            yield from map(of, (value.__kwdefaults__ or {}).values())
            yield from self._attributes(value)
        elif isinstance(value, types.MethodType):
            yield from (of(value.__func__), of(value.__self__))
        elif isinstance(value, types.BuiltinFunctionType | types.MethodWrapperType):
            yield of(value.__self__)
            yield value.__name__
        elif isinstance(value, staticmethod | classmethod):
            yield of(value.__func__)
        elif isinstance(value, property):
            yield of(value.fget)
        elif isinstance(value, functools.partial):
            yield from (of(value.func), of(value.args), of(value.keywords))
        elif hasattr(value, "__wrapped__") and hasattr(value, "cache_info"):  # lru_cache
            yield of(value.__wrapped__)
        elif isinstance(value, type):
            yield id(value)
            for parent in value.__mro__:
                if not _is_library(parent.__module__):
                    yield from self._items(vars(parent), keep=_is_operator)
        elif isinstance(value, numpy.ndarray) and value.nbytes <= 4096 and value.dtype != object:
            yield from (value.shape, value.dtype.str, value.tobytes())
        else:
            yield from self._object(value)

    def _object(self, value: Any) -> Iterator[Any]:
        understood = False
        if isinstance(value, dict | types.MappingProxyType):
            understood = True
            yield from map(self.of, value.keys())
            yield from map(self.of, value.values())
        elif isinstance(value, set | frozenset):
            understood = True
            yield frozenset(map(self.of, value))
        elif isinstance(value, list | tuple | deque | bytearray):
            understood = True
            yield from map(self.of, value)
        kinds = [k for k in type(value).__mro__ if k not in (object, types.SimpleNamespace)]
        if not understood and any(not k.__flags__ & _HEAP for k in kinds):
            raise Unreadable(f"{type(value).__module__}.{type(value).__name__}, which may change unseen")
        yield id(type(value))
        yield from self._attributes(value)

    def _attributes(self, value: Any) -> Iterator[Any]:
        """Instance attributes; those of library objects are read by code that was not noted, hence all."""
        whole = _is_library(type(value).__module__) and not isinstance(value, types.FunctionType)
        yield from self._items(getattr(value, "__dict__", {}), whole)
        for kind in type(value).__mro__:
            slots = kind.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if name not in ("__dict__", "__weakref__") and (whole or self._names is None or name in self._names):
                    yield self.of(getattr(value, name, None))

    def _items(self, space: Any, whole: bool = False, keep: Any = None) -> Iterator[Any]:
        for name, value in list(space.items()):
            if whole or self._names is None or name in self._names or (keep is not None and keep(name, value)):
                yield name
                yield self.named(value, name)


def _numbers(tensor: Tensor) -> Any:
    """What tells that a tensor was written to: its numbers where they are few and on the host, else torch's counter."""
    if tensor.device.type == "cpu" and tensor.numel() <= 64:
        return tensor.detach().tolist()
    return None if tensor.is_inference() else tensor._version


class _EagerTensors(TorchFunctionMode):
    """Notes a computation with a tensor that existed before the trace: its result is frozen into the graph."""

    def __init__(self, reads: Reads, net: nn.Module):
        super().__init__()
        self._reads = reads
        self._own = {id(t) for t in (*net.parameters(), *net.buffers())}
        self._made: dict[int, Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        given = [*_flat(args), *_flat((kwargs or {}).values())]
        traced = any(isinstance(a, fx.Proxy) for a in given)
        old = [a for a in given if isinstance(a, Tensor) and id(a) not in self._made]
        if old and not traced and not _is_shape(func):
            self._reads.eager = True
            if any(t.requires_grad or id(t) in self._own for t in old):
                self._reads.problem = f"it computes with its parameters where torch.fx does not see it ({_title(func)})"
        result = func(*args, **(kwargs or {}))
        if not old and not traced:
            self._made.update((id(t), t) for t in _flat((result,)) if isinstance(t, Tensor))
        return result


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value


def _title(func: Any) -> str:
    return str(getattr(func, "__name__", func))


def _is_shape(func: Any) -> bool:
    """Does it read what the fingerprint of a network holds, not the tensor's numbers?"""
    name = _title(func)
    return (_title(func.__self__) if name == "__get__" else name) in _SHAPES


_SHAPES = frozenset(
    {
        *("shape", "dtype", "device", "ndim", "layout", "requires_grad", "is_leaf", "is_sparse", "is_quantized"),
        *(
            "is_meta",
            "is_cuda",
            "is_inference",
            "is_floating_point",
            "is_complex",
            "size",
            "dim",
            "ndimension",
            "numel",
        ),
        *("__len__", "__hash__", "grad_fn", "_version", "itemsize", "element_size", "nbytes", "names"),
    }
)


def _is_operator(name: str, value: Any) -> bool:
    """`__call__`, `__getattr__`, ...: called without being named. And `forward`, which torch calls."""
    implicit = name == "forward" or (name.startswith("__") and name not in _BEFORE)
    return implicit and isinstance(value, types.FunctionType)


@functools.cache
def _is_library(module: str | None) -> bool:
    name = str(module)
    return name.split(".")[0] in _LIBRARIES or name.startswith(("pinnfuse.jets.", "namedtuple_"))


_BEFORE = ("__init__", "__new__", "__init_subclass__", "__repr__", "__str__")
_LIBRARIES = (sys.stdlib_module_names - {"__main__"}) | {"torch", "numpy", "scipy", "sympy", "lightning"}
_CONSTANT_MODULES = frozenset({"torch", "numpy", "scipy", "sympy", "math", "cmath", "lightning"})
_MODULE_STATE = frozenset(vars(nn.Module())) - {"training"}
_PLAIN = frozenset(
    {
        *(bool, int, float, complex, str, bytes, type(None), type(...), range, slice),
        *(torch.dtype, torch.device, torch.Size, numpy.float64, numpy.float32, numpy.int64, numpy.bool_),
    }
)
_SAME_FOREVER = (
    types.ModuleType,
    types.CodeType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    enum.Enum,
    logging.Logger,
    numpy.ufunc,
    torch.jit.ScriptFunction,
    torch.memory_format,
    torch.layout,
)
_MISSING = "not there"
_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: defined by a `class` statement
_APPLY = torch.autograd.Function.apply.__func__.__code__  # type: ignore[attr-defined]
