"""What is measured, what was published about it, and the goal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from pinnfuse.simulation import Physarum


@dataclass(frozen=True)
class Case:
    """One colony. `options` go to `Physarum`; `sort_every` to `run`."""

    name: str
    shape: tuple[int, int]
    agents: int
    options: dict[str, Any] = field(default_factory=dict)
    sort_every: int = 0
    chunk: int = 100
    """steps timed together"""
    torch_stages: bool = False
    """whether our torch stages are timed too"""
    published: str = ""
    goal: str = ""
    goal_steps_per_s: float | None = None
    goal_updates_per_s: float | None = None

    def colony(self, device: torch.device, backend: str = "auto") -> Physarum:
        return Physarum(self.shape, self.agents, seed=1, device=device, backend=backend, **self.options)

    def bytes(self, sim: Physarum) -> int:
        """Least traffic of a step: agents read (x, y, heading, number) and written (x, y, heading); three sensors and a
        deposit of one number each; field and deposits read and written once."""
        half = sim.field.element_size()
        agents = self.agents * (4 * 4 + 3 * 4 + 3 * half + 2 * 4)
        return agents + sim.field.numel() * (2 * half + 2 * 4)


BLOG = "2,882.8 steps/s, Triton; 113.1 steps/s, PyTorch (RTX A6000)"
CASES = [
    Case(
        "400x400, 5,000 agents",
        (400, 400),
        5000,
        chunk=1000,
        torch_stages=True,
        published=BLOG,
        goal="60,000 steps/s",
        goal_steps_per_s=60_000,
    ),
    Case(
        "2048x2048, 1 M agents",
        (2048, 2048),
        10**6,
        torch_stages=True,
        published="144 steps/s at 40 % of an RTX 3060 Ti",
        goal="8,000 steps/s",
        goal_steps_per_s=8000,
    ),
    Case("2048x2048, 1 M agents, two-stage", (2048, 2048), 10**6, {"deposits": "two-stage"}),
    Case("2048x2048, 1 M agents, float", (2048, 2048), 10**6, {"deposits": "float"}),
    Case("2048x2048, 1 M agents, half", (2048, 2048), 10**6, {"dtype": torch.float16}),
    Case("2048x2048, 1 M agents, bilinear", (2048, 2048), 10**6, {"sensing": "bilinear"}),
    Case("4096x4096, 4 M agents", (4096, 4096), 4 * 10**6),
    Case("4096x4096, 6 M agents", (4096, 4096), 6 * 10**6),
    Case(
        "4096x4096, 16 M agents",
        (4096, 4096),
        16 * 10**6,
        goal="5e9 agent updates/s",
        goal_updates_per_s=5e9,
    ),
    Case(
        "4096x4096, 16 M agents, sorted every 100 steps",
        (4096, 4096),
        16 * 10**6,
        sort_every=100,
        goal="5e9 agent updates/s",
        goal_updates_per_s=5e9,
    ),
]
QUICK = [Case("64x64, 500 agents", (64, 64), 500, torch_stages=True)]
CROWDED = 3.0
"""Goal: a two-stage deposit with all agents within 16 cells takes at most so many times that of evenly spread ones."""
