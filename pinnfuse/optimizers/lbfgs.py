r"""L-BFGS: the same steps as the dense methods, with H held as the last m pairs (s, y).

With the pairs as rows of S and Y [m, n], gamma = y.s / y.y of the newest pair, R the upper triangle of S Y^T and D its
diagonal, H = gamma I changed by the pairs one after the other is

    H g = gamma g + S^T b - gamma Y^T a,      R a = S g,      R^T b = D a + gamma (Y Y^T a - Y g).

The two triangular systems are the two loops of the usual recursion; as matrices they are a dozen kernels instead of
8 m, which is what a small network on a GPU spends its time on.

Source: Byrd, Nocedal and Schnabel, Representations of quasi-Newton matrices and their use in limited memory methods,
Math. Program. 63 (1994), section 3.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.linalg import solve_triangular

from pinnfuse.optimizers.quasi_newton import QuasiNewton


class LBFGS(QuasiNewton):
    """Limited-memory BFGS with a strong Wolfe line search, 16 n `history_size` bytes.

    Args:
        history_size: pairs kept, >= 1.
        others: see `QuasiNewton`.
    """

    def __init__(self, params: Iterable[Any], lr: float = 1.0, *, history_size: int = 50, **options: Any):
        super().__init__(params, lr, **options)
        self._require(history_size >= 1, "history_size", ">= 1", history_size)
        self.defaults["history_size"] = self.param_groups[0]["history_size"] = history_size

    def _direction(self, gradient: Tensor) -> Tensor:
        memory, scale = self._memory, self._memory["scale"]
        if memory.get("S") is None:
            return gradient * -scale
        S, Y, R, YY = memory["S"], memory["Y"], memory["R"], memory["YY"]
        a = solve_triangular(R, (S @ gradient)[:, None], upper=True)[:, 0]
        right = R.diagonal() * a + scale * (YY @ a - Y @ gradient)
        b = solve_triangular(R.T, right[:, None], upper=False)[:, 0]
        return scale * (a @ Y - gradient) - b @ S

    def _update(self, s: Tensor, y: Tensor, ys: float, ss: float, sBs: float) -> None:
        memory = self._memory
        if memory.get("S") is None:
            empty = s.new_empty(0, 0)
            memory.update(S=s.new_empty(0, len(s)), Y=s.new_empty(0, len(s)), R=empty, YY=empty)
        kept = slice(max(0, len(memory["S"]) + 1 - self.param_groups[0]["history_size"]), None)
        S, Y = (torch.cat([memory[k][kept], v[None]]) for k, v in (("S", s), ("Y", y)))
        R, YY = (torch.nn.functional.pad(memory[k][kept, kept], (0, 1, 0, 1)) for k in ("R", "YY"))
        R[:, -1] = S @ y
        YY[:, -1] = YY[-1] = Y @ y
        memory.update(S=S, Y=Y, R=R, YY=YY)

    def _forget(self) -> None:
        self._memory.update(S=None, Y=None, R=None, YY=None)
