"""L-BFGS: the same steps as the dense methods, with H held as the last pairs (s, y)."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from pinnfuse.optimizers.quasi_newton import QuasiNewton


class LBFGS(QuasiNewton):
    """Limited-memory BFGS with a strong Wolfe line search, 16 n `history_size` bytes.

    -H g by the two-loop recursion, with H0 = (y.s / y.y) I of the newest pair. No synchronisation inside the loops.

    Args:
        history_size: pairs kept, >= 1.
        others: see `QuasiNewton`.

    Source: Nocedal and Wright, Numerical Optimization (2nd ed., 2006), algorithm 7.4.
    """

    def __init__(self, params: Iterable[Any], lr: float = 1.0, *, history_size: int = 50, **options: Any):
        super().__init__(params, lr, **options)
        self._require(history_size >= 1, "history_size", ">= 1", history_size)
        self.defaults["history_size"] = self.param_groups[0]["history_size"] = history_size

    def _direction(self, gradient: Tensor) -> Tensor:
        pairs = self._memory.get("pairs", [])
        direction, factors = gradient.neg(), []
        for s, y, ys in reversed(pairs):
            factors.append((s @ direction) / ys)
            direction.sub_(y * factors[-1])
        direction.mul_(self._memory["scale"])
        for s, y, ys in pairs:
            direction.add_(s * (factors.pop() - (y @ direction) / ys))
        return direction

    def _update(self, s: Tensor, y: Tensor, ys: float, ss: float, sBs: float) -> None:
        pairs = self._memory.setdefault("pairs", [])
        pairs.append([s, y, ys])
        del pairs[: -self.param_groups[0]["history_size"]]

    def _forget(self) -> None:
        self._memory["pairs"] = []
