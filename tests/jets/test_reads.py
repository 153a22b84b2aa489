"""A traced graph holds numbers that Python computed: what gave them is seen to change, or the network has no graph."""

import collections
import functools
import itertools
import random
import sys
import types

import numpy as np
import pytest
import torch
from torch import nn

from pinnfuse import PDE, FusedResidualLoss, models
from pinnfuse.jets import NotRecognised, recognise

BURGERS = PDE("u", "t x", equations={"burgers": "u_t + u*u_x - 0.1*u_xx"})


class Net(nn.Module):
    """u = m(x) and a second network n, put together by `f`; `w` is a parameter."""

    def __init__(self, f, **attributes):
        super().__init__()
        self.m, self.n = (nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1)) for _ in range(2))
        self.w, self.f = nn.Parameter(torch.tensor([0.3])), f
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x):
        return self.f(self, x)


pytestmark = pytest.mark.usefixtures("double_precision")


def assert_same(net):
    points, found = torch.rand(7, 2), []
    for backend in ("autograd", "auto"):
        loss = FusedResidualLoss(BURGERS, backend=backend)(net, points)
        found.append([loss, *torch.autograd.grad(loss, list(net.parameters()), materialize_grads=True)])
    torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-12)


def without_gradient(net, x):
    with torch.no_grad():
        weight = net.n(x)
    return net.m(x) * weight


def weight_without_gradient(net, x):
    with torch.no_grad():
        weight = net.w.exp()
    return net.m(x) * weight


@torch.no_grad()
def decorated(net, x):
    return net.n(x)


def switched(net, x):
    torch.set_grad_enabled(False)
    weight = net.n(x)
    torch.set_grad_enabled(True)
    return net.m(x) * weight


def inference(net, x):
    with torch.inference_mode():
        weight = net.n(x)
    return net.m(x) * weight.clone()


def lower_precision(net, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return net.m(x).double()


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


def hooked(net):
    net.m[1].register_full_backward_hook(lambda module, given, got: tuple(2 * g for g in given))
    return net


FORWARDS = {
    "no_grad": lambda: Net(without_gradient),
    "no_grad_on_a_weight": lambda: Net(weight_without_gradient),
    "no_grad_decorator": lambda: Net(lambda s, x: s.m(x) + decorated(s, x)),
    "set_grad_enabled": lambda: Net(switched),
    "inference_mode": lambda: Net(inference),
    "function": lambda: Net(lambda s, x: s.m(Reversed.apply(x))),
    "function_of_a_weight": lambda: Net(lambda s, x: s.m(x) * Reversed.apply(s.w)),
    "backward_hook": lambda: hooked(Net(lambda s, x: s.m(x))),
    "parameter_behind_fx": lambda: Net(lambda s, x: s.m(x) * s._parameters["w"].exp()),
}


@pytest.mark.parametrize("name", FORWARDS)
def test_what_a_trace_would_lose_is_not_traced(name):
    net = FORWARDS[name]()
    with pytest.raises(NotRecognised):
        recognise(net, 2)
    assert_same(net)


@pytest.mark.parametrize(
    "forward",
    [
        lower_precision,
        lambda net, x: net.m(x) * random.random(),
        lambda net, x: net.m(x) * np.random.rand(),
        lambda net, x: net.m(x) * next(net.count),
    ],
)
def test_a_forward_that_differs_every_time_is_not_traced(forward):
    with pytest.raises(NotRecognised):
        recognise(Net(forward, count=itertools.count(1)), 2)


def test_a_hook_on_every_module():
    net = Net(lambda s, x: s.m(x))
    recognise(net, 2)
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, given, got: 2 * got if isinstance(module, nn.Tanh) else None
    )
    try:
        assert_same(net)
    finally:
        handle.remove()
    recognise(net, 2)


class Settings:
    k = 1.0


class Slots:
    __slots__ = ("k",)


class Scaled(Net):
    scale = 1.0


NUMBER, NUMBERS, TENSOR = 1.0, [1.0], torch.tensor(1.0)


def change_global(net):
    global NUMBER
    NUMBER = 3.0


def closure():
    k = 1.0

    def forward(net, x):
        return net.m(x) * k

    def change(net):
        nonlocal k
        k = 3.0

    return Net(forward), change


