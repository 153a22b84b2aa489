"""Balancing, point weights and refinement inside runs: what they change, resume, a module of one's own."""

import dataclasses

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn

from pinnfuse import PDE, FusedResidualLoss
from pinnfuse.balancing import CausalWeights, ResidualAttention
from pinnfuse.callbacks import Curriculum, GracefulStop, LossBalancing, Refinement, Stopwatch, TargetError
from pinnfuse.datamodules import CollocationDataModule
from pinnfuse.domains import Box
from pinnfuse.models import PINN
from pinnfuse.models.pinn import Diverged
from pinnfuse.optimizers import Phase
from pinnfuse.training.trained import trained

SHORT = (
    "--training.phases",
    '[{"optimizer": "adam", "steps": 24, "lr": 5e-3}, {"optimizer": "ssbroyden", "steps": 4}]',
)
KINDS = {
    "gradient_norm": ("--training.balance", "gradient_norm", "--training.balance_every", "5"),
    "ntk": ("--training.balance", "ntk", "--training.balance_every", "5"),
    "relobralo": ("--training.balance", "relobralo", "--training.balance_every", "5"),
    "attention": ("--training.point_weights", "attention", "--training.resample_every", "0"),
    "self_adaptive": ("--training.point_weights", "self_adaptive", "--training.resample_every", "0"),
    "causal": ("--training.point_weights", "causal", "--training.point_options", '{"tolerance": 3.0}'),
    "rad": ("--training.refine", "rad", "--training.refine_every", "7"),
    "rar_d": ("--training.refine", "rar_d", "--training.refine_every", "7"),
}


def parameters(run) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in run.module.parameters()])


@pytest.mark.parametrize("kind", list(KINDS))
def test_it_acts_and_a_resumed_run_agrees_bit_for_bit(kind, start):
    plain = start("plain", *SHORT, *(KINDS[kind][2:] if kind in ("attention", "self_adaptive") else ()))
    whole, part = start("whole", *SHORT, *KINDS[kind]), start("part", *SHORT, *KINDS[kind], "--max-steps", "13")
    for run in (plain, whole, part):
        run.fit()
    assert not torch.equal(parameters(plain), parameters(whole))
    resumed = start("part", *SHORT, *KINDS[kind], "--max-steps", "28", "--resume", str(part.folder))
    resumed.fit()
    assert torch.equal(parameters(resumed), parameters(whole))
    if kind == "rar_d":
        assert len(whole.module.last_batch["interior"].points) == 64 + 3 * 6  # chosen after steps 7, 14, 21


def test_points_are_added_where_residuals_count(heat):
    problem = dataclasses.replace(heat, weighting=lambda points: (points[:, 1] > 0.5).to(points))
    spec = dataclasses.replace(heat.training, phases=[Phase("adam", 6)])
    module, quiet = PINN(problem, None, spec, "torch"), {"logger": False, "enable_checkpointing": False}
    trainer = Trainer(accelerator="cpu", max_epochs=1, limit_val_batches=0, callbacks=[Refinement("rar_d", 3)], **quiet)
    trainer.fit(module, CollocationDataModule(problem, spec))
    points = module.last_batch["interior"].points
    assert len(points) == 64 + 6 and (points[64:, 1] > 0.5).all() and not (points[:64, 1] > 0.5).all()


@pytest.mark.parametrize("stop", [13, 17])
def test_an_output_transform_follows_the_curriculum_and_a_resumed_run_too(stop, start):
    """The transform names k; the second stop lies where the curriculum is back at the problem's own value."""
    curriculum = '{"k": [[0, 0.3], [9, 0.2], [15, 0.3], [16, 0.1]]}'
    options = (*SHORT, "--options.held", "all", "--training.curriculum", curriculum)
    whole, part = start("whole", *options), start("part", *options, "--max-steps", str(stop))
    whole.fit()
    part.fit()
    assert part.module.net.constants == {"k": 0.2 if stop == 13 else 0.1}
    _, net = trained(part.folder)
    points = torch.rand(5, 2, dtype=torch.float64)
    assert torch.equal(net(points), part.module.net(points))
    resumed = start("part", *options, "--max-steps", "28", "--resume", str(part.folder))
    assert resumed.module.net.constants == part.module.net.constants
    resumed.fit()
    assert torch.equal(parameters(resumed), parameters(whole))


