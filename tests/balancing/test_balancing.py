"""Schemes against their formulas; state, capture-safe updates, statistics of the sampler."""

import io
import math

import pytest
import torch

from pinnfuse.balancing import (
    NTK,
    CausalWeights,
    GradientNorm,
    ReLoBRaLo,
    ResidualAttention,
    SelfAdaptive,
    rad,
    rar_d,
)

DOUBLE = {"dtype": torch.float64}


@pytest.mark.parametrize("scheme", [GradientNorm, NTK])
def test_shares_are_equal_and_averaged(scheme):
    balance = scheme(momentum=0.75)
    first = balance.update(torch.tensor([1.0, 3.0, 0.0], **DOUBLE))
    assert first.tolist() == pytest.approx([4, 4 / 3, 1])  # a term without gradient keeps its weight
    measure = torch.tensor([2.0, 2.0, 4.0], **DOUBLE)
    second = balance.update(measure)
    truth = [0.75 * a + 0.25 * 8 / m for a, m in zip([4, 4 / 3, 1], measure.tolist(), strict=True)]
    assert second.tolist() == pytest.approx(truth)


def test_relobralo_follows_its_formula():
    balance = ReLoBRaLo(alpha=0.9, temperature=0.5, beta=1.0)
    one, two = torch.tensor([1.0, 2.0], **DOUBLE), torch.tensor([0.5, 2.0], **DOUBLE)
    assert balance.update(one).tolist() == [1, 1]
    share = [math.exp(0.5 / 0.5), math.exp(1 / 0.5)]
    share = [2 * s / sum(share) for s in share]
    assert balance.update(two).tolist() == pytest.approx([0.9 + 0.1 * s for s in share])
    back = ReLoBRaLo(alpha=0.5, beta=0.0)  # always back to the start
    back.update(one)
    back.update(two)
    share = [math.exp(0.5), math.exp(1.0)]
    assert back.weights is not None
    assert back.weights.tolist() == pytest.approx([2 * s / sum(share) for s in share])


@pytest.mark.parametrize("make", [GradientNorm, NTK, lambda: ReLoBRaLo(beta=0.5, alpha=0.5)])
def test_state_continues_the_same_weights(make):
    measures = torch.rand(9, 3, generator=torch.Generator().manual_seed(0))
    whole, part, resumed = make(), make(), make()
    for m in measures:
        whole.update(m)
    for m in measures[:4]:
        part.update(m)
    buffer = io.BytesIO()
    torch.save(part.state_dict(), buffer)
    buffer.seek(0)
    resumed.load_state_dict(torch.load(buffer, weights_only=True))
    for m in measures[4:]:
        resumed.update(m)
    assert torch.equal(whole.weights, resumed.weights)


def test_attention_tends_to_its_bound_where_the_residual_is_largest():
    weights = ResidualAttention(3, rate=0.1, decay=0.9).double()
    points, residuals = torch.rand(3, 2, **DOUBLE), torch.tensor([[2.0], [1.0], [0.0]], **DOUBLE)
    for _ in range(400):
        weights.update(points, residuals)
    assert weights(points).tolist() == pytest.approx([1, 0.25, 0], abs=1e-12)


def test_self_adaptive_weights_move_to_large_residuals_and_keep_their_mean():
    weights = SelfAdaptive(4, rate=0.1).double()
    points, residuals = torch.rand(4, 1, **DOUBLE), torch.tensor([[1.0, 1.0], [0, 0], [3, 0], [0, 0]], **DOUBLE)
    for _ in range(10):
        weights.update(points, residuals)
    found = weights(points)
    assert found.mean().item() == pytest.approx(1)
    assert found[2] > found[0] > found[1] and found[1] == found[3]


def test_causal_weights():
    weights = CausalWeights(1, 0.0, 2.0, pieces=4, tolerance=0.5).double()
    points = torch.tensor([[9.0, 0.0], [9, 0.6], [9, 1.1], [9, 2.0]], **DOUBLE)
    assert weights(points).tolist() == [1, 1, 1, 1]
    weights.update(points, torch.tensor([[1.0], [2.0], [3.0], [4.0]], **DOUBLE))
    assert weights(points).tolist() == pytest.approx([math.exp(-0.5 * s) for s in (0, 1, 5, 14)])
    weights.update(points[:1], torch.zeros(1, 1, **DOUBLE))  # no point in the other pieces: they keep their value
    assert weights.piece_weights.tolist() == pytest.approx([math.exp(-0.5 * s) for s in (0, 0, 4, 13)])


def test_weights_of_other_points_are_refused():
    with pytest.raises(ValueError, match="made for 3 points, but got 4"):
        ResidualAttention(3)(torch.rand(4, 2))
    with pytest.raises(ValueError, match=r"`momentum` must lie in \[0, 1\); got 1"):
        GradientNorm(momentum=1)


def test_rad_draws_in_proportion():
    candidates = torch.arange(2000.0, **DOUBLE)[:, None]
    residuals = torch.where(candidates < 1000, 3.0, 1.0)
    generator = torch.Generator().manual_seed(0)
    chosen = torch.cat([rad(candidates, residuals, 20, 1.0, 0.0, generator) for _ in range(200)])
    share = (chosen < 1000).double().mean().item()
    assert abs(share - 0.75) < 4 * math.sqrt(0.75 * 0.25 / 4000)
    one = rad(candidates, residuals, 300, generator=torch.Generator().manual_seed(1))
    assert len(one.unique()) == 300
    assert torch.equal(one, rad(candidates, residuals, 300, generator=torch.Generator().manual_seed(1)))
    more = rar_d(candidates[:5], candidates, residuals, 7)
    assert more.shape == (12, 1) and torch.equal(more[:5], candidates[:5])
    with pytest.raises(ValueError, match="`decay` in .0, 1.; got 0.01, 1.0"):
        ResidualAttention(3, decay=1.0)
    with pytest.raises(ValueError, match="SelfAdaptive: `rate` must be positive and finite; got inf"):
        SelfAdaptive(3, rate=float("inf"))
    with pytest.raises(ValueError, match="3 points cannot be chosen from 2"):
        rad(candidates[:2], residuals[:2], 3)


def test_a_large_loss_does_not_blur_the_weight_of_its_piece():
    weights = CausalWeights(0, 0.0, 1.0, pieces=3, tolerance=100.0)
    weights.losses.copy_(torch.tensor([1e-3, 1e6, 1.0]))
    torch.testing.assert_close(weights.piece_weights, torch.tensor([1.0, math.exp(-0.1), 0.0]))
