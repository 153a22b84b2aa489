"""Physics-informed initialisation: the output layer that fits equations and conditions best; the rest as drawn."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from pinnfuse.models.problem_loss import Points, ProblemLoss
from pinnfuse.optimizers import GaussNewton


def output_parameters(net: nn.Module) -> list[Tensor]:
    """Those of the last layer with weights, inside an output transform or not."""
    layers = [m for m in net.modules() if any(True for _ in m.parameters(recurse=False))]
    if not layers:
        raise ValueError("output_parameters: the network has no parameters.")
    return list(layers[-1].parameters(recurse=False))


def fit_output_layer(net: nn.Module, loss: ProblemLoss, batch: Mapping[str, Points], steps: int = 10) -> float:
    """Minimise the loss over the output layer alone by Gauss-Newton steps; returns the loss before the last of them.

    The network is linear in that layer, so for a linear PDE the first step is the least-squares solution. Source: Wang,
    Li, Chen and Perdikaris, PirateNets, arXiv:2402.00326, section 4, who fit data; here the residuals are fitted.

    Raises:
        BackendUnavailable: the network has no closed form.
    """
    params = output_parameters(net)
    optimizer = GaussNewton(params, damping=1e-10)

    @torch.no_grad()
    def closure() -> Tensor:
        return loss(net, batch)[0]

    value = float("nan")
    for _ in range(steps):
        value = optimizer.step(closure, lambda: loss.linearise(net, batch, params)).item()
        if optimizer.stalled:
            break
    return value
