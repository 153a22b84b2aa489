"""Time marching: one run for each window of time, each starting from the one before, in one folder."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace

import torch
from rich.console import Console
from torch import Tensor, nn

from pinnfuse import derivatives, problems
from pinnfuse.metrics import RelativeL2
from pinnfuse.problems import Problem
from pinnfuse.problems.windows import State, Windowed, edges, window
from pinnfuse.training.base import written_down
from pinnfuse.training.config import RunConfig
from pinnfuse.training.folder import make_folder, run_folder
from pinnfuse.training.quiet import first_process
from pinnfuse.training.run import Run
from pinnfuse.training.summary import Summary
from pinnfuse.training.surrogate_config import SurrogateConfig
from pinnfuse.training.surrogates import SurrogateRun
from pinnfuse.training.trained import network_of, unused


class March:
    """Runs of successive windows, `window_01`, `window_02`, ... in the folder; the interface of `Run`.

    Window n has the trained fields of window n - 1 as its initial condition, and its weights to start from. A window
    that is done is not trained again: `--resume FOLDER` goes on in the middle of the one that was stopped. A limit of
    time is shared evenly.

    Args:
        config: with `training.windows` > 1.
        console: of the progress bars.
    """

    def __init__(self, config: RunConfig, console: Console | None = None):
        self.config, self.console = config, console or Console()
        self.problem = problems.get(config.pde, config.problem, **config.options)
        self.ends = edges(self.problem, config.training.windows)
        self.folder = run_folder(config)
        self._lock = make_folder(self.folder, config.resume) if first_process() else None
        self.run = self._window(0, None)
        self.nets: list[nn.Module] = []

    @property
    def stop(self):
        """Of the present window."""
        return self.run.stop

    def prepare(self, say: Callable[[str], None] = lambda text: None) -> None:
        """As `Run.prepare`, for the first window."""
        self.run.prepare(say)

    def fit(self) -> None:
        """Train every window that is not done, until one is stopped."""
        with written_down(self.config, self.folder):
            for k in range(self.config.training.windows):
                if k:
                    self.run = self._window(k, self.nets[-1])
                if not (self.run.folder / "summary.json").is_file():
                    self.run.fit()
                    if self.run.stop.received is not None:
                        return
                    self.run.finish()
                self.nets.append(self._trained(k))

    def finish(self) -> Summary:
        """Compare all windows with the reference, write `summary.json`; returns the summary."""
        last = self.run.summary()
        if not self.nets:
            return last
        done = [json.loads(path.read_text()) for path in sorted(self.folder.glob("window_*/summary.json"))]
        summary = replace(
            last,
            steps=sum(s["steps"] for s in done),
            seconds=sum(s["seconds"] for s in done),
            rel_l2=errors(window(self.problem, self.ends[0], self.ends[len(self.nets)]), self.net()),
        )
        if first_process():
            summary.write(self.folder / "summary.json")
        return summary

    def net(self) -> Windowed:
        """The networks of all windows so far as one."""
        return Windowed(self.nets, self.ends, self.problem.domain.axis("t"))

    def _window(self, k: int, before: nn.Module | None) -> Run:
        config = copy.deepcopy(self.config)
        folder = self.folder / f"window_{k + 1:02d}"
        config.out, config.resume = str(folder), str(folder) if (folder / "config.yaml").is_file() else None
        config.training.windows = 1
        config.record.figures = False
        if config.training.max_seconds is not None:
            config.training.max_seconds /= self.config.training.windows
        problem = self._problem(k, before)
        run = Run(config, self.console, problem)
        if before is not None and run.checkpoint is None:
            raw = run.module.net.net if hasattr(run.module.net, "expressions") else run.module.net
            source = before.net if hasattr(before, "expressions") else before
            raw.load_state_dict(source.state_dict())  # type: ignore[union-attr]
        return run

    def _problem(self, k: int, before: nn.Module | None) -> Problem:
        state = None if before is None else _state(before, self.problem)
        return window(self.problem, self.ends[k], self.ends[k + 1], state)

    def _trained(self, k: int) -> nn.Module:
        """The network that a finished window left behind, on the CPU."""
        problem = window(self.problem, self.ends[k], self.ends[k + 1], None if k == 0 else unused)
        return network_of(problem, self.config, self.run.folder)


def _state(net: nn.Module, problem: Problem) -> State:
    """Values of a trained network, on the device of the points."""
    pde = problem.pde

    @torch.no_grad()
    def state(points: Tensor, jet: str) -> Tensor:
        net.to(points.device)
        if jet in pde.fields:
            return net(points)[:, pde.fields.index(jet)]
        found = derivatives(net, points, [jet], fields=pde.fields, coordinates=pde.coordinates, backend="torch")
        return found[jet]

    return state


@torch.no_grad()
def errors(problem: Problem, net: nn.Module, batch: int = 65_536) -> dict[str, float | None]:
    """{metric: relative L2 error} of a network on the evaluation points of a problem."""
    points, values, _ = problem.evaluation_points()
    like = next(net.parameters())
    inputs = torch.as_tensor(points).to(like)
    predicted = torch.cat([net(part) for part in inputs.split(batch)]).double().cpu()
    found: dict[str, float | None] = {}
    for name, fields in problem.metrics.items():
        columns = [problem.pde.fields.index(field) for field in fields]
        free = problem.free(fields)
        metric = RelativeL2(free, len(problem.times) if free else 1)
        metric.update(
            predicted[:, columns],
            torch.as_tensor(values)[:, columns],
            problem.time_of(torch.as_tensor(points)) if metric.groups > 1 else None,
        )
        found[name] = float(metric.compute())
    return found


def make_run(config: RunConfig, console: Console | None = None) -> Run | March | SurrogateRun:
    """One run, or one for each window of time; that of a surrogate, if the configuration is one's."""
    if isinstance(config, SurrogateConfig):
        return SurrogateRun(config, console)
    return March(config, console) if config.training.windows > 1 else Run(config, console)
