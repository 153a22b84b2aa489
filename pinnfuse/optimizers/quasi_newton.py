"""What every quasi-Newton optimiser here shares: evaluation, line search, stagnation, state.

One `step(closure)` is one outer iteration: a direction d = -H g, a strong Wolfe line search along it, an update of H
from s = x_new - x and y = g_new - g. Vectors are float64 whatever the dtype of the parameters.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from pinnfuse import parallel
from pinnfuse.optimizers.flat import read_gradients, read_parameters, write_parameters, zero_parts
from pinnfuse.optimizers.line_search import Trial, strong_wolfe

CURVATURE = 1e-10
"""An update needs y.s > CURVATURE |y| |s|: below it the curvature is rounding noise, and H would lose definiteness."""


class QuasiNewton(Optimizer):
    """Base of the quasi-Newton optimisers. A subclass says what H is: `_direction`, `_update`, `_forget`.

    The closure zeroes the gradients, computes the loss, calls `backward()` and returns the loss, as for
    `torch.optim.LBFGS`. It is called once per trial of the line search (a little more than once per step), and must
    give the same loss for the same parameters within one step. `step` returns the loss before the step; the parameters
    it leaves never have a larger one, and never a NaN or Inf. In a data-parallel run the closure leaves gradients that
    are averaged over the ranks; every number that decides is averaged here, so all ranks make the same line search.

    When a line search finds no decrease, or `patience` steps bring next to none, H is reset once to a scaled
    identity; when that does not help, `stalled` becomes true and `step` does nothing until the objective changes.

    Args:
        params: parameters, float32 or float64, on one device; one group. Those without gradient stay as they are.
        lr: first step tried along the quasi-Newton direction; 1 is right unless steps overshoot.
        check_objective: evaluate the closure at the start of every step, so that an objective that changed since the
            last step (points drawn anew, other weights) is noticed. False saves that evaluation, about half of all;
            then call `new_objective()` after every such change.
        tolerance_grad: `converged` when no entry of the gradient is larger.
        tolerance_change: a step whose relative decrease of the loss is smaller counts as without progress; never
            taken below the rounding of the loss.
        patience: number of successive steps without progress that means stagnation.
        max_evaluations: calls of the closure in one line search.
        c1, c2: constants of the Wolfe conditions, 0 < c1 < c2 < 1.

    Raises:
        ValueError: an argument is out of range, parameters are complex, integer or on several devices, several groups.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        *,
        check_objective: bool = True,
        tolerance_grad: float = 1e-15,
        tolerance_change: float = 1e-9,
        patience: int = 20,
        max_evaluations: int = 25,
        c1: float = 1e-4,
        c2: float = 0.9,
    ):
        self._require(lr > 0, "lr", "> 0", lr)
        self._require(tolerance_grad >= 0, "tolerance_grad", ">= 0", tolerance_grad)
        self._require(tolerance_change >= 0, "tolerance_change", ">= 0", tolerance_change)
        self._require(patience >= 1, "patience", ">= 1", patience)
        self._require(max_evaluations >= 1, "max_evaluations", ">= 1", max_evaluations)
        self._require(0 < c1 < c2 < 1, "c1, c2", "0 < c1 < c2 < 1", (c1, c2))
        options = locals()
        super().__init__(params, {k: v for k, v in options.items() if k not in ("self", "params", "__class__")})

    def _require(self, condition: bool, argument: str, expected: str, got: Any) -> None:
        if not condition:
            raise ValueError(f"{type(self).__name__}: `{argument}` must be {expected}; got {got!r}.")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self._require(not self.param_groups, "params", "one group (H couples all parameters)", "another group")
        super().add_param_group(param_group)
        params = self._params
        dtypes, devices = {p.dtype for p in params}, {p.device for p in params}
        self._require(dtypes <= {torch.float32, torch.float64}, "params", "float32 or float64", dtypes)
        self._require(len(devices) == 1, "params", "on one device", devices)

    # what a trainer reads

    @property
    def evaluations(self) -> int:
        """Calls of the closure so far."""
        return self._memory["evaluations"]

    @property
    def iterations(self) -> int:
        """Steps that moved the parameters."""
        return self._memory["iterations"]

    @property
    def loss(self) -> float:
        """Loss at the present parameters; NaN before the first step."""
        return self._memory["loss"]

    @property
    def converged(self) -> bool:
        """The gradient has vanished (`tolerance_grad`)."""
        return self._memory["known"] and self._memory["status"] == "converged"

    @property
    def stalled(self) -> bool:
        """No decrease can be found, even after H was reset: time to hand over to another phase."""
        return self._memory["known"] and self._memory["status"] == "stalled"

    def new_objective(self) -> None:
        """Say that the closure's objective may have changed (points, weights): the next step evaluates it anew.

        H is kept. Where the loss turns out to be the same, as after a resume, the trajectory is the same too.
        """
        self._memory["known"] = False

    # one step

    @torch.no_grad()
    def step(self, closure: Callable[[], Any]) -> Tensor:  # type: ignore[override]  # the closure is not optional here
        """One outer iteration. Returns the loss before it, as a scalar tensor.

        A NaN or Inf loss at the start is returned as it is and nothing moves.
        """
        self._require(callable(closure), "closure", "a callable returning the loss", closure)
        closure = torch.enable_grad()(closure)
        memory, params, group = self._memory, self._params, self.param_groups[0]
        x = read_parameters(params)
        if group["check_objective"] or not memory["known"] or not torch.equal(x, memory["x"]):
            self._evaluate_start(closure, x)
        loss = memory["loss"]
        if math.isfinite(loss) and memory["status"] == "running":
            accepted = self._search(closure, x)
            if accepted is None and memory["status"] == "running" and self._reset():
                self._evaluate_start(closure, x)  # had the objective changed, unannounced, the search would fail too
                accepted = self._search(closure, x) if math.isfinite(memory["loss"]) else None
            if accepted is None:
                write_parameters(params, x)
                if memory["status"] == "running":
                    memory["status"] = "stalled"
            else:
                self._move(x, accepted)
        return torch.tensor(loss, dtype=params[0].dtype, device=params[0].device)

    def _evaluate(self, closure: Callable[[], Any]) -> tuple[Tensor, Tensor]:
        """Loss (float64 scalar) and gradient [n] at the parameters as they are."""
        memory, params = self._memory, self._params
        loss = torch.as_tensor(closure(), device=params[0].device).detach()
        self._require(loss.numel() == 1, "closure", "returning a scalar loss", f"shape {tuple(loss.shape)}")
        memory["noise"] = torch.finfo(loss.dtype).eps
        memory["evaluations"] += 1
        memory["frozen"] = [p.grad is None for p in params]
        return loss.reshape(()).to(torch.float64), read_gradients(params)

    def _evaluate_start(self, closure: Callable[[], Any], x: Tensor) -> None:
        memory, before = self._memory, self._memory["loss"]
        write_parameters(self._params, x)
        loss, gradient = self._evaluate(closure)
        memory.update(x=x, loss=parallel.agreed(loss)[0], gradient=gradient)
        memory["known"] = math.isfinite(memory["loss"])
        # sums on a GPU may differ from call to call in the last digits: that is no new objective
        if not abs(memory["loss"] - before) <= 16 * memory["noise"] * abs(before):
            memory.update(status="running", gain=None, idle=0, reset_loss=math.inf)

    def _search(self, closure: Callable[[], Any], x: Tensor) -> Trial | None:
        """Line search along -H g from `x`; leaves the parameters at the accepted point."""
        memory, params, group = self._memory, self._params, self.param_groups[0]
        gradient = memory["gradient"]
        if memory["scale"] is None:
            memory["scale"] = self._first_scale()
        direction = self._direction(gradient)
        if any(memory["frozen"]):
            zero_parts(direction, params, memory["frozen"])
        slope, largest = parallel.agreed(gradient @ direction, gradient.abs().max())
        if largest <= group["tolerance_grad"]:
            memory["status"] = "converged"
            return None
        if not slope < 0:  # H lost definiteness, or holds a NaN
            return None

        tried = 0.0

        def evaluate(step: float) -> Trial:
            nonlocal tried
            tried = step
            write_parameters(params, x.add(direction, alpha=step))
            loss, gradient = self._evaluate(closure)
            value, slope = parallel.agreed(loss, gradient @ direction)
            return Trial(step, value, slope, gradient)

        # if this step gains as much as the last, a parabola has its minimum at 2 gain / |slope| (Nocedal and Wright,
        # 3.60): against always trying 1 first it saves 40 % of the evaluations of the self-scaled methods
        ratio = 1.0 if memory["gain"] is None else 2.02 * memory["gain"] / -slope
        accepted = strong_wolfe(
            evaluate,
            Trial(0.0, memory["loss"], slope, gradient),
            group["lr"] * min(1.0, max(0.01, ratio)),
            c1=group["c1"],
            c2=group["c2"],
            max_evaluations=group["max_evaluations"],
            noise=memory["noise"],
        )
        if accepted is not None and accepted.step != tried:
            write_parameters(params, x.add(direction, alpha=accepted.step))
        return accepted

    def _move(self, x: Tensor, accepted: Trial) -> None:
        """Learn from the accepted step, and notice stagnation."""
        memory, group = self._memory, self.param_groups[0]
        x_new = read_parameters(self._params)  # as rounded to the parameters' dtype
        s, y = x_new - x, accepted.gradient - memory["gradient"]
        ys, yy, ss, gs = parallel.agreed(y @ s, y @ y, s @ s, memory["gradient"] @ s)
        if ys > CURVATURE * math.sqrt(yy * ss):
            memory["scale"] = ys / yy
            self._update(s, y, ys, ss, -accepted.step * gs)
        threshold = max(group["tolerance_change"], memory["noise"]) * abs(memory["loss"])
        gain = memory["loss"] - accepted.loss
        memory.update(x=x_new, loss=accepted.loss, gradient=accepted.gradient, gain=gain)
        memory["iterations"] += 1
        memory["idle"] = memory["idle"] + 1 if gain <= threshold else 0
        if memory["idle"] >= group["patience"] and not self._reset():
            memory["status"] = "stalled"

    def _first_scale(self) -> float:
        """Length of the first step over |g|: a non-negative quadratic with its minimum at zero is solved by
        t = 2 f / |g|^2 along its steepest descent; at most a step of length 1."""
        loss, (norm,) = self._memory["loss"], parallel.agreed(self._memory["gradient"].norm())
        length = min(1.0, 2 * loss / norm) if loss > 0 and norm > 0 else 1.0
        return length / norm if norm > 0 else 1.0

    def _reset(self) -> bool:
        """Back to a scaled identity, unless that was done and the loss has not fallen by a percent since."""
        memory = self._memory
        if not memory["reset_loss"] - memory["loss"] > 1e-2 * abs(memory["loss"]):
            return False
        memory.update(reset_loss=memory["loss"], gain=None, idle=0)
        self._forget()
        return True

    # what H is

    def _direction(self, gradient: Tensor) -> Tensor:
        """-H g, a new tensor."""
        raise NotImplementedError

    def _update(self, s: Tensor, y: Tensor, ys: float, ss: float, sBs: float) -> None:
        """Take in one pair with ys = y.s > 0; sBs = s.B s with B = H^-1 before the update."""
        raise NotImplementedError

    def _forget(self) -> None:
        """Make H the identity times `_memory["scale"]`."""
        raise NotImplementedError

    # state: all of it lives in `self.state` under the first parameter, as in torch.optim.LBFGS

    @property
    def _params(self) -> list[Tensor]:
        return self.param_groups[0]["params"]

    @property
    def _memory(self) -> dict[str, Any]:
        memory = self.state[self._params[0]]
        if not memory:
            memory.update(iterations=0, evaluations=0, status="running", loss=math.nan, known=False)
            memory.update(scale=None, gain=None, idle=0, reset_loss=math.inf)
        return memory

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As `torch.optim.Optimizer.load_state_dict`, but tensors keep float64 and are copied."""
        super().load_state_dict({**state_dict, "state": {}})
        for memory in state_dict["state"].values():
            self._memory.update({k: _copied(v, self._params[0].device) for k, v in memory.items()})


def _copied(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.detach().to(device, copy=True)
    return [_copied(v, device) for v in value] if isinstance(value, list) else value