def slots():
    o = Slots()
    o.k = 1.0
    return Net(lambda s, x: s.m(x) * s.o.k, o=o), lambda n: setattr(o, "k", 3.0)


def deep():
    k = {"a": {"b": {"c": {"d": [1.0]}}}}
    return Net(lambda s, x: s.m(x) * s.k["a"]["b"]["c"]["d"][0], k=k), lambda n: k["a"]["b"]["c"].update(d=[3.0])


def imported():
    from tests_settings import factor

    return factor


def method(net, x):
    return 3 * net.m(x)


CHANGES = {
    "global": lambda: (Net(lambda s, x: s.m(x) * NUMBER), change_global),
    "global_list": lambda: (Net(lambda s, x: s.m(x) * NUMBERS[0]), lambda n: NUMBERS.__setitem__(0, 3.0)),
    "global_tensor": lambda: (Net(lambda s, x: s.m(x) * float(TENSOR)), lambda n: TENSOR.fill_(3.0)),
    "global_tensor_computed": lambda: (Net(lambda s, x: s.m(x) * (2 * TENSOR)), lambda n: TENSOR.fill_(5.0)),
    "class": lambda: (Net(lambda s, x: s.m(x) * Settings.k), lambda n: setattr(Settings, "k", 3.0)),
    "class_attribute": lambda: (Scaled(lambda s, x: s.m(x) * s.scale), lambda n: setattr(Scaled, "scale", 3.0)),
    "closure": closure,
    "slots": slots,
    "deep": deep,
    "array": lambda: (Net(lambda s, x: s.m(x) * float(s.k[0]), k=np.ones(2)), lambda n: n.k.fill(3.0)),
    "set": lambda: (Net(lambda s, x: (s.n if "n" in s.k else s.m)(x), k=set()), lambda n: n.k.add("n")),
    "deque": lambda: (Net(lambda s, x: s.m(x) * s.k[-1], k=collections.deque([1.0])), lambda n: n.k.append(3.0)),
    "partial": lambda: (
        Net(lambda s, x: s.m(x) * s.k()[0], k=functools.partial(lambda c: c, [1.0])),
        lambda n: n.k.args[0].insert(0, 3.0),
    ),
    "module": lambda: (Net(lambda s, x: s.m(x) * imported()), lambda n: setattr(SETTINGS, "factor", 3.0)),
    "method_of_a_class": lambda: (Scaled(None), lambda n: setattr(Scaled, "forward", method)),
}
SETTINGS = types.ModuleType("tests_settings")


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_what_a_forward_reads_is_seen(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "tests_settings", SETTINGS)
    monkeypatch.setattr(SETTINGS, "factor", 1.0, raising=False)
    monkeypatch.setattr(Scaled, "forward", lambda s, x: s.m(x) if s.f is None else s.f(s, x))
    net, change = CHANGES[name]()
    assert_same(net)
    change(net)
    assert_same(net)


@pytest.mark.parametrize("change", [lambda n: n.low.data.sub_(1.0), lambda n: n.high.__setitem__(0, 5.0)])
def test_bounds_that_are_no_buffers(change):
    """The usual scaling to [-1, 1]: torch.fx does not see `high - low`, but its tensors are watched."""

    def forward(net, x):
        return net.m(2 * (x - net.low) / (torch.from_numpy(net.high) - net.low) - 1)

    net = Net(forward, low=torch.zeros(2), high=np.ones(2))
    assert recognise(net, 2) is recognise(net, 2)
    assert_same(net)
    change(net)
    assert_same(net)


def test_nothing_is_traced_again_while_training():
    """Optimiser steps change tensors, which are no reason to trace; neither is what no code names."""
    net = Net(lambda s, x: s.m(x) * s.k["a"] * TENSOR, k={"a": 1.0}, trainer=object())
    first = recognise(net, 2)
    with torch.no_grad():
        net.w.add_(1.0)
        TENSOR.add_(1.0)
    assert recognise(net, 2) is first
    for make in (models.MLP, models.ModifiedMLP, models.PirateNet):
        ours = make(2, 1)
        assert recognise(ours, 2) is recognise(ours, 2)
