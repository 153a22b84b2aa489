"""What a surrogate's run came to: `summary.json` and the closing line."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from pinnfuse.files import write_whole
from pinnfuse.training.summary import duration, finite


@dataclass(frozen=True)
class SurrogateSummary:
    """Keys of `summary.json`. None where something was not measured or is not finite."""

    pde: str
    model: str
    backend: str
    """of the residual, the one that ran"""
    precision: str
    device: str
    seed: int
    steps: int
    seconds: float
    """of the fit, over all resumptions"""
    loss: float | None
    """weighted total after the last step"""
    rel_l2: dict[str, float | None]
    """per field: relative L2 error of a prediction from true inputs, mean over held-out samples (and windows)"""
    rollout_rel_l2: dict[str, float | None]
    """per field: the same at the last level of a rollout from the first levels; empty for a map"""
    physics: float | None
    """residual of these predictions over that of the trivial one, root mean squares"""
    data_physics: float | None
    """the same of the solver's (or the file's) solutions: what no prediction need be below"""
    samples: int
    held_out: int
    labelled: int
    """training samples whose solutions were used"""
    shape: list[int]
    parameters: int
    """numbers in the network"""
    step: str
    """how training steps ran: as a CUDA graph, or why not"""
    physics_ms: float | None
    """residual loss and its gradient to the prediction"""
    step_ms: float | None
    """a training step with data and physics"""
    data_step_ms: float | None
    """the same step with the data term alone"""
    physics_cost: float | None
    """step_ms over data_step_ms"""
    eager_step_ms: float | None
    """with data and physics by torch's own operations; None where the run's backend is that"""
    fine_tuning: dict[str, float] | None
    """of one held-out instance: rel_l2 and physics before and after, steps, seconds"""
    versions: dict[str, str]

    def write(self, path: Path) -> None:
        write_whole(path, json.dumps(finite(asdict(self)), indent=2, allow_nan=False) + "\n")

    def line(self, folder: Path) -> str:
        """The closing line of a run, for rich."""

        def shown(errors: dict[str, float | None]) -> str:
            return ", ".join(f"{n} [bold green]{'n/a' if v is None else f'{v:.2e}'}[/]" for n, v in errors.items())

        parts = [f"relative L2: {shown(self.rel_l2)}"]
        if self.rollout_rel_l2:
            parts.append(f"end of rollout: {shown(self.rollout_rel_l2)}")
        parts.append(f"{self.steps:,} steps in {duration(self.seconds)}")
        if self.physics_cost is not None:
            parts.append(f"a step with physics takes [bold]{self.physics_cost:.2f}x[/] the time")
        return " [dim]|[/] ".join([*parts, str(folder)])
