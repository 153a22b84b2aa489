"""Inner steps and captured steps give the numbers of plain steps."""

import dataclasses
import math

import pytest
import torch
from lightning.pytorch import Trainer

from pinnfuse import problems
from pinnfuse.datamodules import CollocationDataModule
from pinnfuse.models import PINN, for_problem
from pinnfuse.optimizers import Decay, Phase, StepGraph
from pinnfuse.problems import TrainingSpec

ADAM = Phase("adam", 12, 5e-3, decay=Decay("exponential", rate=0.5, every=4), clip=0.5)
SPEC = TrainingSpec(interior=64, boundary=16, hard=False, resample_every=4, phases=[ADAM, Phase("ssbroyden", 9)])


def fitted(spec, accelerator="cpu", name="heat", backend="torch", width=8, **options):
    problem = problems.get(name)
    torch.manual_seed(0)
    net = for_problem(problem, "mlp", spec.hard, width=width, depth=2, **options)
    module = PINN(problem, net, spec, backend, log_every=5)
    data = CollocationDataModule(problem, spec, seed=3)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "max_epochs": 1}
    trainer = Trainer(accelerator=accelerator, devices=1, limit_val_batches=0, **quiet)
    trainer.fit(module, data)
    return module, trainer


def parameters(module) -> torch.Tensor:
    return torch.cat([p.detach().cpu().flatten() for p in module.parameters()])


@pytest.mark.parametrize("resample", [0, 1, 4])
def test_inner_steps_give_the_same_numbers(resample):
    spec = dataclasses.replace(SPEC, resample_every=resample)
    one, trainer = fitted(spec)
    many, other = fitted(dataclasses.replace(spec, inner_steps=6))
    assert torch.equal(parameters(one), parameters(many))
    assert trainer.global_step == other.global_step == 21
    assert one.phase_starts == many.phase_starts == [(0, "adam"), (12, "ssbroyden")]
    assert one.last_loss == many.last_loss


def test_the_rate_and_the_clip_of_a_phase_arrive():
    class Watched(PINN):
        def on_train_batch_end(self, *unused):
            seen.append((self.schedule.param_groups[0]["lr"], norm(self)))

    def norm(module):
        return math.sqrt(sum(p.grad.square().sum().item() for p in module.parameters()))

    seen: list[tuple[float, float]] = []
    problem = problems.get("heat")
    spec = dataclasses.replace(SPEC, phases=[ADAM])
    module = Watched(problem, for_problem(problem, "mlp", False, width=8, depth=1), spec, "torch")
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "max_epochs": 1}
    Trainer(accelerator="cpu", limit_val_batches=0, **quiet).fit(module, CollocationDataModule(problem, spec))
    assert [rate for rate, _ in seen] == [5e-3 * 0.5 ** (k / 4) for k in range(12)]
    assert max(norm for _, norm in seen) == pytest.approx(0.5, rel=1e-5)


def test_why_a_step_is_not_captured_is_said():
    module, _ = fitted(SPEC)
    assert "step       kernel by kernel: CUDA graphs do not exist on cpu" in module.explain()
    module, _ = fitted(dataclasses.replace(SPEC, graph=False))
    assert "switched off" in module.explain()
    module, _ = fitted(dataclasses.replace(SPEC, phases=[Phase("gauss_newton", 4)]))
    assert "step       kernel by kernel: CUDA graphs do not exist on cpu" in module.explain()
    assert PINN(problems.get("heat")).explain() == "no step was made yet"


def test_gauss_newton_trains_a_problem():
    gauss = [Phase("adam", 20, 5e-3), Phase("gauss_newton", 30)]
    module, _ = fitted(dataclasses.replace(SPEC, phases=gauss, interior=200))
    adam, _ = fitted(dataclasses.replace(SPEC, phases=gauss[:1], interior=200))
    assert module.last_loss < 1e-5 < adam.last_loss


