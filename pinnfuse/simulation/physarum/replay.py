"""Many steps from one CUDA graph, so that the host is out of the way of small colonies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from pinnfuse.simulation.physarum.simulation import Physarum

STEPS_PER_GRAPH = 100
"""Even, since buffers change places every step. A replay costs about 10 microseconds of the host."""


class Replay:
    """`run(n)` for one simulation: plain steps in torch, replays of a graph of `STEPS_PER_GRAPH` steps with kernels."""

    def __init__(self, sim: Physarum):
        self.sim = sim
        self._graph: torch.cuda.CUDAGraph | None = None

    def run(self, steps: int) -> None:
        sim = self.sim
        captured = self._graph is not None
        # torch stages launch hundreds of operations: a graph of 100 steps would take longer to make than it saves
        kernels = sim.device.type == "cuda" and set(sim.stages.values()) == {"triton"}
        if kernels and steps >= STEPS_PER_GRAPH + sim.colony.now + (0 if captured else 2):
            with torch.cuda.device(sim.device):
                if sim.colony.now == 1:  # a graph starts where it was captured
                    sim.step()
                    steps -= 1
                if not captured:
                    sim.step()  # compiles, outside of the capture
                    sim.step()
                    steps -= 2
                    self._capture()
                assert self._graph is not None
                for _ in range(steps // STEPS_PER_GRAPH):
                    self._graph.replay()
                    sim.steps_done += STEPS_PER_GRAPH
                steps %= STEPS_PER_GRAPH
        for _ in range(steps):
            sim.step()

    def _capture(self) -> None:
        sim, done = self.sim, self.sim.steps_done
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(STEPS_PER_GRAPH):
                sim.step()
        sim.steps_done = done  # captured, not run
        self._graph = graph
