"""What every residual loss keeps of its PDE: constants, trained parameters, weights of the equations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from pinnfuse.errors import nearest
from pinnfuse.pde import PDE

Weights = Mapping[str, float] | Sequence[float] | Tensor | None


class ResidualModule(nn.Module):
    """A module with the parameters of a PDE.

    Attributes:
        pde: the equations.
        constants: values of the parameters that are not trained; in the checkpoint.
        trained: `nn.Parameter`s of the others; a positive one is stored as its logarithm.
        equation_weights: `[equations]`, a buffer that may be changed in place.
    """

    equation_weights: Tensor

    def __init__(self, pde: PDE, equation_weights: Weights = None):
        super().__init__()
        caller = type(self).__name__
        if not isinstance(pde, PDE):
            raise ValueError(f"{caller}: `pde` must be a pinnfuse.PDE; got {type(pde).__name__}.")
        self.pde = pde
        self.constants = {name: float(p.value) for name, p in pde.parameters.items() if not p.trainable}
        self.trained = nn.ParameterDict(
            {
                name: nn.Parameter(torch.tensor(math.log(p.value) if p.positive else float(p.value)))
                for name, p in pde.parameters.items()
                if p.trainable
            }
        )
        self.register_buffer("equation_weights", _weights(equation_weights, list(pde.equations), caller))

    def parameter_values(self) -> dict[str, Tensor]:
        """Current values of the trained parameters, differentiable."""
        return {name: raw.exp() if self.pde.parameters[name].positive else raw for name, raw in self.trained.items()}

    def set_parameter(self, name: str, value: float) -> None:
        """Change a constant parameter (a Reynolds number in a curriculum); nothing is recompiled."""
        if name not in self.constants:
            raise ValueError(
                f"set_parameter: `name` must be a constant parameter, one of {list(self.constants)}; got {name!r}. "
                f"{nearest(str(name), list(self.constants))}"
            )
        self.constants[name] = number(value, f"set_parameter: `value` for {name!r}")

    def get_extra_state(self) -> dict[str, float]:
        return dict(self.constants)

    def set_extra_state(self, state: dict[str, float]) -> None:
        self.constants.update({name: value for name, value in state.items() if name in self.constants})


def number(value: object, what: str) -> float:
    """A finite float, or an error that says what it was for."""
    if isinstance(value, Tensor) and value.requires_grad:
        raise ValueError(f"{what} must be a number without gradient; got a tensor that requires one. Use .item().")
    try:
        found = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise ValueError(f"{what} must be a finite number; got {value!r}. Pass a number.")
    return found


def _weights(given: Weights, names: list[str], caller: str) -> Tensor:
    if isinstance(given, Mapping):
        unknown = [name for name in given if name not in names]
        if unknown:
            raise ValueError(f"{caller}: `equation_weights` names {unknown}, but the equations are {names}.")
        given = [given.get(name, 1.0) for name in names]
    if isinstance(given, Tensor) and given.requires_grad:
        raise ValueError(
            f"{caller}: `equation_weights` must be numbers without gradient, since a copy is kept; got a tensor that "
            "requires one. Use .detach(), or assign trained weights afterwards: loss_fn.equation_weights = weights."
        )
    dtype = given.dtype if isinstance(given, Tensor) and given.is_floating_point() else torch.get_default_dtype()
    try:
        weights = torch.ones(len(names)) if given is None else torch.as_tensor(given, dtype=dtype)
    except (TypeError, ValueError, RuntimeError):
        weights = torch.empty(0)  # refused below
    if tuple(weights.shape) != (len(names),) or bool((weights < 0).any()) or not bool(torch.isfinite(weights).all()):
        raise ValueError(
            f"{caller}: `equation_weights` must be {len(names)} finite numbers >= 0, for {names}; got {given!r}."
        )
    return weights.clone()
