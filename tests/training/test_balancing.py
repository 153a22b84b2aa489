"""Balancing, point weights and refinement inside runs: what they change, resume, a module of one's own."""

import dataclasses

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn

from pinnfuse import PDE, FusedResidualLoss
from pinnfuse.balancing import CausalWeights, ResidualAttention
from pinnfuse.callbacks import LossBalancing, Refinement
from pinnfuse.datamodules import CollocationDataModule
from pinnfuse.domains import Box
from pinnfuse.models import PINN
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


@pytest.mark.parametrize("scheme", ["gradient_norm", "ntk", "relobralo"])
def test_a_module_of_ones_own_resumes_bit_for_bit(scheme, tmp_path):
    points = Box({"t": (0, 1), "x": (0, 1)}).sample(32, torch.Generator().manual_seed(0))
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}

    def fit(steps, resume=None):
        module = Own()
        trainer = Trainer(accelerator="cpu", max_steps=steps, callbacks=[LossBalancing(scheme, 3)], **quiet)
        trainer.fit(module, torch.utils.data.DataLoader([points] * 20, batch_size=None), ckpt_path=resume)
        if steps == 8:
            trainer.save_checkpoint(tmp_path / "middle.ckpt")
        return module.state_dict()

    whole = fit(20)
    fit(8)
    resumed = fit(20, tmp_path / "middle.ckpt")
    tensors = {name for name, value in whole.items() if isinstance(value, torch.Tensor)}
    assert {"weights", "causal.losses", "attention.value"} <= tensors
    assert all(torch.equal(whole[name], resumed[name]) for name in tensors)
    assert not torch.equal(whole["weights"], torch.ones(2)) and whole["causal.losses"].max() > 0


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
