import torch

from pinnfuse.profiling.storage import PeakStorage

MB = 1024 * 1024


def test_it_counts_what_is_alive_at_once():
    with PeakStorage() as storage:
        a = torch.zeros(MB, dtype=torch.uint8)
        b = a + 1  # 2 MB
        del b
        c = a[: MB // 2]  # a view
        a.add_(1)  # in place
        d = torch.zeros(MB // 2, dtype=torch.uint8)
        assert storage.held == MB + MB // 2
    assert storage.peak == 2 * MB
    del a, c, d
    assert storage.held == 0


def test_it_sees_the_backward():
    x = torch.zeros(MB // 4, requires_grad=True)  # 1 MB, from before
    with PeakStorage() as storage:
        y = (x.sin().sin()).sum()
        forward = storage.peak
        y.backward()
    assert forward >= 2 * MB  # sin x, which the second sine saves, and its sine
    assert storage.peak >= forward
    assert x.grad is not None and storage.held >= MB  # the gradient stays
