"""A training step as one CUDA graph: the host launches it once, however many kernels it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


class StepGraph:
    """Calls `function` until it is warm, then captures it and replays the graph at every further call.

    A replay does what the call did, on the tensors that the call used: same kernels, same order, same numbers. Whatever
    changes between calls must therefore be written into tensors in place (points, weights, learning rates), random
    numbers must come from `generators`, and the function must not read values on the host. Where that does not hold,
    capture fails: `obstacle` says why, and the function is simply called.

    Args:
        function: () -> tensors (or anything that holds some). A replay returns the same tensors, with new contents.
        device: where it runs; on a CPU it is always called.
        generators: all sources of random numbers inside.
        warm_up: calls before the capture: they compile, allocate, build the optimiser's state.

    Example:
        >>> graph = StepGraph(step, points.device)  # step(): zero_grad, loss, backward, capturable optimizer
        >>> for points in batches:
        ...     static_points.copy_(points)
        ...     loss = graph()
    """

    def __init__(
        self,
        function: Callable[[], Any],
        device: torch.device,
        generators: Sequence[torch.Generator] = (),
        warm_up: int = 3,
    ):
        self.function, self.generators, self.warm_up = function, tuple(generators), warm_up
        self.obstacle = "" if device.type == "cuda" else f"CUDA graphs do not exist on {device.type}"
        self._stream = None if self.obstacle else torch.cuda.Stream(device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Any = None
        self._calls = 0

    @property
    def captured(self) -> bool:
        """Whether calls replay a graph."""
        return self._graph is not None

    def __call__(self) -> Any:
        if self._graph is None and not self.obstacle and self._calls >= self.warm_up:
            self._capture()
        if self._graph is not None:
            self._graph.replay()
            return self._result
        self._calls += 1
        if self._stream is None or self.obstacle:
            return self.function()
        # on the stream of the capture: autograd adds to a gradient on the stream that first did so
        here = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(here)
        with torch.cuda.stream(self._stream):
            result = self.function()
        here.wait_stream(self._stream)
        return result

    def _capture(self) -> None:
        graph = torch.cuda.CUDAGraph()
        try:
            for generator in self.generators:
                graph.register_generator_state(generator)
            # thread_local: another thread (a logger, a loader) may use the card meanwhile
            with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
                self._result = self.function()
        except Exception as error:  # whatever is not allowed in a capture; CUDA and torch raise many types
            self.obstacle = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
            torch.cuda.synchronize()
        else:
            self._graph = graph
