"""Networks by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from torch import nn

from pinnfuse.errors import nearest
from pinnfuse.models.mlp import MLP, ModifiedMLP
from pinnfuse.models.piratenet import PirateNet

_NETWORKS: dict[str, Callable[..., nn.Module]] = {"mlp": MLP, "modified_mlp": ModifiedMLP, "piratenet": PirateNet}


def available() -> tuple[str, ...]:
    """Names of the networks, the default first."""
    return tuple(_NETWORKS)


def get(name: str) -> Callable[..., nn.Module]:
    """The class of that name; a wrong name raises ValueError with the nearest."""
    if name not in _NETWORKS:
        raise ValueError(f"unknown model {name!r}. {nearest(name, _NETWORKS)}")
    return _NETWORKS[name]


def build(name: str, **options: object) -> nn.Module:
    """The network of that name; `options` are the arguments of its class, `in_features` and `out_features` included."""
    make = get(name)
    known = inspect.signature(make).parameters
    for key in options:
        if key not in known:
            raise ValueError(f"model {name!r} has no option {key!r}. {nearest(key, known)}")
    return make(**options)
