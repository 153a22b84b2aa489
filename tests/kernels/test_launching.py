"""Launches that are remembered: compiled once for each alignment, then started with addresses."""

import torch
import triton

from pinnfuse.kernels.launching import Prepared


class Compiled:
    def __init__(self, calls):
        self.calls = calls

    def __getitem__(self, grid):
        return lambda *args: self.calls.append((grid, args))


class Kernel:
    __name__ = "kernel"

    def __init__(self):
        self.compiled, self.started = [], []

    def __getitem__(self, grid):
        def compile_and_start(*args, **constants):
            self.compiled.append((grid, args, constants))
            return Compiled(self.started)

        return compile_and_start


def test_compiled_once_for_each_alignment(monkeypatch):
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    kernel = Kernel()
    launch = Prepared(kernel, (7,), (5,), {"BLOCK": 64}, num_warps=4)
    x, y = torch.zeros(9), torch.zeros(8)
    launch((x, y))
    assert kernel.compiled == [((7,), (x, y, 5), {"BLOCK": 64, "num_warps": 4})] and not kernel.started
    launch((x, y))
    launch((y, x))
    assert len(kernel.compiled) == 1
    assert kernel.started[0] == ((7, 1, 1), (x.data_ptr(), y.data_ptr(), 5, 64))
    launch((x[1:], y))  # 4 bytes further: other loads
    assert len(kernel.compiled) == 2
    launch((x, y[1:]))
    assert len(kernel.compiled) == 3
    launch((x[5:], y))  # as far from 16 bytes as before
    assert len(kernel.compiled) == 3 and len(kernel.started) == 3
