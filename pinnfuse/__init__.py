"""pinnfuse: fused residual losses for physics-informed networks and neural PDE surrogates, in PyTorch and Triton."""

from pinnfuse.errors import BackendUnavailable

__version__ = "0.1.0"

__all__ = ["BackendUnavailable", "__version__"]
