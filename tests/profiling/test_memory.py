"""Memory of operations whose bytes are known; reports; batch sizes that fit, and those a third larger that do not."""

import io

import pytest
import torch
from rich.console import Console
from torch import nn

from pinnfuse.profiling import auto_batch_size, memory, memory_report
from pinnfuse.profiling.usage import peak_memory, show

CPU = torch.device("cpu")


def test_the_bytes_of_a_known_operation(device):
    """sin x + 1: the sine is alive while the sum is made; the input is saved; cos x is alive beside g cos x."""
    for row, n in zip(memory(lambda x: x.sin() + 1, (64, 128), device=device), (64, 128), strict=True):
        field = 4e-6 * n * n
        assert row.size == n and row.input == pytest.approx(field)
        assert row.forward == pytest.approx(2 * field) and row.result == pytest.approx(field)
        assert row.saved == pytest.approx(0.0) and row.gradients == pytest.approx(field)
        assert row.backward == pytest.approx(2 * field)


def test_the_peak_is_counted_anew_each_time(device):
    large, small = memory(torch.exp, (256, 16), device=device)
    assert large.forward / small.forward == pytest.approx(256, rel=0.02)
    assert small.saved == pytest.approx(0.0)  # exp saves its result, which is counted as such


def test_without_backward_and_with_inputs():
    (row,) = memory(torch.matmul, ["any"], inputs=lambda _: (torch.rand(4, 8), torch.rand(8, 2)), backward=False)
    assert row.backward is None and row.result == pytest.approx(32e-6) and row.input == pytest.approx(192e-6)
    text = io.StringIO()
    show([row], Console(file=text, width=120))
    assert "forward peak" in text.getvalue()
    with pytest.raises(ValueError, match="`sizes` must be numbers or shapes"):
        memory(torch.exp, ["many"])


def test_the_report_adds_up(device):
    kept = torch.zeros(10**6, device=device)
    report = memory_report(device)
    assert report.allocated * 1e6 >= kept.numel() * 4 and report.reserved >= report.allocated
    assert 0 < report.free <= report.total and report.available >= report.free
    assert str(report).startswith(str(device))


@pytest.mark.gpu
def test_free_is_what_the_driver_says():
    free, total = torch.cuda.mem_get_info()
    report = memory_report("cuda")
    assert report.total == total / 1e6 and abs(report.free - free / 1e6) < 1


def net(width=32):
    return nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))


def loss(model, x):
    return model(x).square().mean()


def test_the_batch_fits_and_a_third_more_does_not():
    model = net()
    found = auto_batch_size(model, loss, draw=lambda n: torch.rand(n, 2), budget=2_000_000)
    assert found.limit == "memory" and found.peak <= 2_000_000

    def peak(n):
        return peak_memory(lambda: torch.autograd.grad(loss(model, torch.rand(n, 2)), list(model.parameters())), CPU)

    assert peak(found.size) == found.peak and peak(int(1.3 * found.size)) > 2_000_000
    assert "bytes each" in str(found)


def test_a_guess_that_does_not_fit_shrinks():
    """Memory that jumps beyond 1,000 samples."""
    model = net()

    def jumpy(model, x):
        extra = torch.zeros(500_000) if len(x) > 1000 else torch.zeros(1)
        return loss(model, x) + extra.sum()

    found = auto_batch_size(model, jumpy, draw=lambda n: torch.rand(n, 2), budget=1_500_000, start=64)
    assert found.size <= 1000 and found.peak <= 1_500_000


def test_the_cap_is_reported():
    found = auto_batch_size(net(), loss, draw=lambda n: torch.rand(n, 2), largest=512)
    assert found.size == 512 and found.limit == "largest"


def test_bad_settings():
    with pytest.raises(ValueError, match="`fraction`"):
        auto_batch_size(net(), loss, 1.5, draw=lambda n: torch.rand(n, 2))
    with pytest.raises(MemoryError, match="Use a smaller"):
        auto_batch_size(net(), loss, draw=lambda n: torch.rand(n, 2), budget=1000)