def test_a_curriculum_sets_the_constants_of_the_pde():
    last = problems.get("heat").pde.parameters["alpha"].value
    knots = {"alpha": [[0, 4 * last], [8, 2 * last], [13, last]]}
    module, _ = fitted(dataclasses.replace(SPEC, curriculum=knots))
    assert module.loss.interior.constants["alpha"] == last
    plain, _ = fitted(SPEC)
    assert not torch.equal(parameters(module), parameters(plain))
    many, _ = fitted(dataclasses.replace(SPEC, curriculum=knots, inner_steps=5))
    assert torch.equal(parameters(module), parameters(many))
    with pytest.raises(ValueError, match="pairs .step, value. with rising steps, the first 0"):
        TrainingSpec(curriculum={"alpha": [[5, 0.1]]})
    with pytest.raises(ValueError, match="the PDE has no constant 'alfa'. Did you mean 'alpha'"):
        fitted(dataclasses.replace(SPEC, curriculum={"alfa": [[0, last]]}))
    with pytest.raises(ValueError, match="ends at .* End with that value"):
        fitted(dataclasses.replace(SPEC, curriculum={"alpha": knots["alpha"][:2]}))


@pytest.mark.gpu
@pytest.mark.parametrize("resample", [0, 1, 4])
@pytest.mark.parametrize(("precision", "backend"), [("float32", "triton"), ("float64", "torch")])
@pytest.mark.parametrize(("hard", "sampler"), [(True, "uniform"), (False, "sobol")])
def test_captured_steps_give_the_same_numbers(resample, precision, backend, hard, sampler):
    phases = [dataclasses.replace(ADAM, steps=20), Phase("ssbroyden", 9), Phase("adam", 8)]
    spec = TrainingSpec(1024, 64, sampler, resample, phases=phases, precision=precision, hard=hard, inner_steps=5)
    plain, _ = fitted(dataclasses.replace(spec, graph=False), "gpu", "burgers", backend, 64)
    graph, _ = fitted(spec, "gpu", "burgers", backend, 64)
    inside = ", points are drawn inside" if resample == 1 else ""
    assert f"loss, gradients and update are one CUDA graph{inside}" in graph.explain()
    assert torch.equal(parameters(plain), parameters(graph))
    assert plain.last_loss == graph.last_loss


@pytest.mark.gpu
@pytest.mark.parametrize("resample", [1, 4])
@pytest.mark.parametrize("weight_factorisation", [False, True])
def test_a_captured_gauss_newton_gives_the_same_numbers(resample, weight_factorisation):
    phases = [dataclasses.replace(ADAM, steps=20), Phase("gauss_newton", 12)]
    spec = TrainingSpec(1024, 64, "sobol", resample, phases=phases, hard=False, loss_weights={"initial": 10.0})
    options = {"width": 12, "weight_factorisation": weight_factorisation}
    plain, _ = fitted(dataclasses.replace(spec, graph=False), "gpu", "burgers", "torch", **options)
    graph, _ = fitted(spec, "gpu", "burgers", "torch", **options)
    assert "residuals are one CUDA graph, the Jacobian another" in graph.explain()
    assert torch.equal(parameters(plain), parameters(graph))
    assert plain.last_loss == graph.last_loss


@pytest.mark.gpu
def test_what_cannot_be_captured_is_called():
    device = torch.device("cuda")
    x = torch.zeros(1, device=device)

    def step():
        x.add_(1)
        return x.item()  # waits for the device

    graph = StepGraph(step, device)
    assert [graph() for _ in range(6)] == [1, 2, 3, 4, 5, 6]
    assert not graph.captured and graph.obstacle


@pytest.mark.gpu
def test_random_numbers_follow_their_generator():
    device = torch.device("cuda")
    generator = torch.Generator(device)
    graph = StepGraph(lambda: torch.rand(8, device=device, generator=generator), device, [generator])
    for seed in range(8):
        generator.manual_seed(seed)
        found = graph().clone()
        truth = torch.rand(8, device=device, generator=torch.Generator(device).manual_seed(seed))
        assert torch.equal(found, truth)
    assert graph.captured
