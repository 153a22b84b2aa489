"""Which backend a grid residual takes, and why: the rules of `pinnfuse.grid.dispatch`, and what the equations allow."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from torch import Tensor

from pinnfuse.errors import BackendUnavailable
from pinnfuse.grid import crossover, dispatch
from pinnfuse.grid.dispatch import Choice
from pinnfuse.grid.reference import Scheme

NAME = "FusedGridResidualLoss"
log = logging.getLogger("pinnfuse")
_announced: set[str] = set()


def choose(backend: str, scheme: Scheme, fields: Tensor, others: Iterable[Tensor] = ()) -> tuple[Choice, str]:
    """The backend and the reason; `fields` [B, T, C, *space], `others` what else may be differentiated.

    Raises:
        BackendUnavailable: an explicit "triton" that cannot run, with the reason.
    """
    tensors = (fields, *(t.to(fields) for t in others)) if dispatch.transforming() else (fields,)
    choice = dispatch.choose(backend, NAME, *tensors)
    if choice.backend == "torch":
        return choice, "asked for" if choice.explicit else dispatch.obstacle(*tensors) or "asked for"
    from pinnfuse.grid import fused  # the only place that may import triton

    reason = fused.obstacle(scheme, fields)
    if not reason:
        if choice.measured:
            open_, kernels, plain = _choices(choice, scheme)
            known = crossover.known(open_.measured, [fields])
            if known == "torch":
                return plain, "measured faster than the kernels at this size"
            choice = open_ if known is None else kernels
        return choice, "Triton runs here"
    if choice.explicit:
        raise BackendUnavailable(
            f"{NAME}: backend 'triton' was asked for but cannot run: {reason}. Available here: 'torch', or 'auto'."
        )
    if reason not in _announced:
        _announced.add(reason)
        log.info("backend 'auto' picked 'torch' for a grid residual: %s", reason)
    return Choice("torch", False, NAME), reason


@lru_cache(maxsize=1024)
def _choices(choice: Choice, scheme: Scheme) -> tuple[Choice, Choice, Choice]:
    """What is measured at its first call, kernels, plain torch."""
    measured = f"{choice.measured}, {_equations(scheme)}"
    return replace(choice, measured=measured), replace(choice, measured=""), replace(choice, backend="torch")


@lru_cache(maxsize=256)
def _equations(scheme: Scheme) -> str:
    """A digest of what is computed."""
    text = f"{scheme.form.residuals} {scheme.describe()}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]
