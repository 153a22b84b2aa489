"""What the generated Hopper kernels say, run on a CPU by a stand-in for Gluon."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from pinnfuse import PDE, FusedResidualLoss
from pinnfuse.jets.plan import plan
from pinnfuse.kernels.jets import config, fused, runner
from pinnfuse.kernels.jets.hopper import generate_hopper
from pinnfuse.kernels.jets.hopper_fused import generate_fused
from pinnfuse.kernels.jets.hopper_grouped import generate_hopper_grouped
from pinnfuse.kernels.jets.hopper_looped import generate_hopper_looped, loops_on_hopper
from pinnfuse.kernels.jets.looped import loops

from . import gluon  # noqa: TID251 - this folder, not the library's
from .cases import PDES, errors, mlp  # noqa: TID251 - this folder, not the library's
from .test_looped import PDES as MANY  # noqa: TID251

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels themselves run here")


@pytest.fixture
def standing_in(monkeypatch):
    """Every engine takes the Hopper kernels; `launch` changes their configuration. Counts the modules made."""
    made = []

    def module(spec, ring=False, lean=False, grouped=False):
        looped = generate_hopper_grouped if grouped else generate_hopper_looped
        text = looped(spec) if loops(spec.space) else generate_hopper(spec, ring, lean)
        made.append(text)
        return gluon.module(text)

    def launch(**changes):
        old = config.launch
        monkeypatch.setattr(config, "launch", lambda *a: replace(old(*a), rows=64, block=64, **changes))

    def one_kernel(spec, lean=False):
        made.append(generate_fused(spec, lean))
        return gluon.module(made[-1])

    monkeypatch.setattr(runner, "hopper_module", module)
    monkeypatch.setattr(fused, "module", one_kernel)
    monkeypatch.setattr(config, "hopper", lambda *a: True)
    launch(fused=False)
    return launch, made


def check(pde, net, n):
    points = torch.rand(n, len(pde.coordinates), generator=torch.Generator().manual_seed(0))
    eager = errors(pde, net, points, "autograd")
    for key, error in errors(pde, net, points, "triton").items():
        assert error <= max(3e-6, 10 * eager[key]), key


@pytest.mark.parametrize(("name", "width", "activation"), [("poisson", 100, nn.Tanh), ("heat", 64, nn.Sigmoid)])
def test_a_loop_over_tangents(name, width, activation, standing_in, monkeypatch):
    monkeypatch.setattr("pinnfuse.kernels.jets.looped.LOOPED_FROM", 3)
    launch, made = standing_in
    launch(ring=(4, 3))
    pde = MANY[name]
    net = mlp(len(pde.coordinates), [width] * (2 if width > 64 else 3), 1, activation)
    assert loops_on_hopper(plan(pde).space, ("tanh",))
    check(pde, net, 70)
    assert made and "fetch_backward" in made[0]


@pytest.mark.parametrize(("width", "groups", "activation"), [(64, 2, nn.Tanh), (128, 3, nn.Sigmoid)])
def test_tangents_shared_among_programs(width, groups, activation, standing_in, monkeypatch):
    monkeypatch.setattr("pinnfuse.kernels.jets.looped.LOOPED_FROM", 3)
    launch, made = standing_in
    launch(ring=(4, 4), groups=groups, thrifty=True)
    pde = PDE("u", "x0 x1 x2 x3 x4", equations={"poisson": "laplacian(u) - sin(x0)*u"})
    check(pde, mlp(5, [width] * (2 if width > 64 else 3), 1, activation), 200)
    assert "backward_end_kernel" in made[0]


def test_portable_kernels_follow_where_shared_tangents_do_not_compile(standing_in, monkeypatch):
    def fails(*given):
        raise RuntimeError("PassManager::run failed")

    monkeypatch.setattr("pinnfuse.kernels.jets.looped.LOOPED_FROM", 3)
    monkeypatch.setattr(config, "_refused", [])
    monkeypatch.setattr(runner, "hopper_module", fails)
    standing_in[0](ring=(4, 4), groups=2, thrifty=True)
    pde = PDE("u", "x0 x1 x2 x3 x4", equations={"poisson": "laplacian(u) - sin(x0)*u"})
    with pytest.warns(UserWarning, match="PassManager"):
        check(pde, mlp(5, [64] * 2, 1, nn.Tanh), 70)


@pytest.mark.parametrize(("ring", "lean"), [((1, 1), False), ((4, 3), True)])
def test_a_layer_at_a_time(ring, lean, standing_in):
    launch, made = standing_in
    launch(ring=ring, lean=lean)
    check(PDES["burgers"], mlp(2, [128] * 2, 1, nn.Tanh), 70)
    assert lean == any("opaque_zero(tile, kb)" in text for text in made)


def test_chained_layers(standing_in):
    check(PDES["kdv"], mlp(2, [64] * 3, 1, nn.SiLU), 20)
    assert "stack_forward_kernel" in standing_in[1][0]


@pytest.mark.parametrize("lean", [False, True])
def test_one_kernel(lean, standing_in):
    launch, made = standing_in
    launch(fused=True, lean=lean)
    net = mlp(2, [64] * 3, 1, nn.Tanh)
    check(PDES["burgers"], net, 70)
    assert any("fused_kernel" in text for text in made)
    loss_fn = FusedResidualLoss(PDES["burgers"], backend="triton")
    few, many = (loss_fn.explain(net, torch.rand(n, 2)).memory_bytes for n in (200, 100_000))
    assert few == many  # two programs, whatever the number of points


def test_the_stand_in_sees_programs_that_share_a_number():
    text = "@gluon.jit\ndef one_kernel(x_ptr):\n    gl.store(x_ptr + gl.arange(0, 4), gl.zeros([4], gl.float32))\n"
    kernel = gluon.module(text).one_kernel
    kernel[(1,)](torch.ones(4))
    with pytest.raises(AssertionError, match="another program"):
        kernel[(2,)](torch.ones(4))
