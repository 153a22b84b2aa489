"""A schedule of phases as one optimiser, so that a trainer holds, steps, saves and restores a single object."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from pinnfuse.optimizers.gauss_newton import GaussNewton, Linearise
from pinnfuse.optimizers.quasi_newton import QuasiNewton
from pinnfuse.optimizers.registry import build
from pinnfuse.optimizers.schedule import Phase


class PhasedOptimizer(Optimizer):
    """Runs the phases one after the other; each one's optimiser is built when the phase is entered.

    `step(closure)` is one step of the present phase. The phase is over after its `steps`, or as soon as a quasi-Newton
    optimiser says that it converged or stalled; then the next step begins the next phase. After the last one
    `finished` is true, and a further step raises.

    `state_dict` holds the position and the state of the present optimiser (earlier phases' is gone), so a run resumed
    in the middle of any phase continues the same trajectory. `param_groups` and `state` are those of the present
    optimiser, for whoever logs the learning rate.

    Args:
        params: parameters or groups, as for any optimiser. A group's own `lr` replaces that of first-order phases.
        phases: at least one. Names and options of all are checked here, before the first step.
        announces_changes: the caller calls `new_objective()` after every change of the objective (points drawn anew,
            other weights). Then a quasi-Newton step does not spend an evaluation on finding out.

    Raises:
        ValueError: no phase, or an unknown optimiser or option in one.
    """

    def __init__(self, params: Iterable[Any], phases: Sequence[Phase], *, announces_changes: bool = False):
        if not phases:
            raise ValueError("PhasedOptimizer: `phases` must hold at least one Phase; got none.")
        super().__init__(params, {})
        self.phases = list(phases)
        self.announces_changes = announces_changes
        self._all_params = [dict(group) for group in self.param_groups]
        for phase in phases[1:]:  # a mistake in a later phase is found before hours are spent on the first
            build(phase.optimizer, [dict(group) for group in self._all_params], phase.lr, **phase.options)
        # one mutable place for the position: Lightning's wrapper delegates reads of attributes but not writes
        self.position = {"phase": 0, "step": 0, "total": 0}
        self._factor = math.nan  # of the learning rate, as it was set last
        self._enter()

    @property
    def phase_index(self) -> int:
        """Index of the present phase; after the last step, of the last phase."""
        return self.position["phase"]

    @property
    def phase(self) -> Phase:
        """The present phase."""
        return self.phases[self.position["phase"]]

    @property
    def phase_step(self) -> int:
        """Steps done in the present phase."""
        return self.position["step"]

    @property
    def total_step(self) -> int:
        """Steps done in all."""
        return self.position["total"]

    @property
    def phase_finished(self) -> bool:
        """The present phase has done its steps, or cannot improve further."""
        active = self.active
        exhausted = isinstance(active, QuasiNewton | GaussNewton) and (active.converged or active.stalled)
        return exhausted or self.phase_step >= self.phase.steps

    @property
    def finished(self) -> bool:
        """Nothing is left to do."""
        return self.phase_index == len(self.phases) - 1 and self.phase_finished

    def new_objective(self) -> None:
        """Say that the closure's objective changed; see `QuasiNewton.new_objective`."""
        if isinstance(self.active, QuasiNewton | GaussNewton):
            self.active.new_objective()

    @property
    def first_order(self) -> bool:
        """The present optimiser makes its update from one gradient."""
        return not isinstance(self.active, QuasiNewton | GaussNewton)

    @property
    def capturable(self) -> bool:
        """Its update can be part of a CUDA graph: all of its state, count and rate included, is in tensors."""
        return all(group.get("capturable", False) for group in self.active.param_groups)

    def enter_next_phase(self) -> None:
        """Begin the next phase if the present one is over; `step` does so itself."""
        if self.finished:
            raise RuntimeError(
                f"PhasedOptimizer: all {len(self.phases)} phases are done after {self.total_step} steps; "
                "read `finished` before a step."
            )
        if self.phase_finished:
            self.position.update(phase=self.phase_index + 1, step=0)
            self._enter()

    def step(  # type: ignore[override]  # the closure is not optional here
        self,
        closure: Callable[[], Any],
        linearise: Linearise | None = None,
        update: Callable[[], Any] | None = None,
        residuals: Callable[[], Tensor] | None = None,
    ) -> Any:
        """One step of the present phase; enters the next phase first where that is due. Returns the loss before it.

        Args:
            closure: () -> loss, with gradients.
            linearise: what `GaussNewton` needs beside the loss; other optimisers do not look at it.
            residuals: those of `linearise` alone, see `GaussNewton.step`.
            update: () -> loss, does what `active.step(closure)` would do (a captured graph of it), in its place.
        """
        self.enter_next_phase()
        self._set_rate(self.phase.decay.factor(self.phase_step, self.phase.steps))
        active = self.active
        if update is not None:
            loss = update()
        else:
            rows = (linearise, residuals)
            loss = active.step(closure, *rows) if isinstance(active, GaussNewton) else active.step(closure)
        self.position["step"] += 1
        self.position["total"] += 1
        return loss

    def _enter(self) -> None:
        """Build the optimiser of the present phase."""
        phase, options = self.phase, dict(self.phase.options)
        groups = [dict(group) for group in self._all_params]
        self.active = build(phase.optimizer, groups, phase.lr, **options)
        if self.announces_changes and isinstance(self.active, QuasiNewton) and "check_objective" not in options:
            self.active.param_groups[0]["check_objective"] = False
        for group in self.active.param_groups:
            group["initial_lr"] = float(group["lr"])
        self._make_capturable()
        self._show()

    def _set_rate(self, factor: float) -> None:
        if factor == self._factor:  # spares a launch on a GPU
            return
        self._factor = factor
        for group in self.active.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(group["initial_lr"] * factor)
            else:
                group["lr"] = group["initial_lr"] * factor

    def _make_capturable(self) -> None:
        """Adam on CUDA keeps its learning rate in a tensor, so that a graph of its step reads it anew each time."""
        self._factor = math.nan  # the rate is set anew at the next step
        for group in self.active.param_groups:
            device = group["params"][0].device
            if "capturable" in group and device.type == "cuda":
                group["capturable"] = True
                group["lr"] = torch.as_tensor(group["lr"], dtype=torch.float32, device=device)

    def _show(self) -> None:
        self.param_groups, self.state = self.active.param_groups, self.active.state

    def state_dict(self) -> dict[str, Any]:
        """Position and state of the present optimiser, under the keys `torch.optim` users know and `phased`."""
        return {**self.active.state_dict(), "phased": {**self.position, "optimizer": self.phase.optimizer}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Enter the saved phase and restore its optimiser. Rates and options are those of the schedule at hand, so that
        a run may go on with others.

        Raises:
            ValueError: the state was saved by another optimiser, or the schedule has no such phase.
        """
        position = state_dict.get("phased")
        if position is None or position["phase"] >= len(self.phases):
            raise ValueError(
                f"PhasedOptimizer.load_state_dict: expected the state of a schedule of {len(self.phases)} phases; got "
                + (f"phase {position['phase'] + 1}." if position else "that of another optimiser.")
                + " Resume with the schedule that the run was started with."
            )
        found, expected = position.get("optimizer"), self.phases[position["phase"]].optimizer
        if found not in (None, expected):
            raise ValueError(
                f"PhasedOptimizer.load_state_dict: expected the state of {expected!r}, in phase "
                f"{position['phase'] + 1}; got that of {found!r}. Resume with the schedule that the run was started "
                "with; new phases may follow."
            )
        self.position.update({name: position[name] for name in self.position})
        self._enter()
        names = (*self.active.defaults, "initial_lr")
        own = [{name: group[name] for name in names} for group in self.active.param_groups]
        self.active.load_state_dict({k: v for k, v in state_dict.items() if k != "phased"})
        for group, options in zip(self.active.param_groups, own, strict=True):
            group.update(options)
        self._make_capturable()
        self._show()
