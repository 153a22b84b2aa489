import pytest
import torch

from pinnfuse.metrics import RelativeL2


def test_batches_and_components_add_up_to_the_norm_of_the_whole():
    p, r = torch.randn(2, 50, 2, dtype=torch.float64)
    metric = RelativeL2()
    for i in range(0, 50, 7):
        metric.update(p[i : i + 7], r[i : i + 7])
    assert metric.compute().item() == pytest.approx((torch.linalg.norm(p - r) / torch.linalg.norm(r)).item(), rel=1e-14)


def test_masked_points_do_not_count():
    p, r = torch.randn(2, 20)
    r[3] = float("nan")
    keep = torch.arange(20) != 3
    masked, plain = RelativeL2(), RelativeL2()
    masked.update(p, r)
    plain.update(p[keep], r[keep])
    assert masked.compute() == plain.compute()


def test_a_constant_is_forgiven_only_where_asked():
    r = torch.randn(100)
    free, strict = RelativeL2(up_to_constant=True), RelativeL2()
    for metric in (free, strict):
        metric.update(r + 3, r)
    assert free.compute() < 1e-6  # float32 rounding of r + 3
    assert strict.compute() > 1
    free.reset()
    free.update(1.1 * r + 3, r)
    assert free.compute().item() == pytest.approx(0.1, rel=1e-5)


def test_each_group_has_a_constant_of_its_own():
    r = torch.randn(3, 50, dtype=torch.float64)
    r = r - r.mean(1, keepdim=True) + 2
    group = torch.arange(3).repeat_interleave(50)
    shifted = (r + torch.tensor([[1.0], [-4.0], [0.5]], dtype=torch.float64)).reshape(-1)
    own, one = RelativeL2(True, groups=3), RelativeL2(True)
    order = torch.randperm(150)
    for part in order.split(40):
        own.update(shifted[part], r.reshape(-1)[part], group[part])
        one.update(shifted[part], r.reshape(-1)[part])
    assert own.compute() < 1e-7
    assert one.compute() > 1
    own.reset()
    own.update(1.1 * r.reshape(-1) + group, r.reshape(-1), group)
    assert own.compute().item() == pytest.approx(0.1, rel=1e-10)


def test_means_over_many_processes_serve_as_sums():
    r = torch.randn(3, dtype=torch.float64)
    metric = RelativeL2(True)
    metric.update(1.1 * r + 3, r)
    for name in metric.metric_state:
        setattr(metric, name, getattr(metric, name) / 16)
    assert metric.compute().item() == pytest.approx(0.1, rel=1e-10)


@pytest.mark.parametrize("shape", [(0,), (0, 2)])
def test_no_points_change_nothing(shape):
    metric = RelativeL2()
    metric.update(torch.empty(shape), torch.empty(shape))
    assert metric.compute().isnan()
    metric.update(torch.full((3, 2), 1.5), torch.ones(3, 2))
    metric.update(torch.empty(shape), torch.empty(shape))
    assert metric.compute() == 0.5


def test_it_stays_float64_when_its_module_is_cast():
    metric = RelativeL2().float()
    metric.update(torch.ones(3), torch.ones(3))
    assert metric.error_square.dtype == torch.float64


def test_bad_shapes_say_what_to_do():
    with pytest.raises(ValueError, match=r"must match `reference`, \(3,\); got \(3, 1\)"):
        RelativeL2().update(torch.ones(3, 1), torch.ones(3))
    with pytest.raises(ValueError, match="one component; got 2"):
        RelativeL2(up_to_constant=True).update(torch.ones(3, 2), torch.ones(3, 2))


def test_sums_of_a_module_in_float32_stay_exact():
    module = torch.nn.ModuleList([RelativeL2()]).to(torch.float32)
    p, r = torch.randn(2, 50, dtype=torch.float64)
    module[0].update(p, r)
    assert module[0].compute().item() == pytest.approx(((p - r).norm() / r.norm()).item(), rel=1e-14)
