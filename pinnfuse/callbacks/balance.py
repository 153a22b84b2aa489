"""Weights of loss terms during a fit, for any module that can say what its terms do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from pinnfuse import parallel
from pinnfuse.balancing import NTK, GradientNorm, ReLoBRaLo
from pinnfuse.callbacks.asks import require
from pinnfuse.errors import nearest

SCHEMES: dict[str, type] = {"gradient_norm": GradientNorm, "ntk": NTK, "relobralo": ReLoBRaLo}


class Balanced(Protocol):
    """What `LossBalancing` asks of a LightningModule; `PINN` has it."""

    def loss_terms(self, batch: Any) -> dict[str, Tensor]:
        """{name: the term without its weight}, differentiable."""

    def term_kernels(self, batch: Any) -> dict[str, Tensor]:
        """{name: mean over points of |d r / d parameters|^2}; needed for "ntk" only."""

    def set_term_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Use these weights from the next step on."""


class LossBalancing(Callback):
    """Every so many steps, measures the terms and gives the module new weights.

    The weights are in the module's state, the scheme's memory in the callback's, so a resumed run goes on alike. In a
    data-parallel run a term is the mean over all ranks, and so is its gradient before the norm is taken.

    Args:
        scheme: "gradient_norm", "ntk", "relobralo", or an object of `pinnfuse.balancing`.
        every: steps between two updates, >= 1.

    Example:
        >>> Trainer(callbacks=[LossBalancing("gradient_norm", every=100)]).fit(module, data)
    """

    def __init__(self, scheme: str | GradientNorm | NTK | ReLoBRaLo, every: int = 100):
        if isinstance(scheme, str):
            if scheme not in SCHEMES:
                raise ValueError(f"LossBalancing: unknown `scheme` {scheme!r}. {nearest(scheme, SCHEMES)}")
            scheme = SCHEMES[scheme]()
        if every < 1:
            raise ValueError(f"LossBalancing: `every` must be at least 1; got {every!r}.")
        self.scheme: Any = scheme
        self.every = every
        self._done = 0  # steps at the last update

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        asked = {"loss_terms": "loss_terms(batch): {name: term without its weight}"}
        if isinstance(self.scheme, NTK):
            asked = {"term_kernels": "term_kernels(batch): {name: mean over points of |d r / d parameters|^2}"}
        require(module, self, **asked, set_term_weights="set_term_weights(weights): use them from the next step on")

    def on_train_batch_end(
        self, trainer: Trainer, module: LightningModule, outputs: Any, batch: Any, *unused: Any
    ) -> None:
        step = trainer.global_step
        if step // self.every == self._done // self.every:
            return
        self._done = step
        points = getattr(module, "last_batch", None) or batch  # a captured step may have drawn its own
        measure = self._measure(module, points)  # type: ignore[arg-type]  # a Balanced module
        values = torch.stack([v.detach() for v in measure.values()])
        weights = self.scheme.update(values)
        module.set_term_weights(dict(zip(measure, weights.unbind(0), strict=True)))  # type: ignore[operator]

    def _measure(self, module: Balanced, batch: Any) -> dict[str, Tensor]:
        if isinstance(self.scheme, NTK):
            return _averaged(module.term_kernels(batch))
        terms = module.loss_terms(batch)
        if isinstance(self.scheme, ReLoBRaLo):
            return _averaged(terms)
        params = [p for p in module.parameters() if p.requires_grad]  # type: ignore[attr-defined]
        gradients = _averaged({name: _gradient(term, params) for name, term in terms.items()})
        return {name: gradient.norm() for name, gradient in gradients.items()}

    def state_dict(self) -> dict[str, Any]:
        return {"scheme": self.scheme.state_dict(), "done": self._done}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.scheme.load_state_dict(state_dict["scheme"])
        self._done = state_dict["done"]


def _gradient(term: Tensor, params: list[Tensor]) -> Tensor:
    gradients = torch.autograd.grad(term, params, allow_unused=True)
    return torch.cat([g.reshape(-1) for g in gradients if g is not None])


def _averaged(measure: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The means over the ranks, by one all-reduce."""
    found = {name: value.detach().clone() for name, value in measure.items()}
    parallel.mean_(list(found.values()))
    return found
