import dataclasses
import math
import re

import pytest
import torch
from lightning.pytorch import Callback, Trainer

from pinnfuse import tasks
from pinnfuse.datamodules import GridDataModule
from pinnfuse.datamodules.grids import GridBatch
from pinnfuse.models import GridSurrogate, for_task
from pinnfuse.models.pinn import NonFiniteLoss
from pinnfuse.optimizers import Phase
from pinnfuse.tasks import SurrogateSpec, one_adam, relative_errors
from pinnfuse.training.fitting import trainer_options
from pinnfuse.training.surrogate_measures import batches, costs, data_physics, predicted

SMALL = {"points": 16, "levels": 6, "ahead": 3, "nu": 0.05, "step": 0.02}


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("PINNFUSE_CACHE", str(tmp_path_factory.getbasetemp() / "surrogates"))


@pytest.fixture
def burgers():
    return tasks.get("burgers", **SMALL)


def fitted(task, spec, accelerator="cpu", callbacks=(), **network):
    torch.manual_seed(0)
    module = GridSurrogate(task, for_task(task, **network), spec, log_every=10)
    data = GridDataModule(task, spec)
    module.calibrate(data.examples())
    steps = data.steps
    quiet = {"logger": False, "enable_progress_bar": False}
    trainer = Trainer(**trainer_options(steps, 10, steps, accelerator), **quiet, callbacks=list(callbacks))
    trainer.fit(module, data)
    trainer.validate(module, data, verbose=False)
    return module, data


