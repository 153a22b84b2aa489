"""Networks by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import nn

from pinnfuse.errors import nearest
from pinnfuse.models.mlp import MLP, ModifiedMLP
from pinnfuse.models.piratenet import PirateNet
from pinnfuse.models.siren import Siren
from pinnfuse.models.transform import InputTransform, OutputTransform

if TYPE_CHECKING:
    from pinnfuse.problems import Problem

_NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "mlp": MLP,
    "modified_mlp": ModifiedMLP,
    "piratenet": PirateNet,
    "siren": Siren,
}


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


def for_problem(problem: Problem, name: str | None = None, hard: bool = True, **options: object) -> nn.Module:
    """A network for a problem: inputs scaled by its domain, periodic where it is, with its hard constraints.

    Args:
        problem: gives sizes, bounds, periods and the output transform.
        name: of the network; None takes the problem's default and its options.
        hard: wrap the network in the problem's exact output transform, if it has one.
        options: arguments of the network's class.
    """
    if name is None:
        name, options = problem.model.name, {**problem.model.kwargs, **options}
    pde, domain = problem.pde, problem.domain
    net = build(
        name,
        in_features=len(pde.coordinates),
        out_features=len(pde.fields),
        bounds=[domain.bounds[c] for c in pde.coordinates],
        periods={pde.coordinates.index(c): period for c, period in problem.periodic.items()},
        **options,
    )
    if hard and problem.inputs:
        net = InputTransform(net, problem.inputs, pde.coordinates)
    if not (hard and problem.hard):
        return net
    constants = {name: p.value for name, p in pde.parameters.items() if not p.trainable}
    return OutputTransform(net, problem.hard, pde.fields, pde.coordinates, constants)
