"""Data-parallel training of modules that average loss and gradients themselves."""

from __future__ import annotations

from typing import Any

from lightning.pytorch.strategies import DDPStrategy

from pinnfuse import parallel


class DataParallel(DDPStrategy):
    """`DDPStrategy` without the `DistributedDataParallel` wrapper, for `PINN` and its kin.

    Processes, devices, nodes and checkpoints are as under "ddp". What is missing are DDP's hooks, which reduce
    gradients bucket by bucket while the backward pass goes on: a fused loss has all its gradients at once, a
    quasi-Newton method needs the averaged loss beside them, and a CUDA graph holds one plain all-reduce more simply.
    The module calls `pinnfuse.parallel.mean_` once a step in their place. Buffers are not made equal: some belong to
    the points of a rank.
    """

    def configure_ddp(self) -> None:
        """Every rank starts from the parameters of rank 0."""
        assert self.model is not None
        parallel.same_(list(self.model.parameters()))

    def _setup_model(self, model: Any) -> Any:
        return model