def test_convolutions_are_as_accurate_as_products(burgers, monkeypatch):
    """cuDNN's TF32, on by default, is off while a network is trained, compared or tuned, forward and backward."""
    found = []

    class Watched(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            found.append(torch.backends.cudnn.allow_tf32)
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            found.append(torch.backends.cudnn.allow_tf32)
            return g

    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    net = for_task(burgers)
    net.register_forward_hook(lambda module, given, out: Watched.apply(out))
    spec = SurrogateSpec(samples=4, held_out=2, batch=2, phases=one_adam(2))
    module, data = GridSurrogate(burgers, net, spec, log_every=10), GridDataModule(burgers, spec)
    options = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
    Trainer(max_steps=2, accelerator="cpu", **options).fit(module, data)
    inputs = next(iter(data.val_dataloader())).inputs
    module.fine_tune(inputs[:1], steps=1)
    module(inputs)
    assert torch.backends.cudnn.allow_tf32 and len(found) > 8 and not any(found)


def batch_of(task, count=4, start=0):
    arrays = {k: v[:count].double() for k, v in task.generate(0, task.block, 0, dtype=torch.float64).items()}
    return GridBatch(*task.pair(arrays, torch.full((count,), start)), count)


def test_it_overfits_eight_samples():
    task = tasks.get("darcy", points=9)
    spec = SurrogateSpec(samples=8, held_out=2, batch=8, loss="data", phases=one_adam(150, 1e-2))
    module, _ = fitted(task, spec, modes=4, width=12, depth=2)
    assert module.last_loss < 0.02


def test_physics_alone_lowers_residual_and_error(burgers):
    """No solution is used, and the error falls all the same."""
    spec = SurrogateSpec(samples=32, held_out=8, batch=8, loss="physics", phases=one_adam(150, 3e-3))
    torch.manual_seed(0)
    data = GridDataModule(burgers, spec)
    before = GridSurrogate(burgers, for_task(burgers, width=8, depth=2), spec)
    before.calibrate(data.examples())
    batch = next(iter(data.val_dataloader()))
    with torch.no_grad():
        start = float(before.physics_term(batch.inputs, before(batch.inputs)))
        wrong = float(relative_errors(burgers, before(batch.inputs), batch.targets).mean())
    module, data = fitted(burgers, spec, width=8, depth=2)
    assert module.last_physics < 0.45 * start and module.last_physics < 0.7
    assert module.rel_l2["u"] < 0.5 * wrong
    assert set(module.terms(batch)) == {"physics"}


def test_the_physics_term_is_one_for_the_trivial_prediction(burgers):
    for task in (burgers, tasks.get("darcy", points=9), tasks.get("gray_scott", points=16, levels=4)):
        batch = batch_of(task)
        module = GridSurrogate(task, training=SurrogateSpec(precision="float64"))
        module.calibrate(batch.inputs)
        assert float(module.physics_term(batch.inputs, task.trivial(batch.inputs))) == pytest.approx(1.0, rel=1e-6)
        assert float(module.physics_term(batch.inputs, batch.targets)) < 0.45
        assert float(module.physics_term(batch.inputs, 1.5 * batch.targets - 0.5 * task.trivial(batch.inputs))) > 0.3


def test_a_network_that_says_nothing_predicts_no_change(burgers):
    batch = batch_of(burgers)
    module = GridSurrogate(burgers, training=SurrogateSpec(precision="float64"))
    for p in module.net.parameters():
        p.data.zero_()
    assert torch.equal(module(batch.inputs), burgers.trivial(batch.inputs))


def test_only_labelled_targets_reach_the_gradient(burgers):
    batch = batch_of(burgers)._replace(labelled=2)
    module = GridSurrogate(burgers, training=SurrogateSpec(precision="float64"))
    module.calibrate(batch.inputs)

    def gradient(targets):
        module.zero_grad()
        module.total(module.terms(batch._replace(targets=targets))).backward()
        return torch.cat([p.grad.flatten() for p in module.parameters()])

    first = gradient(batch.targets)
    other, seen = batch.targets.clone(), batch.targets.clone()
    other[2:], seen[:2] = math.nan, 0.0
    assert torch.equal(first, gradient(other)) and not torch.equal(first, gradient(seen))


def test_no_residual_has_no_gradient(burgers):
    """The root of 0 has no derivative; the term has: 0."""
    module = GridSurrogate(burgers, training=SurrogateSpec(precision="float64"))
    flat = torch.ones(2, 1, 1, 16, dtype=torch.float64)
    prediction = torch.ones(2, 1, 1, 16, dtype=torch.float64, requires_grad=True)
    prediction_ahead = prediction.expand(2, burgers.ahead, 1, 16)
    module.physics_term(flat, prediction_ahead).backward()
    assert torch.equal(prediction.grad, torch.zeros_like(prediction))


def test_weights_add_up(burgers):
    batch = batch_of(burgers)
    spec = SurrogateSpec(precision="float64", data_weight=2.0, physics_weight=0.25)
    module = GridSurrogate(burgers, training=spec)
    module.calibrate(batch.inputs)
    terms = module.terms(batch)
    expected = 2 * terms["data"] + 0.25 * terms["physics"]
    assert torch.allclose(module.total(terms), expected)
    assert torch.allclose(terms["data"], relative_errors(burgers, module(batch.inputs), batch.targets).mean())


def test_a_rollout_feeds_predictions_back():
    task = tasks.get("burgers", **SMALL | {"history": 2, "ahead": 1})
    module = GridSurrogate(task)
    inputs = torch.randn(2, 2, 1, 16)
    rolled = module.rollout(inputs, 3)
    first = module(inputs)
    second = module(torch.cat([inputs[:, 1:], first], 1))
    third = module(torch.cat([first, second], 1))
    assert torch.allclose(rolled, torch.cat([first, second, third], 1), atol=1e-6)
    with pytest.raises(ValueError, match="'darcy' is a map"):
        GridSurrogate(tasks.get("darcy")).rollout(torch.zeros(1, 1, 31, 31), 1)


def test_fine_tuning_lowers_one_instances_residual_and_leaves_the_network(burgers):
    batch = batch_of(burgers, 1)
    torch.manual_seed(1)
    module = GridSurrogate(burgers, training=SurrogateSpec(precision="float64"))
    module.calibrate(batch_of(burgers).inputs)
    before = [p.clone() for p in module.parameters()]
    start = module(batch.inputs).detach()
    tuned = module.fine_tune(batch.inputs, 100, 3e-3)
    assert tuned.physics[-1] < 0.45 * tuned.physics[0] and len(tuned.physics) == 101
    errors = [float(relative_errors(burgers, p, batch.targets)) for p in (start, tuned.prediction)]
    assert errors[1] < 0.5 * errors[0]
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    held = module.fine_tune(batch.inputs, 30, 3e-3, anchor=1e6)
    assert float((held.prediction - start).norm()) < 0.3 * float((tuned.prediction - start).norm())


def test_measures(burgers):
    spec = SurrogateSpec(samples=8, held_out=4, batch=4, phases=one_adam(2))
    module, data = fitted(burgers, spec, width=4, depth=1)
    found = predicted(module, data)
    assert found.prediction.shape == found.reference.shape == (4, 6, 1, 16)
    assert found.times == pytest.approx([0.02 * k for k in range(1, 7)])
    first = relative_errors(burgers, found.prediction[:, :1], found.reference[:, :1]).mean()
    assert float(found.errors[0, 0]) == pytest.approx(float(first), rel=1e-5)
    assert data_physics(module, data) < 0.45
    before = [p.clone() for p in module.parameters()]
    times = costs(module, next(iter(data.val_dataloader())), repeats=1)
    assert set(times) == {"step_ms", "data_step_ms", "physics_ms"} and all(t > 0 for t in times.values())
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))


class Replayed:
    """A graph as far as its tensors go: every call reads and writes those of the first one."""

    made: list["Replayed"] = []

    def __init__(self, function, device):
        self.function, self.obstacle, self.captured, self._result = function, "", False, None
        self.made.append(self)

    def __call__(self):
        found = self.function()
        self._result = found.clone() if self._result is None else self._result.copy_(found)
        return self._result


