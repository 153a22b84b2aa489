"""Backwards that have no derivative of their own say so, instead of dropping second derivatives without a word."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


def first_order_only(name: str, remedy: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates the `backward` of an autograd function so that `create_graph=True` raises RuntimeError.

    PyTorch's `once_differentiable` acts only where the incoming gradient requires one itself; in nested derivatives
    that one is a constant, and the term would vanish.

    Args:
        name: of the public function, for the message.
        remedy: a sentence: what to use for second derivatives.
    """

    def decorate(backward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backward)
        def wrapper(ctx: Any, *gradients: Any) -> Any:
            if torch.is_grad_enabled():
                raise RuntimeError(
                    f"{name}: this backward has no derivative of its own (create_graph=True was asked for). {remedy}"
                )
            return backward(ctx, *gradients)

        return wrapper

    return decorate


USE_TORCH = "Use backend='torch', which can be differentiated any number of times."
"""The remedy where plain torch computes the same."""
