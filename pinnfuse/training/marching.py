"""Time marching: one run for each window of time, each starting from the one before, in one folder."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor, nn

from pinnfuse import derivatives, problems
from pinnfuse.metrics import RelativeL2
from pinnfuse.models.pinn import predict_numpy
from pinnfuse.problems import Problem
from pinnfuse.problems.windows import State, Windowed, edges, window
from pinnfuse.tracking import History
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

    def ended(self) -> str:
        """As of `Run`; windows end for reasons of their own."""
        return ""

    def finish(self) -> Summary:
        """Compare all windows with the reference, write `summary.json`; returns the summary."""
        if not self.nets:
            return self.run.summary()
        done = [json.loads((folder / "summary.json").read_text()) for folder in self._done()]
        summary = replace(
            Summary(**done[-1]),
            steps=sum(s["steps"] for s in done),
            seconds=sum(s["seconds"] for s in done),
            rel_l2=errors(window(self.problem, self.ends[0], self.ends[len(self.nets)]), self.net()),
        )
        if first_process():
            summary.write(self.folder / "summary.json")
            if self.config.record.figures:
                self._draw()
        return summary

    def _done(self) -> list[Path]:
        """Folders of the finished windows."""
        return [self.folder / f"window_{k + 1:02d}" for k in range(len(self.nets))]

    def _draw(self) -> None:
        """The fields of all finished windows, and their curves one after the other."""
        from pinnfuse.figures import Report

        whole, net = History(), self.net()
        starts, step = [], 0
        for k, folder in enumerate(self._done()):
            part = History(folder / "metrics.csv")
            part.resume(10**12)
            for at, row in part.rows.items():
                whole.log_metrics(row, step + at)
            starts.append((step, f"window {k + 1}"))
            step += json.loads((folder / "summary.json").read_text())["steps"]
        part_problem = window(self.problem, self.ends[0], self.ends[len(self.nets)])
        predict = functools.partial(predict_numpy, net)
        Report(part_problem, predict, self.folder / "figures", self.config.record.animations).draw(
            whole.series(), starts
        )

    def net(self) -> Windowed:
        """The networks of all windows so far as one, on the device of the run (those that gave a start lie there)."""
        whole = Windowed(self.nets, self.ends, self.problem.domain.axis("t"))
        return whole.to(self.run.trainer.strategy.root_device)

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
        same = _expressions(before) == _expressions(run.module.net)  # else the same weights would be other fields
        if before is not None and same and run.checkpoint is None:
            run.module.net.load_state_dict(before.state_dict())
        return run

    def _problem(self, k: int, before: nn.Module | None) -> Problem:
        state = None if before is None else _state(before, self.problem)
        return window(self.problem, self.ends[k], self.ends[k + 1], state)

    def _trained(self, k: int) -> nn.Module:
        """The network that a finished window left behind, on the CPU."""
        problem = window(self.problem, self.ends[k], self.ends[k + 1], None if k == 0 else unused)
        return network_of(problem, self.config, self.run.folder)


def _expressions(net: nn.Module | None) -> dict[str, str]:
    """Of the output transform, if there is one."""
    return getattr(net, "expressions", {})


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


def errors(problem: Problem, net: nn.Module, batch: int = 65_536) -> dict[str, float | None]:
    """{metric: relative L2 error} of a network on the evaluation points of a problem."""
    points, values, _ = problem.evaluation_points()
    predicted = torch.from_numpy(predict_numpy(net, points, batch))
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