@pytest.mark.parametrize("phases", [one_adam(7), [Phase("adam", 4, 1e-3), Phase("lbfgs", 3)]], ids=["adam", "two"])
def test_steps_as_graphs_give_the_same_numbers(burgers, phases, monkeypatch):
    """Batches are written into the tensors that a graph reads, and losses out of the one that it writes."""
    spec = SurrogateSpec(samples=8, held_out=4, batch=4, phases=phases)
    plain, _ = fitted(burgers, spec, width=4, depth=1)
    assert plain.explain_step() == "kernel by kernel: CUDA graphs do not exist on cpu"
    monkeypatch.setattr("pinnfuse.models.surrogate.StepGraph", Replayed)
    Replayed.made.clear()
    replayed, _ = fitted(burgers, spec, width=4, depth=1)
    assert len(Replayed.made) == len(phases) and replayed.explain_step().endswith("one CUDA graph")
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), replayed.parameters(), strict=True))
    off, _ = fitted(burgers, dataclasses.replace(spec, graph=False), width=4, depth=1)
    assert "switched off" in off.explain_step()


def test_numbers_that_a_callback_changes_reach_a_graph(burgers, monkeypatch):
    """Weights through a tensor that the graph reads, constants of the PDE by a new graph: replayed, neither would be
    read on the host."""
    made, seen = [], []

    class Change(Callback):
        def on_train_batch_start(self, trainer, module, batch, index):
            if index == 1:
                module.training_spec = dataclasses.replace(module.training_spec, physics_weight=7.0)
            if index == 2:
                module.physics.set_parameter("nu", 0.5)

        def on_train_batch_end(self, trainer, module, outputs, batch, index):
            seen.append((module.term_weights.data_ptr(), module.term_weights.tolist(), len(made)))

    monkeypatch.setattr("pinnfuse.models.surrogate.StepGraph", lambda *a: made.append(1) or Replayed(*a))
    spec = SurrogateSpec(samples=8, held_out=4, batch=4, precision="float64", phases=one_adam(3))
    fitted(burgers, spec, callbacks=[Change()], width=4, depth=1)
    (here, first, graphs), *rest = seen
    assert first == [1.0, 0.1] and graphs == 1
    assert rest == [(here, [1.0, 7.0], 1), (here, [1.0, 7.0], 2)]


@pytest.mark.gpu
@pytest.mark.parametrize("task", ["darcy", "navier_stokes"])
def test_steps_are_captured_on_a_card(task):
    found = []
    for graph in (True, False):
        spec = SurrogateSpec(samples=16, held_out=4, batch=4, phases=one_adam(8, 1e-3), graph=graph)
        module, data = fitted(tasks.get(task, points=16), spec, "gpu", width=8, modes=4, depth=2)
        found.append((module.explain_step(), torch.cat([p.detach().cpu().flatten() for p in module.parameters()])))
        assert set(costs(module.cuda(), batches(module.cuda(), data)[0], repeats=1)) > {"eager_step_ms"}
    assert found[0][0] == "loss, gradients and update are one CUDA graph" and "switched off" in found[1][0]
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-3, atol=1e-4)  # Adam divides by small gradients


def test_a_loss_that_is_not_finite_stops_the_run(burgers):
    spec = SurrogateSpec(samples=8, held_out=4, batch=4, phases=one_adam(20, 1e-3))
    module = GridSurrogate(burgers, for_task(burgers, width=4, depth=1), spec, log_every=5)
    data = GridDataModule(burgers, dataclasses.replace(spec))
    data.prepare()
    module.calibrate(data.examples())
    data._train.parts[0]["fields"] = data._train.parts[0]["fields"].clone().fill_(math.nan)
    trainer = Trainer(**trainer_options(20, 5, 20, "cpu"), logger=False, enable_progress_bar=False)
    with pytest.raises(NonFiniteLoss, match="not finite at step 1"):
        trainer.fit(module, data)


def test_the_example_of_the_docs_runs(root):
    text = (root / "docs" / "surrogates.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    small = {
        'get("burgers", nu=0.02)': 'get("burgers", nu=0.05, points=16, levels=50)',
        "GridDataModule(task)": "GridDataModule(task, SurrogateSpec(samples=4, held_out=2, batch=2))",
        "max_steps=1000": "max_steps=2, enable_progress_bar=False",
        "steps=200": "steps=2",
    }
    for there, here in small.items():
        assert there in code
        code = code.replace(there, here)
    names = {"SurrogateSpec": SurrogateSpec}
    exec(compile(code, "surrogates.md", "exec"), names)
    assert names["window"].shape == names["targets"].shape == (2, 5, 1, 16)
    assert names["levels"].shape == (2, 50, 1, 16) and len(names["tuned"].physics) == 3