def test_gradient_norms_are_equal_after_balancing(start):
    run = start("run", *SHORT, *KINDS["gradient_norm"], "--max-steps", "5")
    run.fit()
    loss, net, batch = run.module.loss, run.module.net, run.module.last_batch
    weights = dict(zip(loss.names, loss.weights.tolist(), strict=True)) | {"heat": loss.interior.equation_weights[0]}
    params = list(net.parameters())
    norms = []
    for name, term in loss.separate(net, batch).items():
        gradients = torch.autograd.grad(term, params)
        norms.append(weights[name] * torch.cat([g.flatten() for g in gradients]).norm().item())
    assert max(norms) / min(norms) == pytest.approx(1, rel=1e-6)


def test_kernels_are_traces_of_j_j_transposed(start):
    run = start("run", *SHORT, "--max-steps", "2")
    run.fit()
    module, params = run.module, list(run.module.parameters())
    batch = module.last_batch
    found = module.term_kernels(batch)
    residuals = module.loss.interior.residuals(module.net, batch["interior"].points)[:, 0]
    squares = [
        sum(
            g.square().sum().item()
            for g in torch.autograd.grad(r, params, retain_graph=True, allow_unused=True)
            if g is not None
        )
        for r in residuals
    ]
    assert found["heat"].item() == pytest.approx(sum(squares) / len(squares))
    assert set(found) == {"heat", "initial", "walls"}


