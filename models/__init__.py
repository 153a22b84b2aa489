"""Coordinate networks and neural operators (plain `nn.Module`s), and the LightningModules that train them.

`PINN`, `GridSurrogate` and `DataParallel` are loaded when first used: the networks alone do not import Lightning.
"""

from typing import TYPE_CHECKING, Any

from pinnfuse.models.fno import FNO
from pinnfuse.models.layers import ACTIVATIONS, FactorisedLinear, FourierFeatures, InputMap
from pinnfuse.models.mlp import MLP, ModifiedMLP
from pinnfuse.models.operators import OPERATORS, for_task, operator
from pinnfuse.models.piratenet import PirateNet
from pinnfuse.models.registry import available, build, for_problem, get
from pinnfuse.models.siren import Siren
from pinnfuse.models.transform import InputTransform, OutputTransform
from pinnfuse.models.unet import UNet

if TYPE_CHECKING:
    from pinnfuse.models.data_parallel import DataParallel
    from pinnfuse.models.pinn import PINN
    from pinnfuse.models.surrogate import GridSurrogate

__all__ = [
    "ACTIVATIONS",
    "FNO",
    "MLP",
    "OPERATORS",
    "PINN",
    "DataParallel",
    "FactorisedLinear",
    "FourierFeatures",
    "GridSurrogate",
    "InputMap",
    "InputTransform",
    "ModifiedMLP",
    "OutputTransform",
    "PirateNet",
    "Siren",
    "UNet",
    "available",
    "build",
    "for_problem",
    "for_task",
    "get",
    "operator",
]


def __getattr__(name: str) -> Any:
    if name == "PINN":
        from pinnfuse.models.pinn import PINN

        return PINN
    if name == "DataParallel":
        from pinnfuse.models.data_parallel import DataParallel

        return DataParallel
    if name == "GridSurrogate":
        from pinnfuse.models.surrogate import GridSurrogate

        return GridSurrogate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
