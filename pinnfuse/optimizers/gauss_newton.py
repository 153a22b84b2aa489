r"""Gauss-Newton with Levenberg-Marquardt damping, for losses that are sums of squared residuals.

With residuals r(x) in R^M, Jacobian J and loss |r|^2, a step solves

    (J^T J + mu I) d = -J^T r        or, with fewer residuals than parameters,      d = -J^T (J J^T + mu I)^-1 r

by Cholesky in float64. The loss at x + d over the decrease that the linear model predicts, mu |d|^2 - d.J^T r, decides:
a good step is kept and lowers mu, a bad one raises it and is tried again. For a PINN this is the natural gradient of
the energy (ENGD), damped.

Where residuals can be had without their Jacobian, a step follows the curvature of the model (geodesic acceleration):
with r_vv the second derivative of r along d, by a difference over 0.1 d,

    x + d + a,      a = -(J^T J + mu I)^-1 J^T r_vv / 2,      if 2 |a| <= 0.75 |d|

which lets mu fall by orders of magnitude (`benchmarks/gauss_newton_steps.py`: allen_cahn to 2e-3 instead of 5e-2 in 40
steps, by half as many solves).

Sources: Nielsen, Damping parameter in Marquardt's method, IMM-REP-1999-05 (1999); Mueller and Zeinhofer, Achieving high
accuracy with PINNs via energy natural gradient descent, ICML (2023); Transtrum and Sethna, Improvements to the
Levenberg-Marquardt algorithm for nonlinear least-squares minimization, arXiv:1201.5885 (2012).
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from pinnfuse import parallel
from pinnfuse.optimizers.flat import read_parameters, write_parameters

Linearise = Callable[[], Iterable[tuple[Tensor, Tensor]]]
"""() -> chunks (r [m], J [m, n]) whose squares add up to the closure's loss; columns in the order of the parameters."""


_AHEAD = 0.1
"""Part of a step over which the second derivative is a difference."""
_LARGEST = 0.75
"""Of 2 |a| / |d|."""


