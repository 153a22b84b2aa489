"""Phases as one optimiser: hand-over, decay, early end, resume anywhere to the same bits, under Lightning."""

import copy

import pytest
import torch
from torch import nn

from pinnfuse.optimizers import Decay, Phase, PhasedOptimizer, SSBroyden, available
from tests.optimizers.objectives import closure_of, sine_network

MIXED = [
    Phase("adam", 12, 5e-3, decay=Decay("exponential", rate=0.5, every=5, warmup=3)),
    Phase("ssbroyden", 15),
    Phase("lbfgs", 10, options={"history_size": 4}),
]


def train(phases, steps, dtype=torch.float64, resume_at=None, path=None, resample_every=0):
    """Losses, learning rates and phase of every step, and the last parameters."""

    def start(seed):
        net, loss = sine_network(dtype, seed)
        return net, loss, PhasedOptimizer(net.parameters(), phases, announces_changes=True)

    net, loss, optimizer = start(0)
    log = []
    for k in range(steps):
        if k == resume_at:
            torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, path)
            net, loss, optimizer = start(1)
            saved = torch.load(path, weights_only=True)
            net.load_state_dict(saved["net"])
            optimizer.load_state_dict(saved["optimizer"])
            optimizer.new_objective()  # a trainer that starts anew cannot know that its points are the same
        scale = 1.0
        if resample_every:
            scale += 0.1 * (k // resample_every % 3)
            if k % resample_every == 0:
                optimizer.new_objective()
        value = optimizer.step(closure_of(optimizer, lambda s=scale, loss=loss: s * loss())).item()
        log.append((value, optimizer.param_groups[0]["lr"], optimizer.phase_index, optimizer.phase_step))
    return log, [p.detach().clone() for p in net.parameters()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", [n for n in available() if n != "gauss_newton"])  # which needs residuals
def test_resume_in_the_middle_of_a_phase_continues_bit_for_bit(name, dtype, tmp_path):
    phases = [Phase(name, 40, decay=Decay("cosine", warmup=4))]
    straight, parameters = train(phases, 40, dtype)
    resumed, again = train(phases, 40, dtype, resume_at=17, path=tmp_path / "c.pt")
    assert straight == resumed
    assert all(torch.equal(a, b) for a, b in zip(parameters, again, strict=True))


@pytest.mark.parametrize("resample_every", [0, 4])
@pytest.mark.parametrize("resume_at", [0, 1, 5, 11, 12, 13, 20, 26, 27, 28, 36])
def test_resume_at_any_step_of_a_schedule(resume_at, resample_every, tmp_path):
    straight, parameters = train(MIXED, 37, resample_every=resample_every)
    resumed, again = train(MIXED, 37, resume_at=resume_at, path=tmp_path / "c.pt", resample_every=resample_every)
    assert straight == resumed
    assert all(torch.equal(a, b) for a, b in zip(parameters, again, strict=True))


def test_phases_follow_each_other_with_their_learning_rates():
    log, _ = train(MIXED, 37)
    assert [(phase, step) for _, _, phase, step in log] == (
        [(0, k + 1) for k in range(12)] + [(1, k + 1) for k in range(15)] + [(2, k + 1) for k in range(10)]
    )
    rates = [rate for _, rate, _, _ in log]
    assert rates[:12] == [5e-3 * 0.5 ** (k / 5) * min(1, (k + 1) / 3) for k in range(12)]
    assert set(rates[12:]) == {1.0}
    losses = [loss for loss, *_ in log]
    assert losses[12:] == sorted(losses[12:], reverse=True)  # quasi-Newton never rises, across the hand-over too


def test_groups_keep_their_own_learning_rate_in_first_order_phases():
    a, b = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(1))
    phases = [Phase("adam", 2, 0.1, decay=Decay("exponential", rate=0.25, every=2)), Phase("bfgs", 2)]
    optimizer = PhasedOptimizer([{"params": [a]}, {"params": [b], "lr": 0.4}], phases)
    closure = closure_of(optimizer, lambda: a.square().sum() + b.square().sum())
    rates = []
    for _ in range(4):
        optimizer.step(closure)
        rates.append([group["lr"] for group in optimizer.param_groups])
    assert rates == [[0.1, 0.4], [0.05, 0.2], [1.0], [1.0]]


def test_quasi_newton_phase_ends_early_when_it_has_converged():
    x = nn.Parameter(torch.ones(3, dtype=torch.float64))
    optimizer = PhasedOptimizer([x], [Phase("ssbroyden", 1000), Phase("adam", 5)])
    closure = closure_of(optimizer, lambda: x.square().sum())
    while optimizer.phase_index == 0:
        optimizer.step(closure)
    assert optimizer.total_step < 30 and not optimizer.finished
    while not optimizer.finished:
        optimizer.step(closure)
    assert optimizer.phase_step == 5
    with pytest.raises(RuntimeError, match="all 2 phases are done"):
        optimizer.step(closure)


def test_new_points_give_a_converged_phase_its_steps_back():
    x = nn.Parameter(torch.ones(3, dtype=torch.float64))
    optimizer = PhasedOptimizer([x], [Phase("bfgs", 1000)], announces_changes=True)
    while not optimizer.finished:
        optimizer.step(closure_of(optimizer, lambda: x.square().sum()))
    optimizer.new_objective()
    assert not optimizer.finished
    for _ in range(20):
        optimizer.step(closure_of(optimizer, lambda: (x - 2).square().sum()))
        if optimizer.finished:
            break
    torch.testing.assert_close(x.detach(), torch.full((3,), 2.0, dtype=torch.float64))


@pytest.mark.parametrize("announces, asked, expected", [(True, {}, False), (False, {}, True)])
def test_who_finds_changes_of_the_objective(announces, asked, expected):
    x = nn.Parameter(torch.ones(3))
    optimizer = PhasedOptimizer([x], [Phase("ssbroyden", 10, options=asked)], announces_changes=announces)
    assert optimizer.param_groups[0]["check_objective"] is expected
    kept = PhasedOptimizer([x], [Phase("bfgs", 10, options={"check_objective": True})], announces_changes=True)
    assert kept.param_groups[0]["check_objective"] is True


def test_mistakes_are_found_before_the_first_step():
    x = nn.Parameter(torch.ones(3))
    with pytest.raises(ValueError, match="at least one Phase"):
        PhasedOptimizer([x], [])
    with pytest.raises(ValueError, match="Did you mean 'lbfgs'"):
        PhasedOptimizer([x], [Phase("adam"), Phase("lbgfs")])
    with pytest.raises(ValueError, match="Did you mean 'history_size'"):
        PhasedOptimizer([x], [Phase("adam"), Phase("lbfgs", options={"history": 5})])
    with pytest.raises(ValueError, match="`lower` must lie between 0 and 1"):
        PhasedOptimizer([x], [Phase("adam"), Phase("gauss_newton", options={"lower": 2.0})])
    with pytest.raises(ValueError, match="an option of 'gauss_newton' has a wrong type"):
        PhasedOptimizer([x], [Phase("adam"), Phase("gauss_newton", options={"lower": "x"})])
    with pytest.raises(ValueError, match="3 parameters need .* `max_parameters` = 2"):
        PhasedOptimizer([x], [Phase("adam"), Phase("gauss_newton", options={"max_parameters": 2})])
    one = PhasedOptimizer([x], [Phase("adam", 1)])
    with pytest.raises(ValueError, match="that of another optimiser"):
        one.load_state_dict(torch.optim.Adam([x]).state_dict())
    two = PhasedOptimizer([x], [Phase("adam", 1), Phase("bfgs", 2)])
    for _ in range(2):
        two.step(closure_of(two, lambda: x.square().sum()))
    with pytest.raises(ValueError, match="1 phases; got phase 2"):
        one.load_state_dict(copy.deepcopy(two.state_dict()))
    other = PhasedOptimizer([x], [Phase("adam", 1), Phase("lbfgs", 2)])
    with pytest.raises(ValueError, match="expected the state of 'lbfgs', in phase 2; got that of 'bfgs'"):
        other.load_state_dict(copy.deepcopy(two.state_dict()))


@pytest.mark.parametrize("name", ["adam", "soap"])
def test_a_run_goes_on_with_the_rates_of_the_schedule_at_hand(name):
    """Else a lower rate after a divergence would be one in name only."""

    def optimizer(lr, betas):
        torch.manual_seed(0)
        return PhasedOptimizer([nn.Parameter(torch.ones(3))], [Phase(name, 9, lr=lr, options={"betas": betas})])

    first, second = optimizer(1e-2, (0.9, 0.99)), optimizer(1e-3, (0.8, 0.9))
    for _ in range(3):
        first.step(closure_of(first, lambda: first.param_groups[0]["params"][0].square().sum()))
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    second.step(closure_of(second, lambda: second.param_groups[0]["params"][0].square().sum()))
    group = second.param_groups[0]
    assert (group["lr"], tuple(group["betas"]), second.total_step) == (1e-3, (0.8, 0.9), 4)


def test_inside_lightning_with_checkpoint_and_resume(tmp_path):
    """Manual optimisation; Lightning saves and restores the schedule by itself, in the middle of the second phase."""
    lightning = pytest.importorskip("lightning")

    class Fit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.net, _ = sine_network()
            self.losses = []

        def configure_optimizers(self):
            return PhasedOptimizer(self.parameters(), MIXED, announces_changes=True)

        def training_step(self, batch, _):
            optimizer = self.optimizers()
            optimizer.new_objective()

            def closure():
                optimizer.zero_grad()
                loss = (self.net(batch) - torch.sin(6 * batch)).square().mean()
                self.manual_backward(loss)
                return loss

            self.losses.append(optimizer.step(closure).item())
            assert optimizer.total_step == self.trainer.global_step

    def fit(steps, resume=None):
        module = Fit()
        points = torch.linspace(-1, 1, 32, dtype=torch.float64)[:, None]
        trainer = lightning.Trainer(
            max_steps=steps, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, default_root_dir=tmp_path,
        )  # fmt: skip
        trainer.fit(module, torch.utils.data.DataLoader(points, batch_size=32), ckpt_path=resume)
        if resume is None and steps == 18:
            trainer.save_checkpoint(tmp_path / "middle.ckpt")
        return module.losses

    straight = fit(30)
    assert fit(18) == straight[:18]
    assert fit(30, tmp_path / "middle.ckpt") == straight[18:]


def _rank(rank, folder, queue):
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    x = nn.Parameter(torch.tensor([-1.2, 1.0], dtype=torch.float64))
    optimizer = SSBroyden([x], check_objective=False)

    def closure():
        optimizer.zero_grad()
        # the ranks hold different points: their mean is Rosenbrock's function
        loss = 2 * (100 * (x[1] - x[0] ** 2) ** 2 if rank else (1 - x[0]) ** 2)
        loss.backward()
        torch.distributed.all_reduce(x.grad)
        x.grad /= 2
        return loss

    for _ in range(50):
        optimizer.step(closure)
    queue.put((rank, x.tolist(), optimizer.evaluations))
    torch.distributed.destroy_process_group()


def test_ranks_with_different_points_take_the_same_steps(tmp_path):
    context = torch.multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    ranks = [context.Process(target=_rank, args=(r, tmp_path, queue)) for r in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(120)
        assert process.exitcode == 0
    (_, first, evaluations), (_, second, same) = queue.get(), queue.get()
    assert first == second and evaluations == same
    assert first == pytest.approx([1.0, 1.0], abs=1e-6)
