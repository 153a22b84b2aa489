"""The engines that are compared: ours by backend, and peers where they are installed.

An engine turns a case into `step(points) -> (loss, gradients)`, gradients in the order of the network's parameters.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pinnfuse import BackendUnavailable, FusedResidualLoss
from pinnfuse import precision as precisions
from pinnfuse.bench import peers
from pinnfuse.bench.cases import Case
from pinnfuse.errors import nearest
from pinnfuse.files import cache_directory

Step = Callable[[Tensor], tuple[Any, Sequence[Any]]]
"""What it returns has `.double()`, which gives a tensor."""
PEERS = ("autograd", "torch", "torch-compile", "jax")


def build(name: str, case: Case, net: nn.Module | None = None) -> tuple[Step, str]:
    """The step of an engine, and the path it takes; `net` replaces the case's network, for ours.

    Raises:
        BackendUnavailable: it cannot run here, with the reason.
        ValueError: there is no such engine.
    """
    if name == "torch-compile":
        return _compiled(case)
    if name == "jax":
        return _jax(case)
    if name not in ("auto", "autograd", "torch", "triton"):
        raise ValueError(f"bench jets: unknown engine {name!r}. {nearest(name, PEERS)}")
    net = copy.deepcopy(net or case.network()).to(case.dtype)
    loss_fn = FusedResidualLoss(case.pde, backend=name, precision=case.precision).to(case.device, case.dtype)
    explanation = loss_fn.explain(net, case.inputs(1)[0])
    return _step(case, net, lambda x: loss_fn(net, x)), f"{explanation.backend} ({explanation.path})"


def _step(case: Case, net: nn.Module, loss: Callable[[Tensor], Tensor]) -> Step:
    parameters = list(net.parameters())

    def step(points: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
        for p in parameters:
            p.grad = None
        with precisions.torch_matmul(case.precision):  # forward and backward
            value = loss(points)
            value.backward()
        return value.detach(), [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]

    return step


def _compiled(case: Case) -> tuple[Step, str]:
    if case.device.type == "cuda" and importlib.util.find_spec("triton") is None:
        raise BackendUnavailable("torch.compile needs Triton on a card, and it is not installed")
    net = case.network()
    weights = list(net.parameters())
    torch.compiler.reset()  # one function in many shapes would reach the limit of recompilations
    jets = peers.torch_jets(case.plan, case.kind, case.frequencies(net))
    loss = torch.compile(jets, fullgraph=True, dynamic=False)
    return _step(case, net, lambda points: loss(weights, points)), "collapsed jets, torch.compile"


def _jax(case: Case) -> tuple[Step, str]:
    if importlib.util.find_spec("jax") is None:
        raise BackendUnavailable("jax is not installed")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else it takes most of the card
    jax = importlib.import_module("jax")
    _keep_compiled(jax)
    platform = "gpu" if case.device.type == "cuda" else "cpu"
    if jax.default_backend() != platform:
        raise BackendUnavailable(f"jax runs on {jax.default_backend()} here, not on {platform}")
    if case.dtype == torch.float64:
        jax.config.update("jax_enable_x64", True)
    level = {"float64": "highest", "float32": "highest", "tf32": "tensorfloat32", "bf16x3": "BF16_BF16_F32_X3"}
    net = case.network()
    weights = [jax.numpy.asarray(p.detach().cpu().numpy()) for p in net.parameters()]
    frequencies = case.frequencies(net)
    if frequencies is not None:
        frequencies = jax.numpy.asarray(frequencies.cpu().numpy())
    gradient = jax.jit(jax.value_and_grad(peers.jax_jets(case.plan, case.kind, frequencies)))
    known: dict[int, object] = {}

    def step(points: Tensor) -> tuple[Any, Sequence[Any]]:
        x = known.get(points.data_ptr())
        if x is None:  # a copy to jax is no part of the step
            x = known[points.data_ptr()] = jax.numpy.asarray(points.cpu().numpy())
        with jax.default_matmul_precision(level[case.precision]):
            value, gradients = last[0] = gradient(weights, x)
        return _Lazy(value), [_Lazy(g) for g in gradients]

    last: list[Any] = [None]
    step.wait = lambda: jax.block_until_ready(last[0])  # type: ignore[attr-defined]
    return step, "collapsed jets, jax.jit"


def _keep_compiled(jax: Any) -> None:
    """Compiled code stays on disk, as torch.compile's and Triton's does by default."""
    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR") or str(cache_directory() / "jax")
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


class _Lazy:
    """An array of jax that becomes a tensor when the check asks for it, not in the timed step."""

    def __init__(self, array: object):
        self.array = array

    def double(self) -> Tensor:
        numpy = importlib.import_module("numpy")
        return torch.from_numpy(numpy.array(self.array, dtype="float64"))
