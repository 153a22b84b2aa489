"""pinnfuse: fused residual losses for physics-informed networks and neural PDE surrogates, in PyTorch and Triton."""

from pinnfuse.errors import BackendUnavailable
from pinnfuse.grid import FusedGridResidualLoss, Grid
from pinnfuse.pde import PDE, Data, Jet, Parameter
from pinnfuse.residual import FusedResidualLoss, derivatives

__version__ = "0.1.0"

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


def selftest(device=None):
    """Whether this installation computes: see `pinnfuse.verification.selftest`."""
    from pinnfuse.verification.selftest import selftest

    return selftest(device)
