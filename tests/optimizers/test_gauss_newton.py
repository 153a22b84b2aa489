"""Levenberg-Marquardt on problems whose answer is known."""

import pytest
import torch
from torch import nn

from pinnfuse.optimizers import GaussNewton


def start(values) -> list[nn.Parameter]:
    return [nn.Parameter(torch.tensor(values, dtype=torch.float64))]


def linear(rows: int, columns: int):
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    return matrix, torch.randn(rows, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("rows", [3, 7, 40], ids=["fewer", "few", "more"])
def test_a_linear_problem_is_solved_at_once(rows):
    matrix, right = linear(rows, 7)
    params = start([0.0] * 7)
    optimizer = GaussNewton(params, damping=1e-14)

    def linearise():
        for part in (slice(0, 2), slice(2, rows)):
            yield matrix[part] @ params[0] - right[part], matrix[part]

    optimizer.step(lambda: (matrix @ params[0] - right).square().sum(), linearise)
    truth = torch.linalg.pinv(matrix) @ right  # of least norm where there are several
    assert torch.allclose(params[0], truth, atol=1e-9)


def test_rosenbrock_converges_quadratically_and_never_rises():
    params = start([-1.2, 1.0])
    optimizer = GaussNewton(params)

    def residuals():
        a, b = params[0]
        return torch.stack([10 * (b - a * a), 1 - a])

    def linearise():
        a = params[0][0].item()
        yield residuals(), torch.tensor([[-20 * a, 10.0], [-1.0, 0.0]], dtype=torch.float64)

    losses = [optimizer.step(lambda: residuals().square().sum(), linearise).item() for _ in range(60)]
    assert losses == sorted(losses, reverse=True)
    assert torch.allclose(params[0], torch.ones(2, dtype=torch.float64), atol=1e-8)


def rosenbrock(params):
    def residuals():
        a, b = params[0]
        return torch.stack([10 * (b - a * a), 1 - a])

    def linearise():
        yield residuals(), torch.tensor([[-20 * params[0][0].item(), 10.0], [-1.0, 0.0]], dtype=torch.float64)

    return linearise, residuals


def test_a_step_with_residuals_follows_the_curvature():
    params = start([0.5, 0.2])
    linearise, residuals = rosenbrock(params)
    (r, jacobian), mu = next(linearise()), 300.0  # large enough for the first trial to be kept
    x = params[0].detach().clone()
    inverse = torch.linalg.inv(jacobian.T @ jacobian + mu * torch.eye(2, dtype=torch.float64))
    d = -inverse @ jacobian.T @ r
    second = torch.tensor([-20 * d[0].item() ** 2, 0.0], dtype=torch.float64)  # of 10 (b - a^2) along d
    a = -0.5 * inverse @ jacobian.T @ second
    assert 0 < 2 * a.norm() < 0.75 * d.norm()
    optimizer = GaussNewton(params, damping=mu / (jacobian.T @ jacobian).diagonal().max().item())
    optimizer.step(None, linearise, residuals)
    assert torch.allclose(params[0], x + d + a, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rows", [1, 2], ids=["fewer", "as many"])
def test_the_curvature_saves_steps_and_the_loss_never_rises(rows):
    def steps(follow):
        params = start([-1.2, 1.0])
        linearise, residuals = rosenbrock(params)
        cut, less = (lambda: residuals()[:rows]), (lambda: ((r[:rows], j[:rows]) for r, j in linearise()))
        optimizer, losses = GaussNewton(params), []
        while not losses or losses[-1] > 1e-20:
            losses.append(optimizer.step(lambda: cut().square().sum(), less, cut if follow else None).item())
            assert len(losses) < 200
        assert losses == sorted(losses, reverse=True)
        return len(losses)

    assert steps(True) <= steps(False)


def test_nothing_moves_where_nothing_helps_and_it_says_so():
    params = start([0.0])
    optimizer = GaussNewton(params, patience=3, max_trials=2)
    one = torch.ones(1, dtype=torch.float64)
    for _ in range(3):
        assert not optimizer.stalled
        optimizer.step(lambda: torch.tensor(1.0), lambda: iter([(one, one[:, None])]))  # the loss does not follow
    assert optimizer.stalled and params[0].item() == 0
    optimizer.new_objective()
    assert not optimizer.stalled


def test_a_trial_that_is_nan_is_not_kept():
    params = start([1.0])
    optimizer = GaussNewton(params)
    one = torch.ones(1, dtype=torch.float64)
    loss = optimizer.step(lambda: torch.tensor(torch.nan), lambda: iter([(one, one[:, None])]))
    assert loss == 1 and params[0].item() == 1


def test_mistakes():
    with pytest.raises(ValueError, match="`linearise` must be given"):
        GaussNewton(start([1.0])).step(lambda: 0.0)
    with pytest.raises(ValueError, match="`closure` or `residuals` must be given"):
        GaussNewton(start([1.0])).step(None, lambda: iter([]))
    with pytest.raises(ValueError, match="`damping` must be positive and finite; got 0"):
        GaussNewton(start([1.0]), damping=0)
    with pytest.raises(ValueError, match="more than `max_parameters` = 2"):
        GaussNewton(start([1.0, 2.0, 3.0]), max_parameters=2)


def test_resume_continues_bit_for_bit(tmp_path):
    def run(steps, resume_at):
        params, log = start([-1.2, 1.0]), []
        optimizer = GaussNewton(params)
        for k in range(steps):
            if k == resume_at:
                torch.save((params[0].data, optimizer.state_dict()), tmp_path / "c.pt")
                values, state = torch.load(tmp_path / "c.pt", weights_only=True)
                params = [nn.Parameter(values)]
                optimizer = GaussNewton(params)
                optimizer.load_state_dict(state)
                optimizer.new_objective()

            def residuals(p=params):
                a, b = p[0]
                return torch.stack([10 * (b - a * a), 1 - a])

            def linearise(p=params, r=residuals):
                yield r(), torch.tensor([[-20 * p[0][0].item(), 10.0], [-1.0, 0.0]], dtype=torch.float64)

            log.append(optimizer.step(lambda r=residuals: r().square().sum(), linearise).item())
        return log, params[0].tolist()

    assert run(12, None) == run(12, 5)