def test_a_module_of_ones_own():
    class Mine(LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
            self.residual = FusedResidualLoss(PDE("u", "t x", equations={"heat": "u_t - u_xx"}), "torch")
            self.weights = {"heat": 1.0, "start": 1.0}

        def loss_terms(self, batch):
            start = batch.clone()
            start[:, 0] = 0
            value = self.net(start)[:, 0] - torch.sin(torch.pi * start[:, 1])
            return {"heat": self.residual(self.net, batch), "start": value.square().mean()}

        def set_term_weights(self, weights):
            self.weights = weights

        def training_step(self, batch, index):
            return sum(self.weights[name] * term for name, term in self.loss_terms(batch).items())

        def configure_optimizers(self):
            return torch.optim.Adam(self.net.parameters(), 1e-2)

    module = Mine()
    points = [Box({"t": (0, 1), "x": (0, 1)}).sample(32) for _ in range(4)]
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    Trainer(accelerator="cpu", max_epochs=1, callbacks=[LossBalancing("relobralo", 2)], **quiet).fit(
        module, torch.utils.data.DataLoader(points, batch_size=None)
    )
    assert isinstance(module.weights["heat"], torch.Tensor)


class Own(LightningModule):
    """Causal and attention weights, and balanced terms, by hand; all of their state in buffers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
        self.heat = FusedResidualLoss(PDE("u", "t x", equations={"heat": "u_t - u_xx"}), "torch")
        self.start = FusedResidualLoss(PDE("u", "t x", equations={"start": "u - sin(pi*x)"}), "torch")
        self.causal, self.attention = CausalWeights(0, 0.0, 1.0, pieces=4), ResidualAttention(32, rate=0.1)
        self.register_buffer("weights", torch.ones(2))

    def _both(self, points):
        yield "heat", self.heat, points, self.causal
        yield "start", self.start, points * torch.tensor([0.0, 1.0]), self.attention

    def loss_terms(self, points):
        terms = {}
        for name, loss, where, weights in self._both(points):
            out = loss.evaluate(self.net, where, weights(where))
            terms[name] = out.loss
            weights.update(where, out.residuals.detach())
        return terms

    def term_kernels(self, points):
        parameters = list(self.net.parameters())
        rows = {name: loss.linearise(self.net, where, parameters) for name, loss, where, _ in self._both(points)}
        return {name: sum(j.square().sum() for _, j in chunks) for name, chunks in rows.items()}

    def set_term_weights(self, weights):
        self.weights.copy_(torch.stack([weights["heat"], weights["start"]]))

    def training_step(self, points, index):
        return self.weights @ torch.stack(list(self.loss_terms(points).values()))

    def configure_optimizers(self):
        return torch.optim.Adam(self.net.parameters(), 1e-2)


SILENT = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}


def resumes_bit_for_bit(make, callbacks, stop, folder):
    """Whether 20 steps are the same with a checkpoint after `stop` of them; the state at the end."""
    points = Box({"t": (0, 1), "x": (0, 1)}).sample(32, torch.Generator().manual_seed(0))

    def fit(steps, resume=None):
        module = make()
        trainer = Trainer(accelerator="cpu", max_steps=steps, callbacks=callbacks(), **SILENT)
        trainer.fit(module, torch.utils.data.DataLoader([points] * 20, batch_size=None), ckpt_path=resume)
        if steps == stop:
            trainer.save_checkpoint(folder / "middle.ckpt")
        return module.state_dict()

    whole = fit(20)
    fit(stop)
    resumed = fit(20, folder / "middle.ckpt")
    tensors = {name for name, value in whole.items() if isinstance(value, torch.Tensor)}
    assert all(torch.equal(whole[name], resumed[name]) for name in tensors)
    return whole


@pytest.mark.parametrize("scheme", ["gradient_norm", "ntk", "relobralo"])
def test_a_module_of_ones_own_resumes_bit_for_bit(scheme, tmp_path):
    whole = resumes_bit_for_bit(Own, lambda: [LossBalancing(scheme, 3)], 8, tmp_path)
    assert not torch.equal(whole["weights"], torch.ones(2)) and whole["causal.losses"].max() > 0


class Adaptive(LightningModule):
    """Points of its own, chosen by `Refinement`, and a constant that follows a `Curriculum`."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
        self.heat = FusedResidualLoss(PDE("u", "t x", {"k": 1.0}, {"heat": "u_t - k*u_xx - 1"}), "torch")
        self.domain = Box({"t": (0, 1), "x": (0, 1)})
        self.collocation_points = self.domain.sample(32, torch.Generator().manual_seed(1))
        self.seen = []

    def candidate_points(self, count, generator):
        return self.domain.sample(count, generator)

    def point_residuals(self, points):
        return self.heat.residuals(self.net, points)

    def set_collocation_points(self, points):
        self.collocation_points = points

    def set_parameter(self, name, value):
        self.heat.set_parameter(name, value)

    def training_step(self, batch, index):
        self.seen.append((len(self.collocation_points), self.heat.constants["k"]))
        return self.heat(self.net, self.collocation_points)

    def configure_optimizers(self):
        return torch.optim.Adam(self.net.parameters(), 1e-2)


@pytest.mark.parametrize("stop", [7, 8, 12])
@pytest.mark.parametrize("method", ["rad", "rar_d"])
def test_points_and_constants_of_ones_own_resume_bit_for_bit(method, stop, tmp_path):
    modules = []

    def make():
        modules.append(Adaptive())
        return modules[-1]

    def callbacks():
        return [Refinement(method, 4), Curriculum({"k": [[0, 0.5], [10, 0.1]]}), GracefulStop()]

    resumes_bit_for_bit(make, callbacks, stop, tmp_path)
    whole, _, resumed = modules
    assert [k for _, k in whole.seen] == [0.5] * 10 + [0.1] * 10
    assert resumed.seen == whole.seen[stop:]
    counts = [n for n, _ in whole.seen]
    assert counts == [32 + 3 * (step // 4) if method == "rar_d" else 32 for step in range(20)]
    assert not torch.equal(whole.collocation_points[:32], Adaptive().collocation_points) or method == "rar_d"


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        (LossBalancing("ntk"), r"LossBalancing: .* must have term_kernels\(batch\).*; set_term_weights\(weights\)"),
        (Refinement(), r"Refinement: .* must have collocation_points.*; candidate_points\(count, generator\)"),
        (Curriculum({"k": [[0, 1.0]]}), r"Curriculum: .* must have set_parameter\(name, value\)"),
        (Stopwatch(32), "Stopwatch: expected a module of class RecordedModule"),
        (TargetError(0.1), "TargetError: expected a module of class RecordedModule"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_what_a_module_lacks_is_said(callback, message):
    class Bare(LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(2, 1)

        def training_step(self, batch, index):
            return self.net(batch).square().mean()

        validation_step = training_step

        def configure_optimizers(self):
            return torch.optim.SGD(self.net.parameters(), 1e-3)

    data = torch.utils.data.DataLoader([torch.rand(4, 2)], batch_size=None)
    with pytest.raises(ValueError, match=message):
        Trainer(accelerator="cpu", max_steps=1, callbacks=[callback], **SILENT).fit(Bare(), data, data)


def test_divergence_is_named_where_terms_are_balanced(start):
    phases = ("--training.phases", '[{"optimizer": "adam", "steps": 100, "lr": 300.0}]')
    with pytest.raises(Diverged, match=r"training diverged: at step \d+ the loss is"):
        start("run", *phases, "--training.balance", "gradient_norm", "--training.balance_every", "5").fit()


def test_weights_that_grow_are_no_divergence(heat):
    class Strong:
        def update(self, measure):
            return torch.full_like(measure, 1e6)

        def state_dict(self):
            return {}

    spec = dataclasses.replace(heat.training, phases=[Phase("adam", 8, lr=1e-4)])
    module = PINN(heat, None, spec, "torch", log_every=2)
    trainer = Trainer(
        accelerator="cpu", max_epochs=1, limit_val_batches=0, callbacks=[LossBalancing(Strong(), 2)], **SILENT
    )
    trainer.fit(module, CollocationDataModule(heat, spec))
    assert module.last_loss > 1e5 * module.first_loss


def test_mistakes(start):
    with pytest.raises(ValueError, match="unknown `balance` 'gradnorm'. Did you mean 'gradient_norm'"):
        start("run", "--training.balance", "gradnorm")
    with pytest.raises(ValueError, match="belong to fixed points; set resample_every to 0"):
        start("run", "--training.point_weights", "attention")
    with pytest.raises(ValueError, match="CausalWeights has no 'tol'"):
        start("run", "--training.point_weights", "causal", "--training.point_options", '{"tol": 1}')
    with pytest.raises(ValueError, match="a wrong type in {'tolerance': 'big'}"):
        start("run", "--training.point_weights", "causal", "--training.point_options", '{"tolerance": "big"}')
    with pytest.raises(ValueError, match="`point_options` .* belong to `point_weights`, which is 'none'"):
        start("run", "--training.point_options", '{"tolerance": 1.0}')
    with pytest.raises(ValueError, match="`max_seconds` must be positive, or null"):
        start("run", "--training.max_seconds", "-5")
    with pytest.raises(ValueError, match="`target_error` must be positive, or null"):
        start("run", "--training.target_error", "0")
    with pytest.raises(ValueError, match="validate_every: must be at least 1; got 0"):
        start("run", "--record.validate_every", "0")
    with pytest.raises(ValueError, match="rising steps, the first 0, and finite values"):
        start("run", "--training.curriculum", '{"k": [[0, .nan], [5, 0.1]]}')
    with pytest.raises(ValueError, match="unknown `scheme` 'nkt'. Did you mean 'ntk'"):
        LossBalancing("nkt")
