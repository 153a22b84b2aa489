"""Time windows: conditions of each, continuity, errors, what is trained again after an interruption."""

import copy
import json
import shutil
import signal

import numpy as np
import pytest
import torch

from pinnfuse import problems
from pinnfuse.problems.windows import Windowed, edges, window
from pinnfuse.training import cli
from pinnfuse.training.marching import make_run


@pytest.fixture
def march(tmp_path, phases):
    def make(name, *arguments):
        options = ["--pde", "toy", "--backend", "torch", "--logger", "csv", "--record.speedup_steps", "0"]
        options += ["--accelerator", "cpu", "--training.windows", "3", "--record.log_every", "5"]
        options += ["--training.phases", phases(adam=60, gauss_newton=30), "--training.interior", "150"]
        return make_run(cli.parse([*options, "--out", str(tmp_path / name), *arguments]))

    return make


def states(run):
    return [torch.cat([p.flatten() for p in net.parameters()]) for net in run.nets]


def test_windows_follow_each_other(march):
    run = march("run")
    run.fit()
    summary = run.finish()
    assert summary.rel_l2["u"] is not None and summary.rel_l2["u"] < 2e-3
    assert summary.steps == 270 and json.loads((run.folder / "summary.json").read_text())["steps"] == 270
    net, end = run.net(), run.ends[1]
    x = torch.linspace(0, 1, 21, dtype=torch.float64)
    jump = net(torch.stack([torch.full_like(x, end - 1e-9), x], 1)) - net(
        torch.stack([torch.full_like(x, end + 1e-9), x], 1)
    )
    assert jump.abs().max() < 2e-3
    third = torch.tensor([[0.9, 0.5]], dtype=torch.float64)
    assert net(third).item() == run.nets[2](third).item()


@pytest.mark.parametrize("lost", [["window_02", "window_03"], ["window_03"]])
def test_what_is_done_is_kept_and_the_rest_comes_out_the_same(march, lost):
    whole = march("run")
    whole.fit()
    truth = states(whole)
    for name in lost:
        shutil.rmtree(whole.folder / name)
    again = march("run", "--resume", str(whole.folder))
    again.fit()
    assert all(torch.equal(a, b) for a, b in zip(states(again), truth, strict=True))
    assert again.finish().steps == 270


def test_a_finished_run_that_is_resumed_keeps_its_summary(march):
    run = march("run")
    run.fit()
    first = run.finish()
    again = march("run", "--resume", str(run.folder))
    again.fit()
    assert again.finish() == first and first.loss < 1e-2


def test_a_window_alone_is_not_resumed(march):
    run = march("run")
    for path in (run.folder / "window_01", run.folder / "window_01" / "checkpoints"):
        path.mkdir(parents=True, exist_ok=True)
    cli.save(run.config, run.folder / "config.yaml")
    cli.save(run.run.config, run.folder / "window_01" / "config.yaml")
    (run.folder / "window_01" / "checkpoints" / "last.ckpt").touch()
    for path in ("window_01", "window_01/checkpoints/last.ckpt"):
        with pytest.raises(ValueError, match=r"one of several windows of time. Go on with --resume .*run\.$"):
            cli.parse(["--resume", str(run.folder / path)])


def test_all_windows_are_drawn_together(march):
    run = march("run", "--record.figures", "true", "--record.animations", "false")
    run.fit()
    run.finish()
    assert {path.name for path in (run.folder / "figures").iterdir()} == {
        "loss.png",
        "rel_l2.png",
        "u.png",
        "u_cuts.png",
    }


@pytest.mark.parametrize("held", ["all", "none"])
def test_weights_are_taken_over_by_the_same_kind_of_network_only(march, held):
    """The first window may have a transform that holds the start, the second none: its raw output is another field."""
    run = march("run", "--options.held", held)
    drawn = {name: p.clone() for name, p in run.run.module.net.state_dict().items()}
    before = copy.deepcopy(run.run.module.net)
    with torch.no_grad():
        for p in before.parameters():
            p.add_(1)
    second = run._window(1, before).module.net.state_dict()
    taken = {name.removeprefix("net."): p + (held == "none") for name, p in drawn.items()}
    assert all(torch.equal(p, taken[name.removeprefix("net.")]) for name, p in second.items())


def test_a_window_that_was_stopped_goes_on_in_the_middle(march):
    whole, part = march("whole"), march("part")
    whole.fit()
    weight = next(part.run.module.parameters())

    def stop(gradient):
        if part.run.module.global_step == 40:
            signal.raise_signal(signal.SIGTERM)
        return gradient

    weight.register_hook(stop)
    part.fit()
    assert part.stop.received is not None and not part.nets
    resumed = march("part", "--resume", str(part.folder))
    resumed.fit()
    assert all(torch.equal(a, b) for a, b in zip(states(resumed), states(whole), strict=True))


@pytest.mark.parametrize("name", [("wave", None), ("navier_stokes", "taylor_green"), ("burgers", None)])
def test_the_conditions_of_a_window(name):
    problem = problems.get(*name)
    start, end = edges(problem, 4)[1:3]
    later = window(problem, start, end, lambda points, jet: points[:, 0] * 0 + len(jet))
    assert later.domain.bounds["t"] == (start, end)
    assert [c.name for c in later.conditions] == [c.name for c in problem.conditions]
    for condition in later.conditions:
        points, data = condition.sample(16, dtype=torch.float64)
        assert later.domain.contains(points, 1e-9).all()
        if condition.kind == "initial":
            assert (points[:, 0] == start).all() and data is not None
            assert {int(column[0]) for column in data.values()} <= {1, 3}  # "u", "u_t"
    first = window(problem, *edges(problem, 4)[:2])
    assert first.hard == problem.hard
    points = later.evaluation_points()[0]
    assert len(points) and np.all((points[:, 0] >= start - 1e-9) & (points[:, 0] <= end + 1e-9))


def test_windowed_picks_the_network_of_a_point():
    class Constant(torch.nn.Module):
        def __init__(self, value):
            super().__init__()
            self.value = value

        def forward(self, x):
            return torch.full((len(x), 1), self.value, dtype=x.dtype)

    net = Windowed([Constant(1.0), Constant(2.0), Constant(3.0)], [0, 1, 2, 3], 1)
    points = torch.tensor([[9.0, -0.1], [9, 0.5], [9, 1.0], [9, 1.5], [9, 2.5], [9, 3.2]])
    assert net(points)[:, 0].tolist() == [1, 1, 1, 2, 3, 3]


def test_a_steady_problem_has_no_windows():
    with pytest.raises(ValueError, match="'lid_driven_cavity' has no time with an initial condition"):
        edges(problems.get("navier_stokes"), 3)