class GaussNewton(Optimizer):
    """Levenberg-Marquardt. `step(closure, linearise)`; only while a step is solved it holds 8 n^2 bytes (and J, where
    steps follow the curvature).

    Args:
        params: parameters on one device; float64 unless a loss of about 1e-10 is enough.
        lr: factor of the step, 1 for the method itself.
        damping: first mu, as a fraction of the largest diagonal entry of J^T J.
        min_damping: mu is never smaller than this fraction.
        lower: factor of mu after a good step, in (0, 1). On burgers, following the curvature, 0.6, 0.4 and 0.2 needed
            1.4, 1.7 and 2.2 trials a step and came to losses of 3.6e-8, 5.9e-8 and 1.6e-7 in 60 steps. Without the
            curvature 0.2 is better.
        max_trials: solves with growing mu in one step, >= 1.
        tolerance_change: a step whose relative decrease of the loss is smaller counts as without progress.
        patience: successive steps without progress that mean stagnation.
        max_parameters: refuse more, before the memory runs out.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        *,
        damping: float = 1e-3,
        min_damping: float = 1e-18,
        lower: float = 0.6,
        max_trials: int = 8,
        tolerance_change: float = 1e-9,
        patience: int = 20,
        max_parameters: int = 30_000,
    ):
        for name, value in (("lr", lr), ("damping", damping), ("min_damping", min_damping), ("lower", lower)):
            if not 0 < value < math.inf:
                raise ValueError(f"GaussNewton: `{name}` must be positive and finite; got {value!r}.")
        if not lower < 1:
            raise ValueError(f"GaussNewton: `lower` must lie between 0 and 1; got {lower!r}.")
        if max_trials < 1 or patience < 1:
            raise ValueError(f"GaussNewton: `max_trials`, `patience` must be >= 1; got {max_trials}, {patience}.")
        options = locals()
        names = ("lr", "damping", "min_damping", "lower", "max_trials", "tolerance_change", "patience")
        super().__init__(params, {name: options[name] for name in names})
        n = sum(p.numel() for group in self.param_groups for p in group["params"])
        if n > max_parameters:
            raise ValueError(
                f"GaussNewton: {n} parameters need matrices of {8e-9 * n * n:.1f} GB, more than `max_parameters` = "
                f"{max_parameters} allows. Raise it, use a smaller network, or use 'lbfgs'."
            )

    @property
    def stalled(self) -> bool:
        """`patience` steps brought nothing."""
        return self._memory["known"] and self._memory["idle"] >= self.param_groups[0]["patience"]

    @property
    def converged(self) -> bool:
        """Never said: a vanishing step shows as stagnation."""
        return False

    def new_objective(self) -> None:
        """Say that points or weights may have changed; if so, progress is counted anew."""
        self._memory["known"] = False

    @torch.no_grad()
    def step(  # type: ignore[override]
        self,
        closure: Callable[[], Any] | None,
        linearise: Linearise | None = None,
        residuals: Callable[[], Tensor] | None = None,
    ) -> Tensor:
        """One step. Returns the loss before it; the parameters it leaves never have a larger one, nor NaN.

        Args:
            closure: () -> loss, for trials; not called where `residuals` are given, and may be None there.
            linearise: see `Linearise`.
            residuals: () -> the residuals of `linearise`, in one vector, at the present parameters. With them, steps
                follow the curvature.
        """
        if linearise is None:
            raise ValueError(
                "GaussNewton.step: `linearise` must be given, a function that yields residuals and their Jacobian. "
                "PINN passes it; in your own loop use FusedResidualLoss.linearise."
            )
        if residuals is not None:
            value = _sum_of_squares(residuals)
        elif closure is not None:
            value = torch.enable_grad()(closure)
        else:
            raise ValueError("GaussNewton.step: `closure` or `residuals` must be given, for trials; got neither.")
        memory, group = self._memory, self.param_groups[0]
        params = [p for g in self.param_groups for p in g["params"]]
        x = read_parameters(params)
        system = _System(linearise(), len(x), keep=residuals is not None)
        loss, largest = parallel.agreed(system.loss, system.largest)
        if not math.isfinite(loss):
            return system.loss
        if not abs(loss - memory["loss"]) <= 1e-12 * loss:
            memory["idle"] = 0
        memory["known"] = True
        if memory["mu"] is None:
            memory["mu"] = group["damping"] * largest
        floor = group["min_damping"] * largest
        gained = 0.0
        for _ in range(group["max_trials"]):
            memory["mu"] = max(memory["mu"], floor)
            step, promise = system.solve(memory["mu"])
            if residuals is not None:
                write_parameters(params, x.add(step, alpha=_AHEAD))
                step = step + system.correction(step, residuals().double())
            write_parameters(params, x.add(step, alpha=group["lr"]))
            predicted, trial = parallel.agreed(promise, torch.as_tensor(value()).to(x.device))
            ratio = (loss - trial) / predicted if predicted > 0 else -1.0
            if math.isfinite(trial) and trial < loss and ratio > 1e-4:
                gained = loss - trial
                memory.update(mu=memory["mu"] * (group["lower"] if ratio > 0.25 else 1.0), growth=2.0)
                break
            memory.update(mu=memory["mu"] * memory["growth"], growth=2 * memory["growth"])
        else:
            write_parameters(params, x)
            memory["growth"] = 2.0
        memory["idle"] = 0 if gained > group["tolerance_change"] * loss else memory["idle"] + 1
        memory["loss"] = loss - gained
        return system.loss

    @property
    def _memory(self) -> dict[str, Any]:
        memory = self.state[self.param_groups[0]["params"][0]]
        if not memory:
            memory.update(mu=None, growth=2.0, idle=0, loss=math.nan, known=False)
        return memory


def _sum_of_squares(residuals: Callable[[], Tensor]) -> Callable[[], Any]:
    return lambda: residuals().double().square().sum()


class _System:
    """J^T J, J^T r and the loss, or J itself where it has fewer rows than columns.

    The loss is the mean over the ranks, so its rows are those of all ranks divided by the root of their number: the
    matrices of the ranks are averaged, or their rows collected where all of them are fewer than the columns.
    `keep` the rows for `correction`.
    """

    def __init__(self, chunks: Iterable[tuple[Tensor, Tensor]], parameters: int, keep: bool = False):
        self.chunks: list[tuple[Tensor, Tensor]] = []
        kept: list[tuple[Tensor, Tensor]] = []
        self.matrix: Tensor | None = None
        rows = 0
        for r, jacobian in chunks:
            r, jacobian = r.double(), jacobian.double()
            rows += len(r)
            if keep:
                self.chunks.append((r, jacobian))
            if self.matrix is None:
                kept.append((r, jacobian))
                if rows >= parameters:  # the smaller system is the one of the parameters
                    self.matrix = r.new_zeros(parameters, parameters)
                    self.gradient, self.loss = r.new_zeros(parameters), r.new_zeros(())
                    for part in kept:
                        self._add(*part)
                    kept = []
            else:
                self._add(r, jacobian)
        self.jacobian: Tensor | None = None
        if self.matrix is None:
            self.residuals, self.jacobian = torch.cat([r for r, _ in kept]), torch.cat([j for _, j in kept])
        if parallel.size() > 1:
            self._join(rows, parameters)
        if self.jacobian is not None:
            self.matrix = self.jacobian @ self.jacobian.T
            self.gradient, self.loss = self.residuals @ self.jacobian, self.residuals @ self.residuals
        assert self.matrix is not None
        self.largest = self.matrix.diagonal().max()

    def _join(self, rows: int, parameters: int) -> None:
        """Make it the system of all ranks."""
        own = self.gradient if self.matrix is not None else self.residuals
        counts = own.new_zeros(parallel.size())
        counts[parallel.rank()] = rows
        ends = parallel.total(counts).cumsum(0).long().tolist()
        if ends[-1] < parameters:
            assert self.jacobian is not None
            self.place, self.rows = slice(ends[parallel.rank()] - rows, ends[parallel.rank()]), ends[-1]
            self.jacobian, self.residuals = self._collected(self.jacobian), self._collected(self.residuals)
            return
        if self.matrix is None:
            assert self.jacobian is not None
            self.matrix = self.jacobian.T @ self.jacobian
            self.gradient, self.loss = self.residuals @ self.jacobian, self.residuals @ self.residuals
            self.jacobian = None
        parallel.mean_([self.matrix, self.gradient, self.loss])

    def _collected(self, own: Tensor) -> Tensor:
        """The rows of all ranks, over the root of their number."""
        if parallel.size() == 1:
            return own
        everything = own.new_zeros(self.rows, *own.shape[1:])
        everything[self.place] = own
        return parallel.total(everything) / math.sqrt(parallel.size())

    def _add(self, r: Tensor, jacobian: Tensor) -> None:
        """Of the matrix only the lower blocks, 5/8 of the work: Cholesky reads no others."""
        assert self.matrix is not None
        width = -(-len(self.matrix) // 4)
        for start in range(0, len(self.matrix), width):
            panel = slice(start, start + width)
            self.matrix[start:, panel].addmm_(jacobian[:, start:].T, jacobian[:, panel])
        self.gradient += r @ jacobian
        self.loss += r @ r

    def solve(self, mu: float) -> tuple[Tensor, Tensor]:
        """The step [n], and the decrease of the loss that the linear model predicts (NaN where it cannot be solved)."""
        assert self.matrix is not None
        damped = self.matrix.clone()
        damped.diagonal().add_(mu)
        self.factor, info = torch.linalg.cholesky_ex(damped)
        step = -self._inverse(self.gradient if self.jacobian is None else self.residuals)
        predicted = mu * (step @ step) - step @ self.gradient
        return step, torch.where(info == 0, predicted, math.nan)

    def correction(self, step: Tensor, ahead: Tensor) -> Tensor:
        """The a of the last `solve`'s step from the residuals at x + _AHEAD step; zero where it cannot be trusted."""
        parts = zip(self.chunks, ahead.split([len(r) for r, _ in self.chunks]), strict=True)
        second = [(2 / _AHEAD) * ((there - r) / _AHEAD - jacobian @ step) for (r, jacobian), there in parts]
        if self.jacobian is None:
            right = torch.stack([s @ jacobian for s, (_, jacobian) in zip(second, self.chunks, strict=True)]).sum(0)
            parallel.mean_([right])
        else:
            right = self._collected(torch.cat(second))
        a = -0.5 * self._inverse(right)
        return torch.where(2 * a.norm() <= _LARGEST * step.norm(), a, torch.zeros_like(a))

    def _inverse(self, right: Tensor) -> Tensor:
        """(J^T J + mu)^-1 right, or J^T (J J^T + mu)^-1 right, by the last factor."""
        z = torch.cholesky_solve(right[:, None], self.factor)[:, 0]
        return z if self.jacobian is None else z @ self.jacobian
