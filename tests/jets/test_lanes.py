"""Chunks of points on several threads give what one thread gives."""

import multiprocessing
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import pinnfuse.jets.engine
from pinnfuse import FusedResidualLoss
from pinnfuse.jets import lanes
from pinnfuse.profiling.storage import PeakStorage
from tests.test_residual import PDES, case, loss_and_gradients


@pytest.fixture
def three_threads(monkeypatch):
    """Chunks of at most 7 points on three threads."""
    monkeypatch.setattr(pinnfuse.jets.engine, "chunk_size", lambda *_: 7)
    monkeypatch.setattr(pinnfuse.jets.engine, "LANE_BYTES", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    assert torch.get_num_threads() == 3  # lanes leave it alone
    torch.set_num_threads(before)


def everything(name="navier_stokes"):
    torch.manual_seed(0)
    net, points = case(PDES[name], n=101)
    weights = torch.rand(101, len(PDES[name].equations), dtype=torch.float64)
    return loss_and_gradients(PDES[name], net, points, "torch", point_weights=weights)


def same(one, other, tolerance):
    return all(torch.allclose(one[k], other[k], rtol=tolerance, atol=tolerance) for k in one)


@pytest.mark.parametrize("name", PDES)
def test_three_threads_give_the_numbers_of_one(name, three_threads, monkeypatch):
    several, again = everything(name), everything(name)
    assert all(torch.equal(several[k], again[k]) for k in several)  # the same bits every time
    monkeypatch.setattr(lanes, "MOST_LANES", 1)
    assert same(several, everything(name), 1e-12)


def test_outputs_and_their_adjoint(three_threads, monkeypatch):
    net, points = case(PDES["navier_stokes"], n=101)
    loss_fn = FusedResidualLoss(PDES["navier_stokes"], backend="torch").double()

    def run():
        net.zero_grad()
        r = loss_fn.residuals(net, points)
        r.sin().sum().backward()
        return [r.detach(), *(p.grad.clone() for p in net.parameters())]

    several = run()
    monkeypatch.setattr(lanes, "MOST_LANES", 1)
    for found, expected in zip(several, run(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)


def test_every_thread_has_its_share_of_the_threads(three_threads):
    torch.set_num_threads(6)
    counts = lanes.run(lambda share: (torch.get_num_threads(), threading.get_ident()), [0, 1, 2])
    assert [threads for threads, _ in counts] == [2, 2, 2]
    assert threading.get_ident() not in {ident for _, ident in counts}
    torch.set_num_threads(3)


def test_results_come_in_the_order_of_the_shares(three_threads):
    assert lanes.run(lambda share: share**2, [3, 1, 2]) == [9, 1, 4]


def test_an_error_in_a_thread_is_raised_when_all_are_done(three_threads):
    failed, done = threading.Event(), []

    def task(share):
        if share == 1:
            failed.set()
            raise ZeroDivisionError(share)
        failed.wait()
        time.sleep(0.05)
        done.append(share)

    with pytest.raises(ZeroDivisionError):
        lanes.run(task, [1, 2])
    assert done == [2]  # nobody is still at work


def test_a_pool_that_takes_no_more_work_leaves_it_to_the_caller(three_threads, monkeypatch):
    class Ending(ThreadPoolExecutor):
        """Takes one task: Python ends meanwhile."""

        def submit(self, *task):
            future = super().submit(*task)
            self.shutdown(wait=False)
            return future

    expected = everything()
    monkeypatch.setattr(lanes, "_pool", lambda *_: Ending(1))
    assert lanes.run(lambda share: share**2, [3, 1, 2]) == [9, 1, 4]
    assert same(everything(), expected, 1e-12)


def test_the_caller_works_where_a_thread_cannot_start(three_threads, monkeypatch):
    start, started = threading.Thread.start, []

    def refuse_the_second(thread):
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    lanes._pool.cache_clear()
    monkeypatch.setattr(threading.Thread, "start", refuse_the_second)
    assert lanes.run(lambda share: (share, threading.get_ident()), [1, 2]) == [
        (n, threading.get_ident()) for n in (1, 2)
    ]
    started[0].join(60)
    assert not started[0].is_alive()  # waits for nobody


def test_no_graph_is_made_and_inference_mode_is_kept(three_threads):
    x = torch.ones(2, requires_grad=True)
    assert not any(y.requires_grad for y in lanes.run(lambda share: x * share, [1.0, 2.0]))
    with torch.inference_mode():
        assert all(y.is_inference() for y in lanes.run(lambda share: x * share, [1.0, 2.0]))
    with torch.inference_mode():
        net, points = case(PDES["burgers"], n=50)
        FusedResidualLoss(PDES["burgers"], backend="torch").double().evaluate(net, points)


def test_one_after_the_other_where_operations_are_watched(three_threads):
    expected = everything()
    with FlopCounterMode(display=False) as counter:
        assert lanes.watched() and same(everything(), expected, 1e-12)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        everything()
    assert not lanes.watched()
    assert counter.get_total_flops() > 2 * 101 * 4 * 8 * 8
    assert any(event.key == "aten::tanh" for event in profile.key_averages())


def test_memory_of_all_threads_is_counted(three_threads, monkeypatch):
    def peak():
        with PeakStorage() as storage:
            everything()
        return storage.peak

    several = peak()
    monkeypatch.setattr(lanes, "MOST_LANES", 1)
    assert several > 2 * peak()


def test_two_callers_at_once(three_threads):
    net, points = case(PDES["navier_stokes"], n=101)
    run = partial(loss_and_gradients, PDES["navier_stokes"], net, points, "torch")
    expected, found = run(), []
    callers = [threading.Thread(target=lambda: found.extend(run() for _ in range(3))) for _ in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(found) == 6 and all(torch.equal(result[k], expected[k]) for result in found for k in expected)


def _loss_of_a_child(queue):
    queue.put(float(everything()["loss"]))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this system")
def test_a_forked_process_makes_threads_of_its_own(three_threads):
    expected = float(everything()["loss"])
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_loss_of_a_child, args=(queue,))
    child.start()
    assert queue.get(timeout=120) == pytest.approx(expected, rel=1e-12)
    child.join()
