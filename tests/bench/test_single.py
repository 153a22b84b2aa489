"""Times of known operations; the report of two; what cannot be timed."""

import json

import pytest
import torch

from pinnfuse.bench import benchmark_operator, benchmark_pair, single


class Clock:
    """A clock that only goes when it is told to: the machine's load is none of its business."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(single, "time", found)
    return found


def test_a_sleep_takes_its_time(clock):
    lengths = iter([0.5, *(0.01 * k for k in (1, 2, 3, 4, 5, 6, 7, 8))])  # the first call, a warm-up, seven runs
    found = benchmark_operator(lambda x: clock.sleep(next(lengths)), torch.zeros(1), "sleep", warm_up=1, runs=7)
    assert (found.first, found.median, found.mean) == pytest.approx((500.0, 50.0, 50.0))
    assert found.q20 < 40.0 < 60.0 < found.q80
    assert found.count == 7 and str(found).startswith("sleep: ")


def test_a_backward_takes_its_time_too(clock):
    class Slow(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            clock.sleep(0.002)
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            clock.sleep(0.01)
            return g

    assert benchmark_operator(Slow.apply, torch.zeros(4), backward=True, warm_up=1, runs=5).median == pytest.approx(12)
    assert benchmark_operator(Slow.apply, torch.zeros(4), warm_up=1, runs=5).median == pytest.approx(2.0)


def test_two_operations_in_one_report():
    x = torch.linspace(-2, 3, 101)
    found = benchmark_pair(lambda x: x * 2, lambda x: x + x + 1e-3, x, warm_up=1, runs=5, flush=True)
    row = json.loads(json.dumps(found.as_dict()))
    assert sorted(row) == ["first", "max_absolute", "max_relative", "ratio", "second"]
    assert sorted(row["first"]) == ["count", "device", "first", "mean", "median", "name", "q20", "q80"]
    assert row["max_absolute"] == pytest.approx(1e-3, rel=1e-3)
    assert row["max_relative"] == pytest.approx(1e-3 / 6, rel=1e-3)
    assert row["ratio"] == pytest.approx(found.first.median / found.second.median)
    assert "fused is" in str(found)


def test_bad_settings():
    with pytest.raises(ValueError, match="`runs`"):
        benchmark_operator(torch.exp, torch.zeros(1), runs=0)
    with pytest.raises(ValueError, match="one shape"):
        benchmark_pair(lambda x: x, lambda x: x[:1], torch.zeros(3))


@pytest.mark.gpu
def test_a_kernel_of_known_length():
    clock = 1.5e9  # about; only the ratio counts
    x = torch.zeros(1, device="cuda")
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    torch.cuda._sleep(int(0.2 * clock))  # long, so that events have no share in it
    end.record()
    end.synchronize()
    truth = start.elapsed_time(end) / 100
    if truth > 2.4:  # clocks are above 1.25 GHz: others' turns on the card are in it, and no two kernels get as many
        pytest.skip("the card is not this process's alone")
    found = benchmark_operator(lambda x: torch.cuda._sleep(int(0.002 * clock)), x, runs=20)
    assert found.median == pytest.approx(truth, rel=0.05)


@pytest.mark.gpu
def test_work_on_another_stream_is_refused():
    other = torch.cuda.Stream()

    def elsewhere(x):
        with torch.cuda.stream(other):
            torch.cuda._sleep(20_000_000)

    with pytest.raises(RuntimeError, match="another stream"):
        benchmark_operator(elsewhere, torch.zeros(1, device="cuda"), runs=5)
