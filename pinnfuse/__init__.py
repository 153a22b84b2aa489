"""pinnfuse: fused residual losses for physics-informed networks and neural PDE surrogates, in PyTorch and Triton."""

import importlib
from types import ModuleType

import torch

from pinnfuse.errors import BackendUnavailable, nearest
from pinnfuse.grid import FusedGridResidualLoss, Grid
from pinnfuse.pde import PDE, Data, Jet, Parameter
from pinnfuse.residual import FusedResidualLoss, derivatives

__version__ = "0.1.0"

if torch.distributed.is_available():
    # Default arguments of its functions hold the process group that they find when they are imported. Torch's
    # optimisers import them late: gloo's threads then outlive destroy_process_group, and a process that has done its
    # work may abort as it ends.
    importlib.import_module("torch.distributed.nn.functional")

__all__ = [
    "PDE",
    "BackendUnavailable",
    "Data",
    "FusedGridResidualLoss",
    "FusedResidualLoss",
    "Grid",
    "Jet",
    "Parameter",
    "__version__",
    "derivatives",
    "selftest",
]


_PARTS = [
    "balancing",
    "callbacks",
    "datamodules",
    "datasets",
    "debug",
    "domains",
    "figures",
    "kernels",
    "metrics",
    "models",
    "optimizers",
    "problems",
    "simulation",
    "tasks",
    "tracking",
    "training",
]


def __getattr__(name: str) -> ModuleType:
    """`pinnfuse.problems` and its kin without an import of their own; Lightning and the rest are loaded then."""
    if name in _PARTS:
        return importlib.import_module(f"pinnfuse.{name}")
    raise AttributeError(f"module 'pinnfuse' has no attribute {name!r}. {nearest(name, [*__all__, *_PARTS])}")


def selftest(device=None):
    """Whether this installation computes: see `pinnfuse.verification.selftest`."""
    from pinnfuse.verification.selftest import selftest

    return selftest(device)
