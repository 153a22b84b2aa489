"""What a run is made of. Fields are options of `train.py`, keys of its YAML files, and help text, all at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Optional, Union

from pinnfuse.problems import TrainingSpec

Plain = Optional[Union[bool, int, float, str]]  # noqa: UP007, UP045  # the first that fits a text is taken


@dataclass
class RecordConfig:
    """What a run writes, and how often."""

    log_every: int = 50
    """Steps between two rows of losses"""
    validate_every: int = 500
    """Steps between two comparisons with the reference"""
    validate_first: int = 50
    """Step of the first of them; 0 for none before validate_every"""
    checkpoint_seconds: float = 60.0
    """Seconds between two writes of checkpoints/last.ckpt"""
    figures: bool = True
    """Draw figures at the end"""
    animations: bool = True
    """Draw GIFs of time-dependent problems, too"""
    speedup_steps: int = 9
    """Steps that are timed with and without nested autograd, in turns, at the start; 0 for no comparison"""
    speedup_at_end: bool = False
    """Time as many again after the last step"""
    project: str = "pinnfuse"
    """Name of the W&B project"""

    def __post_init__(self) -> None:
        least = {"log_every": 1, "validate_every": 1, "validate_first": 0, "checkpoint_seconds": 0, "speedup_steps": 0}
        for name, value in least.items():
            if not getattr(self, name) >= value:
                raise ValueError(f"--record.{name}: must be at least {value}; got {getattr(self, name)!r}.")


@dataclass
class RunConfig:
    """A run of `train.py`."""

    pde: str = "navier_stokes"
    """PDE, see --list"""
    problem: str | None = None
    """One of the PDE's problems; by default the first"""
    model: str | None = None
    """Network, see --list; by default the problem's own"""
    backend: str = "auto"
    """How derivatives are computed: auto, torch, autograd or triton"""
    precision: Literal["float32", "float64"] | None = None
    """Shortcut for --training.precision"""
    seed: int = 0
    """Of the network's initial weights and of the points"""
    out: str | None = None
    """Output folder; by default runs/<pde>-<problem>-<time>"""
    max_steps: int | None = None
    """Stop after that many optimisation steps (of each window of time); by default when all phases are done"""
    resume: str | None = None
    """Folder (or checkpoint) of an earlier run to continue"""
    logger: Literal["wandb", "csv", "none"] = "wandb"
    """wandb (and metrics.csv), csv (metrics.csv only) or none"""
    accelerator: str = "auto"
    """cpu or gpu; auto takes a CUDA card if there is one"""
    devices: int | str = 1
    """Number of devices (processes on CPU), or a list such as "0,2\""""
    num_nodes: int = 1
    """Number of machines, each with that many devices; torchrun or SLURM starts the processes"""
    strategy: str = "auto"
    """Lightning strategy; auto and ddp mean pinnfuse.models.DataParallel where there are several processes"""
    threads: int | None = None
    """Threads on a CPU; by default as many as help in a short trial, or what OMP_NUM_THREADS says"""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the problem, e.g. --options.reynolds 400"""
    network: dict[str, Any] = field(default_factory=dict)
    """Options of the network, e.g. --network.width 128"""
    training: TrainingSpec = field(default_factory=TrainingSpec)
    """Points, precision and schedule"""
    record: RecordConfig = field(default_factory=RecordConfig)
    """What is written, and how often"""
    trainer: dict[str, Plain] = field(default_factory=dict)
    """Further arguments of lightning.pytorch.Trainer, e.g. --trainer.profiler simple"""
