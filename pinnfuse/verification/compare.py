"""One PDE and one network: everything a loss gives, by a backend and by float64 nested autograd, and how far apart.

Compared are the loss, the residuals, the gradients of the loss (one vector per layer, one number per parameter of the
PDE) and the gradients for a random upstream of the residuals. The bound in float32 is 3e-6 relative L2, or ten times
the error of float32 nested autograd where that is larger; in float64 it is the same times the ratio of the roundings,
and no less than 1e-13, since the reference rounds too.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from pinnfuse import PDE, FusedResidualLoss

Values = dict[str, Tensor]
_RATIO = torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps


def relative(found: Tensor, truth: Tensor, floor: float = 1e-300) -> float:
    """Relative L2 error; `floor` stands in for a smaller norm of the truth. NaN passes no comparison."""
    truth = truth.detach().double()
    return float((found.detach().double() - truth).norm() / truth.norm().clamp_min(floor))


def allowed(error_of_autograd: float, dtype: torch.dtype) -> float:
    """The bound for a quantity that float32 nested autograd gives with this error."""
    bound = max(3e-6, 10 * error_of_autograd)
    return bound if dtype == torch.float32 else max(1e-13, bound * _RATIO)


@dataclass
class Comparison:
    """The two runs of nested autograd that every backend is measured by; `net` and `points` are float64."""

    pde: PDE
    net: nn.Module
    points: Tensor
    seed: int = 0
    truth: Values = field(init=False)
    rounding: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        self.truth = self._values("autograd", torch.float64)
        self.rounding = self._errors(self._values("autograd", torch.float32))

    def worst(self, backend: str, dtype: torch.dtype, net: nn.Module | None = None) -> tuple[str, float, float]:
        """The quantity that comes closest to its bound or exceeds it most: name, error, bound.

        `net` may be another form of the same network, with parameters in the same order.

        Raises:
            BackendUnavailable: the backend cannot run this.
        """
        errors = self._errors(self._values(backend, dtype, net))
        bounds = {name: allowed(error, dtype) for name, error in self.rounding.items()}
        name = max(errors, key=lambda n: errors[n] / bounds[n] if errors[n] == errors[n] else float("inf"))
        return name, errors[name], bounds[name]

    def _errors(self, found: Values) -> dict[str, float]:
        largest = max(float(t.norm()) for name, t in self.truth.items() if name.startswith(("grad", "vjp")))
        return {
            name: relative(found[name], truth, 1e-6 * largest if name.startswith(("grad", "vjp")) else 1e-300)
            for name, truth in self.truth.items()
        }

    def _values(self, backend: str, dtype: torch.dtype, net: nn.Module | None = None) -> Values:
        generator = torch.Generator().manual_seed(self.seed)
        n, equations = self.points.shape[0], len(self.pde.equations)

        def draw(*shape: int) -> Tensor:
            return torch.rand(shape, generator=generator, dtype=torch.float64).to(self.points).to(dtype)

        weights, data = draw(n, equations), {name: draw(n) for name in self.pde.data}
        upstream = draw(n, equations) - 0.5
        model = copy.deepcopy(net or self.net).to(dtype)
        names = [name for name, _ in self.net.named_parameters()]
        loss_fn = FusedResidualLoss(
            self.pde,
            backend=backend,
            precision="float32" if dtype == torch.float32 else None,
            equation_weights=list(range(1, equations + 1)),
        ).to(self.points.device, dtype)
        x = self.points.to(dtype)
        evaluation = loss_fn.evaluate(model, x, weights, data)
        found = {"loss": evaluation.loss.detach(), "residuals": evaluation.residuals}
        parameters = dict(zip(names, model.parameters(), strict=True))
        parameters |= {f"parameter {name}": p for name, p in loss_fn.trained.items()}
        evaluation.loss.backward()
        found |= _gradients("grad", parameters)
        (loss_fn.residuals(model, x, data) * upstream).sum().backward()
        return found | _gradients("vjp", parameters)


def _gradients(kind: str, parameters: dict[str, nn.Parameter]) -> Values:
    """A layer as one vector: the gradient of one bias may be a sum that cancels to any degree. Clears `.grad`."""
    layers: dict[str, list[Tensor]] = {}
    for name, p in parameters.items():
        gradient = torch.zeros_like(p) if p.grad is None else p.grad.detach().clone()
        layers.setdefault(name.rpartition(".")[0] or name, []).append(gradient.reshape(-1))
        p.grad = None
    return {f"{kind} {layer}": torch.cat(parts) for layer, parts in layers.items()}
