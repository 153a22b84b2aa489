"""Optimisers by name, with checked options."""

import importlib
import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.optim import Optimizer

from pinnfuse.errors import nearest
from pinnfuse.optimizers.quasi_newton import QuasiNewton
from pinnfuse.optimizers.schedule import Phase


@dataclass(frozen=True)
class _Entry:
    """One optimiser: where its class is (imported on use), what it is, and our defaults."""

    module: str
    class_name: str
    description: str
    lr: float
    options: Mapping[str, Any] = field(default_factory=dict)

    def load(self) -> Any:
        try:
            return getattr(importlib.import_module(self.module), self.class_name)
        except ImportError as error:
            package = self.module.partition(".")[0]
            raise ImportError(f"optimiser {self.class_name} needs {package}: pip install {package}") from error


_DENSE = "pinnfuse.optimizers.self_scaled"
_ENTRIES = {
    "adam": _Entry("torch.optim", "Adam", "Adam; the robust first phase", 1e-3, {"fused": True}),
    "adamw": _Entry("torch.optim", "AdamW", "Adam with decoupled weight decay", 1e-3, {"fused": True}),
    # no decay: a PINN has no overfitting to damp, and decay bounds the accuracy
    "soap": _Entry(
        "pytorch_optimizer",
        "SOAP",
        "Adam in the eigenbasis of Shampoo's preconditioner; the strongest first phase",
        3e-3,
        {"weight_decay": 0.0},
    ),
    "lbfgs": _Entry(
        "pinnfuse.optimizers.lbfgs", "LBFGS", "L-BFGS, strong Wolfe line search; any number of parameters", 1.0
    ),
    "bfgs": _Entry(_DENSE, "BFGS", "BFGS, dense inverse Hessian in float64; up to about 10,000 parameters", 1.0),
    "ssbfgs": _Entry(_DENSE, "SSBFGS", "self-scaled BFGS, dense; up to about 10,000 parameters", 1.0),
    "ssbroyden": _Entry(
        _DENSE, "SSBroyden", "self-scaled Broyden, dense: the most accurate last phase, best in float64", 1.0
    ),
    "gauss_newton": _Entry(
        "pinnfuse.optimizers.gauss_newton",
        "GaussNewton",
        "Levenberg-Marquardt on the residuals: fewest steps; float64, up to about 10,000 parameters",
        1.0,
    ),
}


def available() -> dict[str, str]:
    """Name of each optimiser -> one line that describes it."""
    return {name: entry.description for name, entry in _ENTRIES.items()}


def build(name: str, params: Iterable[Any], lr: float | None = None, **options: Any) -> Optimizer:
    """The optimiser `name` over `params`.

    Args:
        name: one of `available()`.
        params: parameters or parameter groups. Quasi-Newton methods join the groups: they couple all parameters.
        lr: learning rate, > 0; None takes the default of the optimiser (`default_lr`).
        options: keyword arguments of the optimiser's class (`known_options`).

    Raises:
        ValueError: unknown name or option (with the nearest known one), or one out of range or of a wrong type.
    """
    check(name, lr, options)
    entry = _entry(name)
    params = list(params)
    if issubclass(entry.load(), QuasiNewton) and params and isinstance(params[0], dict):
        params = [p for group in params for p in group["params"]]
    keywords = {**entry.options, **options}
    if options.get("foreach") or options.get("differentiable"):
        keywords.pop("fused", None)  # our default, which these exclude
    try:
        return entry.load()(params, lr=entry.lr if lr is None else lr, **keywords)
    except TypeError as error:  # a text for a number, say
        raise ValueError(f"build: an option of {name!r} has a wrong type, {options!r}: {error}.") from error


def check(name: str, lr: float | None, options: Mapping[str, Any]) -> None:
    """Raise the ValueError that `build` would raise for a wrong name, learning rate or option name."""
    if lr is not None and not (0 < lr < math.inf):
        raise ValueError(f"build: `lr` of {name!r} must be positive and finite; got {lr!r}.")
    known = known_options(name)
    for option in options:
        if option not in known:
            raise ValueError(f"build: optimiser {name!r} has no option {option!r}. {nearest(option, known)}")


def default_lr(name: str) -> float:
    """Learning rate that `build` takes when none is given."""
    return _entry(name).lr


def known_options(name: str) -> list[str]:
    """Names of the options that `build(name, ...)` accepts."""
    names: set[str] = set()
    for cls in _entry(name).load().__mro__:
        arguments = inspect.signature(cls.__init__).parameters.values()
        names |= {a.name for a in arguments if a.kind in (a.POSITIONAL_OR_KEYWORD, a.KEYWORD_ONLY)}
        if not issubclass(cls, QuasiNewton) or cls is QuasiNewton:  # ours pass **options on to the base
            break
    return sorted(names - {"self", "params", "lr"})


def most_parameters(name: str) -> float:
    """How many parameters `build(name, ...)` takes before the matrices of a dense method need too much memory."""
    limit = inspect.signature(_entry(name).load().__init__).parameters.get("max_parameters")
    return math.inf if limit is None else limit.default


def for_size(phases: Sequence[Phase], parameters: int) -> list[Phase]:
    """The phases for a network of so many parameters: L-BFGS in place of dense methods that do not take as many."""

    def takes(phase: Phase) -> bool:
        return parameters <= phase.options.get("max_parameters", most_parameters(phase.optimizer))

    return [phase if takes(phase) else Phase("lbfgs", phase.steps) for phase in phases]


def _entry(name: str) -> _Entry:
    if name not in _ENTRIES:
        raise ValueError(f"build: unknown optimiser {name!r}. {nearest(str(name), _ENTRIES)}")
    return _ENTRIES[name]
