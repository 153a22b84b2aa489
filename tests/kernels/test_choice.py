"""Which derivatives the kernels take, as `backends.choose` sees it."""

import pytest
import torch
from torch import Tensor, nn

import pinnfuse
from pinnfuse import BackendUnavailable, backends

from .cases import mlp  # noqa: TID251 - this folder, not the library's


def order_five(backend: str, where: torch.device) -> Tensor:
    net = mlp(2, [16, 16], 1, nn.Tanh).to(where)
    points = torch.rand(7, 2, device=where)
    return pinnfuse.derivatives(net, points, ["u_xxxxx"], fields="u", coordinates="t x", backend=backend)["u_xxxxx"]


def test_auto_falls_back_where_the_channels_do_not_fit(where: torch.device) -> None:
    torch.manual_seed(0)
    found = order_five("auto", where)
    torch.manual_seed(0)
    assert torch.equal(found, order_five("torch", where))


def test_an_explicit_choice_says_what_fits(where: torch.device) -> None:
    with pytest.raises(BackendUnavailable, match="channels of order 5; at most"):
        order_five("triton", where)


def test_auto_takes_the_kernels_where_the_channels_fit(where: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    choices = []
    choose = backends.choose
    monkeypatch.setattr(backends, "choose", lambda *args: choices.append(choose(*args)) or choices[-1])
    net = mlp(2, [16, 16], 1, nn.Tanh).to(where)
    pinnfuse.derivatives(net, torch.rand(7, 2, device=where), ["u_xx"], fields="u", coordinates="t x")
    assert [choice.backend for choice in choices] == ["triton"]
