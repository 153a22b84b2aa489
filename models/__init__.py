"""Coordinate networks (plain `nn.Module`s), and the LightningModule that trains them.

`PINN` is loaded when first used, so that the networks alone do not import Lightning.
"""

from typing import TYPE_CHECKING, Any

from pinnfuse.models.layers import ACTIVATIONS, FactorisedLinear, FourierFeatures, InputMap
from pinnfuse.models.mlp import MLP, ModifiedMLP
from pinnfuse.models.piratenet import PirateNet
from pinnfuse.models.registry import available, build, for_problem, get
from pinnfuse.models.siren import Siren
from pinnfuse.models.transform import InputTransform, OutputTransform

if TYPE_CHECKING:
    from pinnfuse.models.pinn import PINN

__all__ = [
    "ACTIVATIONS",
    "MLP",
    "PINN",
    "FactorisedLinear",
    "FourierFeatures",
    "InputMap",
    "InputTransform",
    "ModifiedMLP",
    "OutputTransform",
    "PirateNet",
    "Siren",
    "available",
    "build",
    "for_problem",
    "get",
]


def __getattr__(name: str) -> Any:
    if name == "PINN":
        from pinnfuse.models.pinn import PINN

        return PINN
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
